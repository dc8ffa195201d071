"""Reports about partitions that refuse the markers of decided transactions."""

import logging
from collections.abc import Iterator

import pytest

from broker.shards.outages import MOVING_MS, REMINDER_MS, Outages
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import DeleteTopicsRequest
from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import A, B, TxnProducer, read_stable, settle, txn_rig

REFUSED = "a partition rejects transaction markers; they are sent again until it accepts them"
OVER = "the partition accepts transaction markers again"
HOUR_MS = 3_600_000


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log messages about markers."""
    records = caplog.get_records("setup") + caplog.get_records("call")
    return [one.getMessage() for one in records if "marker" in one.getMessage()]


def turn(rig: Rig, by_ms: int) -> None:
    rig.advance(by_ms)
    settle(rig)


@pytest.fixture
def rig(caplog: pytest.LogCaptureFixture) -> Iterator[Rig]:
    """Yield a broker whose partition 0 has refused the markers of two transactions."""
    caplog.set_level(logging.INFO)
    with txn_rig() as rig:
        producers = [TxnProducer(rig, name).ready() for name in ("one", "two")]
        for producer in producers:
            producer.add(A, B)
            assert [producer.put(one, b"x") for one in (A, B)] == [ErrorCode.NONE] * 2
        rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
        for producer in producers:
            assert producer.end() is ErrorCode.NONE
        settle(rig)
        yield rig


def test_an_outage_is_reported_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        turn(rig, 2_000)
    assert said(caplog) == [REFUSED]


def test_a_long_outage_is_told_again_from_time_to_time(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(HOUR_MS // 10_000):
        turn(rig, 10_000)
    assert said(caplog) == [REFUSED] * (1 + HOUR_MS // REMINDER_MS)


def test_the_end_of_an_outage_is_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        rig.disk.refuses = None
        turn(rig, 2_000)
    assert said(caplog) == [REFUSED, OVER]
    assert read_stable(rig, "t") == [b"x"] * 2


def test_an_outage_ends_with_its_topic(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    turn(rig, 2_000)
    assert said(caplog) == [REFUSED, OVER]


def test_a_completion_that_a_full_disk_refuses_is_not_told_at_every_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The refused write is counted and logged once. A line for each attempt would flood the log."""
    with txn_rig() as rig:
        producer = TxnProducer(rig).ready()
        producer.add(A)
        assert producer.put(A, b"x") is ErrorCode.NONE
        assert producer.end() is ErrorCode.NONE
        rig.disk.refuses = lambda path, operation: (
            operation == "write" and "/__transaction_state-" in path
        )
        settle(rig)
        for _ in range(5):
            turn(rig, 2_000)
        assert rig.broker.parts.transactions.shard("id").transactions["id"].state.is_preparing
        assert not [
            one for one in caplog.messages if "cannot write the new state of transactions" in one
        ]
        rig.disk.refuses = None
        turn(rig, 2_000)
        assert not rig.broker.parts.transactions.shard("id").transactions["id"].state.is_preparing


def test_a_partition_that_moves_is_told_only_when_that_takes_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    outages = Outages()
    moving = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    outages.refused(A, moving, 0)
    outages.refused(A, moving, MOVING_MS - 1)
    outages.over(A, MOVING_MS - 1)
    assert said(caplog) == []
    for now_ms in (10_000, 10_000 + MOVING_MS, 10_001 + MOVING_MS, 10_000 + 2 * MOVING_MS):
        outages.refused(A, moving, now_ms)
    outages.over(A, 30_000)
    assert said(caplog) == [REFUSED, OVER]
