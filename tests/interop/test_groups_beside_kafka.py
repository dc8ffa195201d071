"""Our broker and Apache Kafka must give the same responses to the same requests about groups.

Each play is a list of requests by named members. The play records the responses without what must
differ: the clients' names replace member ids, and times are removed. A parked request is recorded
when its response comes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.group import (
    JoinGroupRequestProtocol,
)
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaProcess
from tests.harness.wait import wait_until
from tests.interop.group_plays import Stage, beat, prepare, settle

pytestmark = [pytest.mark.live, pytest.mark.slow]

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.max.size": 3}


def one_member(stage: Stage) -> None:
    a = stage.player("a")
    stage.describe()
    a.heartbeat()
    a.commit(1)
    stage.describe()
    stage.fetch()
    settle(stage, a)
    stage.describe()
    a.heartbeat()
    a.commit(5)
    a.commit(5, topic="missing")
    a.commit(5, note="x" * 5_000)
    stage.fetch()
    stage.delete_offset()
    stage.delete_offset("missing")
    stage.delete()
    a.sync()
    a.hear()
    a.sync(protocol_name="other")
    a.hear()
    a.generation += 1
    a.sync()
    a.hear()
    a.commit(6)
    a.heartbeat()
    a.generation = -1
    a.commit(6)
    a.leave("stranger")
    a.leave()
    a.leave()
    stage.describe()
    a.commit(7)
    a.member_id = ""
    a.commit(8)
    stage.fetch()
    stage.delete_offset()
    stage.fetch()
    stage.delete()
    stage.delete()
    stage.delete_offset()
    stage.describe()


def refused_joins(stage: Stage) -> None:
    a, b = stage.player("a"), stage.player("b")
    refused: list[dict[str, Any]] = [
        {"session_timeout_ms": 1}, {"session_timeout_ms": 10_000_000}, {"member_id": "stranger"},
        {"protocols": []}, {"protocol_type": ""}, {"group_id": ""},
    ]  # fmt: skip
    for changes in refused:
        for version in (3, 9):
            b.join(version, **changes)
            b.hear()
    settle(stage, a)
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    wrong: list[dict[str, Any]] = [
        {"protocols": other}, {"protocol_type": "connect"}, {"member_id": "x"},
    ]  # fmt: skip
    for changes in wrong:
        b.join(3, **changes)
        b.hear()
    b.join(9, group_instance_id="i9", member_id="stranger")
    b.hear()
    a.heartbeat()
    stage.describe()


def rebalances(stage: Stage) -> None:
    a, b, c, d = (stage.player(name) for name in "abcd")
    settle(stage, a, b)
    stage.describe()
    c.join()
    c.hear()
    c.join()
    wait_until(lambda: beat(a) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a rebalance")
    stage.describe()
    a.sync()
    a.hear()
    a.commit(3)
    c.member_id, kept = "", c.member_id
    c.member_id = kept
    a.join()
    b.join()
    for player in (a, b, c):
        player.hear()
    b.commit(4)
    b.join()
    b.hear()
    b.heartbeat()
    stage.describe()
    b.sync()
    a.sync()
    for player in (a, b):
        player.hear()
    c.sync()
    c.hear()
    stage.describe()
    d.join()
    d.hear()
    b.join()
    b.hear()
    a.join()
    wait_until(lambda: beat(c) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "the leader's rebalance")
    b.leave()
    c.join()
    for player in (a, c):
        player.hear()
    a.leave()
    wait_until(lambda: beat(c) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a new leader")
    c.join()
    c.hear()
    c.leave()
    stage.describe()


def static_members(stage: Stage) -> None:
    a, b = stage.player("a", "i1"), stage.player("b", "i2")
    settle(stage, a, b)
    stage.describe()
    twin = stage.player("twin", "i2")
    twin.join()
    twin.hear()
    b.heartbeat()
    b.commit(3)
    b.sync()
    b.hear()
    b.leave()
    b.join()
    b.hear()
    twin.sync()
    twin.hear()
    twin.commit(3)
    del stage.players["b"]
    for version in (8, 9):
        again = stage.player(f"again-{version}", "i1")
        again.join(version)
        again.hear()
        again.sync()
        again.hear()
        again.heartbeat()
    a.heartbeat()
    stage.describe()
    twin.leave("")
    twin.heartbeat()
    again.join()
    again.hear()
    again.leave("")
    stage.describe()


def full_groups(stage: Stage) -> None:
    """Fill a group to the limit of `group.max.size` 3, and let a fourth member try to join."""
    a, b, c, d = (stage.player(name) for name in "abcd")
    settle(stage, a, b, c)
    d.join()
    d.hear()
    d.join(3)
    d.hear()
    # A follower leaves, because after its leader left Kafka chooses the next one by hash order.
    b.leave()
    wait_until(lambda: beat(a) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a rebalance")
    a.join()
    d.member_id = ""
    d.join()
    d.hear()
    d.join()
    c.join()
    for player in (a, c, d):
        player.hear()
    stage.describe()


def time_passes(stage: Stage) -> None:
    """One member sends nothing, another one misses a rebalance, and a third never sends
    SyncGroup."""
    a, b = stage.player("a"), stage.player("b")
    settle(stage, a, b)
    stage.describe()
    wait_until(lambda: beat(a) == ErrorCode.REBALANCE_IN_PROGRESS, 20, "b is missed")
    b.heartbeat()
    b.commit(3)
    a.join(rebalance_timeout_ms=2_000, session_timeout_ms=30_000)
    a.hear()
    a.sync()
    a.hear()
    c = stage.player("c")
    c.join(session_timeout_ms=30_000, rebalance_timeout_ms=2_000)
    c.hear()
    c.join(session_timeout_ms=30_000, rebalance_timeout_ms=2_000)
    c.hear()
    a.heartbeat()
    stage.describe()
    wait_until(lambda: beat(c) == ErrorCode.UNKNOWN_MEMBER_ID, 20, "it did not sync")
    stage.describe()


PLAYS: tuple[Callable[[Stage], None], ...] = (
    one_member, refused_joins, rebalances, static_members, full_groups, time_passes,
)  # fmt: skip


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    ours = BrokerProcess(tmp_path_factory.mktemp("ours"), SETTINGS)
    kafka = KafkaProcess(
        tmp_path_factory.mktemp("kafka"),
        properties={key: str(value) for key, value in SETTINGS.items()},
    )
    with kafka, ours:
        for bootstrap in (ours.bootstrap, kafka.bootstrap):
            prepare(bootstrap, *(play.__name__ for play in PLAYS))
        yield ours.bootstrap, kafka.bootstrap


@pytest.mark.parametrize("play", PLAYS, ids=[play.__name__ for play in PLAYS])
def test_a_play_goes_as_before_apache_kafka(
    brokers: tuple[str, str], play: Callable[[Stage], None]
) -> None:
    told = []
    for bootstrap in brokers:
        stage = Stage(bootstrap, play.__name__)
        try:
            play(stage)
        finally:
            stage.close()
        told.append(stage.told)
    assert told[0] == told[1]
    assert len(told[0]) > 10
