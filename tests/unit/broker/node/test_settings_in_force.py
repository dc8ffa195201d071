"""Settings of the broker: each gets a value other than its default, and a request or a log shows
the effect."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import DescribeTransactionsRequest
from protocol.wire.records import NewRecord, build_batch
from tests.harness.wire import produce_request
from tests.unit.broker.group_rig import joining
from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import TxnProducer, make_coordinators, settle

KEY_COUNT = 6_000
"""More keys than fit into the smallest memory that a cleaning may have."""

CLEANER_MS = 15_000


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [
        (1_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (2_000, ErrorCode.MEMBER_ID_REQUIRED),
        (9_000, ErrorCode.MEMBER_ID_REQUIRED),
        (9_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeouts_lie_between_those_of_the_node(session_ms: int, code: ErrorCode) -> None:
    rig = Rig(group_min_session_timeout_ms=2_000, group_max_session_timeout_ms=9_000)
    make_coordinators(rig)
    answer = rig.ask(joining(session_timeout_ms=session_ms), 9)
    assert ErrorCode(answer.error_code) is code


def test_a_note_beside_an_offset_is_no_longer_than_the_node_allows() -> None:
    rig = Rig(offset_metadata_max_bytes=5)
    rig.create("logs")
    make_coordinators(rig)

    def commit(note: str) -> ErrorCode:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=note
        )
        topic = OffsetCommitRequestTopic(name="logs", partitions=[partition])
        answer = rig.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert commit("12345") is ErrorCode.NONE
    assert commit("123456") is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_transaction_may_take_no_longer_than_the_node_allows() -> None:
    rig = Rig(transaction_max_timeout_ms=5_000)
    make_coordinators(rig)
    assert TxnProducer(rig, "a", timeout_ms=5_000).init() is ErrorCode.NONE
    too_long = TxnProducer(rig, "b", timeout_ms=5_001).init()
    assert too_long is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_topic_that_names_no_factor_gets_that_of_the_node() -> None:
    """A default above the number of brokers is refused as if the request had named it."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=-1)
    for factor, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_REPLICATION_FACTOR)):
        rig = Rig(default_replication_factor=factor)
        answer = rig.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert ErrorCode(answer.topics[0].error_code) is code


def cleanings(caplog: pytest.LogCaptureFixture, within_ms: int = 20_000, **settings: Any) -> int:
    """Return how often a partition with many keys is compacted until no dirty records are left."""
    caplog.clear()
    rig = Rig(None, log_cleaner_min_cleanable_ratio=0, **settings)
    rig.disk.now_ms = rig.clock.now_ms()
    rig.create("c", cleanup_policy="compact", segment_bytes="50000")
    for first in range(0, 2 * KEY_COUNT, 500):
        keys = (b"%d" % (number % KEY_COUNT) for number in range(first, first + 500))
        batch = build_batch([NewRecord(key, b"v", rig.clock.now_ms()) for key in keys])
        rig.ask(produce_request("c", batch), 9)
    settle(rig)
    log = rig.broker.parts.replicas.find("c", 0).log

    with caplog.at_level(logging.INFO, "broker.replicas.cleaning"):
        rig.advance(CLEANER_MS + 1)
        end_ms = rig.clock.monotonic_ms() + within_ms
        while rig.clock.monotonic_ms() < end_ms:
            rig.world.run_for(5)
            if log.cleaned_offset >= log.segments.active.base_offset:
                break
    return sum(record.getMessage() == "compacted a log" for record in caplog.records)


def test_a_cleaning_takes_as_many_keys_as_the_node_gives_it_memory_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert cleanings(caplog) == 1
    assert cleanings(caplog, log_cleaner_dedupe_buffer_size=1 << 20) > 1


def test_nothing_is_cleaned_where_the_node_does_not_want_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert cleanings(caplog, 1_000, log_cleaner_enable=False) == 0


@pytest.mark.parametrize("interval_ms", [250, 5_000])
def test_records_of_the_page_cache_are_looked_at_as_often_as_the_node_says(
    interval_ms: int,
) -> None:
    """The records are due for a sync after a millisecond, but the next check comes only after the
    interval."""
    rig = Rig(log_flush_interval_messages=1_000, log_flush_scheduler_interval_ms=interval_ms)
    rig.create("t", flush_ms="1")
    rig.send(produce_request("t", build_batch([NewRecord(None, b"v", rig.clock.now_ms())])), 9)
    rig.advance(interval_ms - 1)
    assert not rig.flusher.marked
    rig.advance(1)
    assert list(rig.flusher.marked) == [rig.broker.parts.replicas.find("t", 0).log]


@pytest.mark.parametrize("interval_ms", [2_000, 500_000])
def test_expired_transactional_ids_go_as_often_as_the_node_looks(
    interval_ms: int,
) -> None:
    rig = Rig(
        transactional_id_expiration_ms=1_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=interval_ms,
    )
    make_coordinators(rig)
    assert TxnProducer(rig, "a").init() is ErrorCode.NONE
    settle(rig)

    def is_known() -> bool:
        settle(rig)
        answer = rig.ask(DescribeTransactionsRequest(transactional_ids=["a"]), 0)
        code = ErrorCode(answer.transaction_states[0].error_code)
        assert code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return code is ErrorCode.NONE

    rig.advance(interval_ms - 1)
    assert is_known()
    rig.advance(1)
    assert not is_known()
