"""ListOffsets by time: searches are spread over turns of the loop, and everything else is answered
immediately."""

import random
from collections.abc import Iterator

import pytest

from broker.storage.log import Log
from broker.storage.lookup import TimestampOffset
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.topics import DeleteTopicsRequest
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, NO_OFFSET
from protocol.wire.compression import Codec
from protocol.wire.records import HEADER_BYTES, stamp_max_timestamp
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import NOW

PARTITIONS = 6
SEARCH_NS = 15_000_000


class Searches:
    """Records each search of a log and the turn of the loop in which it ran. Each search takes some
    time."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[int] = []
        """The number of the turn of each search."""
        self.logs: list[Log] = []
        self._world = rig.world
        self._world.look_ns = 0
        self._turn = 0
        search = Log.offset_for_timestamp

        def slow(log: Log, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
            self.turns.append(self._turn)
            self.logs.append(log)
            self._world.ns += SEARCH_NS
            return search(log, timestamp_ms, limit_offset)

        monkeypatch.setattr(Log, "offset_for_timestamp", slow)
        self._count()

    def _count(self) -> None:
        self._turn += 1
        self._world.soon(self._count)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("t", PARTITIONS)
    for index in range(PARTITIONS):
        batch = batch_of([b"a", b"b"], timestamp_ms=NOW)
        rig.ask(produce_request("t", batch, partition=index), 9)
    yield rig


def listed(*timestamps: int) -> ListOffsetsRequest:
    """Return a ListOffsets request with one timestamp for each partition."""
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index, timestamp in enumerate(timestamps)
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)]
    )


def settle(rig: Rig) -> None:
    for _ in range(PARTITIONS):
        rig.turn()


def test_a_turn_ends_after_twenty_milliseconds_of_searching(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Searches(rig, monkeypatch)
    asked = rig.send(listed(*[NOW + 1] * PARTITIONS), 7)
    settle(rig)
    assert [one.offset for one in asked.answer.topics[0].partitions] == [1] * PARTITIONS
    # The second search ends after the time of its turn, so no turn has a third search.
    counts = [searches.turns.count(turn) for turn in sorted(set(searches.turns))]
    assert counts == [2] * (PARTITIONS // 2)


def test_requests_take_turns_with_each_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(rig, monkeypatch)
    long = rig.send(listed(*[NOW] * PARTITIONS), 7)
    short = rig.send(listed(NOW), 7)
    while not short.is_answered():
        rig.turn()
    assert not long.is_answered()
    settle(rig)
    assert long.is_answered()
    # The searches of both requests share the time of a turn.
    assert max(searches.turns.count(turn) for turn in searches.turns) == 2


def test_the_ends_of_logs_are_told_at_once_and_in_their_place(rig: Rig) -> None:
    ends = rig.send(listed(EARLIEST_TIMESTAMP, LATEST_TIMESTAMP), 7)
    assert [one.offset for one in ends.answer.topics[0].partitions] == [0, 2]
    mixed = rig.send(listed(LATEST_TIMESTAMP, NOW + 1, EARLIEST_TIMESTAMP, MAX_TIMESTAMP), 7)
    assert not mixed.is_answered()
    settle(rig)
    parts = mixed.answer.topics[0].partitions
    assert [(one.partition_index, one.offset) for one in parts] == [(0, 2), (1, 1), (2, 0), (3, 1)]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_empty_log_has_the_current_epoch(*, is_deleted: bool) -> None:
    """Kafka records an epoch when it begins, and not with its first record."""
    rig = Rig()
    rig.create("t")
    if is_deleted:
        rig.ask(produce_request("t", batch_of([b"a"], timestamp_ms=NOW)), 9)
    rig.power_cut(random.Random(1))
    partition = rig.broker.parts.replicas.find("t", 0)
    log, epoch = partition.log, partition.leader_epoch
    assert epoch > 0
    log.advance_log_start(int(is_deleted))
    assert log.log_start_offset == log.log_end_offset == int(is_deleted)
    for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        (part,) = rig.ask(listed(timestamp), 7).topics[0].partitions
        assert part.leader_epoch == epoch
    ours = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    asked = OffsetForLeaderTopic(topic="t", partitions=[ours])
    answer = rig.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4)
    (found,) = answer.topics[0].partitions
    assert (found.leader_epoch, found.end_offset) == (epoch, log.log_end_offset)


def test_a_batch_that_nobody_can_decode_can_be_got_past(rig: Rig) -> None:
    """Decision 0015: the broker validated only the header of the batch, so no client can decode
    it."""
    damaged = batch_of([b"b" * 100], timestamp_ms=NOW + 10, codec=Codec.GZIP)
    damaged[HEADER_BYTES:] = bytes(len(damaged) - HEADER_BYTES)
    stamp_max_timestamp(damaged, NOW + 10)
    for one in (damaged, batch_of([b"c"], timestamp_ms=NOW + 20)):
        answer = rig.ask(produce_request("t", one), 9).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE
    # A retriable error would make clients repeat the request for ever.
    (part,) = rig.ask(listed(NOW + 10), 7).topics[0].partitions
    assert (part.error_code, part.offset, part.timestamp) == (ErrorCode.NONE, 2, NOW + 10)
    (part,) = rig.ask(listed(NOW + 20), 7).topics[0].partitions
    assert (part.error_code, part.offset) == (ErrorCode.NONE, 3)
    rig.broker.parts.replicas.find("t", 0).log.advance_log_start(3)
    (part,) = rig.ask(listed(NOW + 10), 7).topics[0].partitions
    assert (part.error_code, part.offset) == (ErrorCode.NONE, 3)


def test_a_search_that_meets_damage_is_no_answer_that_nothing_is_there(rig: Rig) -> None:
    replica = rig.broker.parts.replicas.find("t", 0)
    rig.disk.contents(replica.log.segments.active.log_path)[HEADER_BYTES] ^= 0x7F
    (part,) = rig.ask(listed(NOW), 7).topics[0].partitions
    assert (part.error_code, part.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, NO_OFFSET)
    assert list(rig.broker.parts.replicas.damaged) == [replica]


def test_nobody_searches_for_a_client_that_has_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Searches(rig, monkeypatch)
    gone = rig.send(listed(*[NOW] * PARTITIONS), 7)
    stays = rig.send(listed(NOW), 7)
    gone.session.is_closed = True
    settle(rig)
    assert stays.is_answered()
    assert not gone.is_answered()
    assert len(searches.logs) == 1


def test_a_topic_deleted_before_its_turn_is_unknown(rig: Rig) -> None:
    asked = rig.send(listed(NOW), 7)
    rig.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    rig.flusher.sync()
    settle(rig)
    (part,) = asked.answer.topics[0].partitions
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
