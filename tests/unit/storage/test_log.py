"""Operations of one log: append, write, read, roll, flush, truncate."""

from __future__ import annotations

import pytest

from broker.storage.log_cleaning import plan_cleaning
from broker.storage.segment import Segment
from broker.storage.segments import WARM_SEGMENTS_MAX
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import check_crc, iterate_batches, read_header
from tests.unit.storage.kit import (
    EVERYTHING,
    NOW,
    Node,
    batch,
    batches_of,
    records_of,
    retain,
    values_of,
)

SMALL = {"segment.bytes": "400"}


def many(node: Node, count: int, size: int = 50) -> None:
    for number in range(count):
        node.put(batch(b"%06d" % number * (size // 6)))


def test_batches_get_consecutive_offsets_and_the_leaders_epoch() -> None:
    node = Node()
    first, second = node.put(batch(b"a", b"b", b"c"), batch(b"d"), leader_epoch=4)
    assert (first.base_offset, first.last_offset, first.is_duplicate) == (0, 2, False)
    assert (second.base_offset, second.last_offset) == (3, 3)
    assert node.log.log_end_offset == 4
    stored = batches_of(node.log)
    assert [read_header(one).partition_leader_epoch for one in stored] == [4, 4]
    assert all(check_crc(one) for one in stored)
    assert [record.offset for record in records_of(node.log)] == [0, 1, 2, 3]


def test_what_is_staged_is_not_readable_yet() -> None:
    node = Node()
    view = batch(b"a")
    node.log.append(view, read_header(view), 0, NOW)
    assert node.log.log_end_offset == 1
    assert node.log.read(0, EVERYTHING, EVERYTHING).region is None
    node.log.write_staged(NOW)
    assert values_of(node.log) == [b"a"]


def test_everything_staged_leaves_with_one_write() -> None:
    node = Node()
    node.put(batch(b"first"))
    for number in range(20):
        view = batch(b"%d" % number)
        node.log.append(view, read_header(view), 0, NOW)
    before = node.sim.calls
    node.log.write_staged(NOW)
    assert node.sim.calls == before + 1
    node.log.write_staged(NOW)
    assert node.sim.calls == before + 1


def test_a_refused_batch_changes_nothing() -> None:
    node = Node()
    view = batch(b"a")
    view[-1] ^= 1
    with pytest.raises(ApiError):
        node.put(view)
    assert (node.log.log_end_offset, node.log.size_bytes) == (0, 0)


def test_an_older_leader_may_not_append() -> None:
    node = Node()
    node.put(batch(b"a"), leader_epoch=3)
    with pytest.raises(ApiError) as refusal:
        node.put(batch(b"b"), leader_epoch=2)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_retry_is_answered_with_the_first_offset_and_not_written() -> None:
    node = Node()
    node.put(batch(b"x"), batch(b"a", b"b", producer=(7, 0, 0)))
    (again,) = node.put(batch(b"a", b"b", producer=(7, 0, 0)))
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (1, 2, True)
    assert node.log.log_end_offset == 3
    with pytest.raises(ApiError) as refusal:
        node.put(batch(b"e", producer=(7, 0, 5)))
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_behind_its_first_copy_in_one_read_is_recognised() -> None:
    node = Node()
    first, again = node.put(batch(b"a", producer=(7, 0, 0)), batch(b"a", producer=(7, 0, 0)))
    assert again.is_duplicate
    assert again.base_offset == first.base_offset
    assert values_of(node.log) == [b"a"]


def test_a_topic_can_stamp_records_itself() -> None:
    node = Node(topic={"message.timestamp.type": "LogAppendTime"})
    (done,) = node.put(batch(b"a", b"b", timestamp_ms=5, producer=(7, 0, 0)), now_ms=NOW + 9)
    assert done.log_append_time_ms == NOW + 9
    assert [record.timestamp_ms for record in records_of(node.log)] == [NOW + 9] * 2
    assert all(check_crc(one) for one in batches_of(node.log))
    (again,) = node.put(batch(b"a", b"b", timestamp_ms=5, producer=(7, 0, 0)), now_ms=NOW + 50)
    assert again.log_append_time_ms == NOW + 9


def test_a_full_segment_rolls() -> None:
    node = Node(topic=SMALL)
    many(node, 12)
    assert node.log.segments.roll_count > 2
    assert len(values_of(node.log)) == 12
    node.log.close()
    sizes = [len(node.sim.contents(node.path(n))) for n in node.names() if n.endswith(".log")]
    assert all(size <= 400 for size in sizes)
    assert sum(sizes) == node.log.size_bytes


def test_one_write_may_roll_several_times() -> None:
    node = Node(topic=SMALL)
    done = node.put(*[batch(b"%02d" % number * 60) for number in range(10)])
    assert [one.base_offset for one in done] == list(range(10))
    assert node.log.segments.roll_count == 4
    assert values_of(node.log) == [b"%02d" % number * 60 for number in range(10)]
    assert node.flush() == 10


def test_records_that_span_too_much_time_roll() -> None:
    node = Node(topic={"segment.ms": "1000"})
    node.put(batch(b"a", timestamp_ms=NOW), batch(b"b", timestamp_ms=NOW + 1000))
    assert node.log.segments.roll_count == 0
    node.put(batch(b"c", timestamp_ms=NOW + 1001), batch(b"d", timestamp_ms=NOW + 2001))
    assert node.log.segments.roll_count == 1
    assert values_of(node.log) == [b"a", b"b", b"c", b"d"]


def test_records_without_time_roll_by_the_segments_age() -> None:
    node = Node(topic={"segment.ms": "1000"})
    node.put(batch(b"a", timestamp_ms=-1))
    node.put(batch(b"b", timestamp_ms=-1), now_ms=NOW + 1000)
    assert node.log.segments.roll_count == 0
    node.put(batch(b"c", timestamp_ms=-1), now_ms=NOW + 1001)
    assert node.log.segments.roll_count == 1


def test_a_full_index_rolls() -> None:
    node = Node(topic={"index.interval.bytes": "0", "segment.index.bytes": "40"})
    many(node, 20)
    assert node.log.segments.roll_count == 3
    for name in node.names():
        if name.endswith("index"):
            assert len(node.sim.contents(node.path(name))) <= 40
    assert len(values_of(node.log)) == 20


@pytest.mark.parametrize("topic", [{}, SMALL])
def test_every_offset_can_be_read_from(topic: dict[str, str]) -> None:
    node = Node({"log.index.interval.bytes": 100}, topic=topic)
    for number in range(30):
        node.put(batch(b"%d" % number, b"and", b"more"))
    everything = batches_of(node.log)
    for offset in range(90):
        region = node.log.read(offset, EVERYTHING, EVERYTHING).region
        assert region is not None
        head = read_header(region.read())
        assert head.base_offset <= offset <= head.last_offset
        assert batches_of(node.log, offset) == everything[offset // 3 :]


@pytest.mark.parametrize("max_bytes", [0, 1, 70, 100, 213, 500, 2000])
def test_a_read_returns_whole_batches_and_at_least_one(max_bytes: int) -> None:
    """Pitfall 22: the first batch is returned even if it is larger than `max_bytes`."""
    node = Node({"log.index.interval.bytes": 150})
    many(node, 40)
    everything = batches_of(node.log)
    assert batches_of(node.log, max_bytes=max_bytes) == everything
    for offset in range(40):
        read = node.log.read(offset, max_bytes, EVERYTHING)
        assert read.region is not None
        assert read.size_bytes == len(read.region) == len(read.region.read())
        assert read.size_bytes <= max(max_bytes, len(everything[offset]))
        without = node.log.read(offset, max_bytes, EVERYTHING, min_one_batch=False)
        assert without.size_bytes <= max_bytes
        assert without.size_bytes == (read.size_bytes if read.size_bytes <= max_bytes else 0)


def test_a_read_stops_at_its_limit() -> None:
    node = Node(topic=SMALL)
    many(node, 12)
    for limit in range(13):
        offset = 0
        while (region := node.log.read(offset, EVERYTHING, limit).region) is not None:
            offset = max(header.last_offset for header, _ in iterate_batches(region.read())) + 1
        assert offset == limit


@pytest.mark.parametrize("offset", [-1, 13, 1000])
def test_offsets_outside_of_the_log_are_refused(offset: int) -> None:
    node = Node()
    many(node, 12)
    with pytest.raises(ApiError) as refusal:
        node.log.read(offset, EVERYTHING, EVERYTHING)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert node.log.read(12, EVERYTHING, EVERYTHING).region is None


def test_a_region_outlives_its_segment() -> None:
    node = Node(topic={**SMALL, "retention.bytes": "0"})
    many(node, 12)
    region = node.log.read(0, EVERYTHING, EVERYTHING).region
    assert region is not None
    before = region.read()
    node.flush()
    dropped = retain(node, NOW)
    assert dropped is not None
    dropped.perform()
    assert region.read() == before


def test_the_log_start_moves_and_hides_what_is_below() -> None:
    node = Node()
    many(node, 10)
    node.flush()
    node.log.advance_log_start(4)
    assert node.log.log_start_offset == 4
    with pytest.raises(ApiError):
        node.log.read(3, EVERYTHING, EVERYTHING)
    with pytest.raises(ApiError):
        node.log.advance_log_start(11)
    node.restart()
    assert node.log.log_start_offset == 4


def test_a_flush_moves_the_recovery_point_to_what_was_written_when_it_began() -> None:
    node = Node(topic=SMALL)
    many(node, 5)
    target = node.log.flush_target()
    assert target is not None
    many(node, 5)
    target.perform()
    assert node.log.flushed(target) == 5
    assert node.log.is_flush_due(NOW)
    assert node.flush() == 10
    assert node.log.flush_target() is None
    assert not node.log.is_flush_due(NOW)
    assert node.log.high_watermark == 10


def test_a_flush_is_due_by_count_or_by_time() -> None:
    node = Node(topic={"flush.messages": "3", "flush.ms": "500"})
    node.put(batch(b"a"))
    assert not node.log.is_flush_due(NOW + 499)
    assert node.log.is_flush_due(NOW + 500)
    node.put(batch(b"b", b"c"))
    assert node.log.is_flush_due(NOW)


def test_the_high_watermark_stays_within_what_is_written_and_never_falls() -> None:
    node = Node()
    many(node, 3)
    node.log.advance_high_watermark(100)
    assert node.log.high_watermark == 3
    node.log.advance_high_watermark(1)
    assert node.log.high_watermark == 3


@pytest.mark.parametrize("offset", range(14))
def test_truncation_keeps_everything_below(offset: int) -> None:
    node = Node(topic=SMALL)
    for number in range(12):
        node.put(batch(b"%d" % number * 30, producer=(7, 0, number)), leader_epoch=number // 4)
    node.flush()
    everything = values_of(node.log)
    node.truncate(offset)
    left = min(offset, 12)
    assert values_of(node.log) == everything[:left]
    assert node.log.recovery_point == node.log.high_watermark == node.log.log_end_offset == left
    assert node.log.leader_epochs.latest == ((left - 1) // 4 if left else -1)
    node.put(batch(b"more", producer=(7, 0, left)), leader_epoch=9)
    assert values_of(node.log) == [*everything[:left], b"more"]
    node.flush()
    node.restart()
    assert values_of(node.log) == [*everything[:left], b"more"]


def test_truncation_within_a_batch_takes_the_whole_batch() -> None:
    node = Node()
    node.put(batch(b"a", b"b"), batch(b"c", b"d", b"e"))
    node.flush()
    node.truncate(4)
    assert node.log.log_end_offset == 2


def test_a_truncation_waits_for_the_flush_under_way() -> None:
    node = Node()
    many(node, 5)
    target = node.log.flush_target()
    assert target is not None
    with pytest.raises(AssertionError, match="flush under way"):
        node.truncate(2)
    target.perform()
    node.log.flushed(target)
    node.truncate(2)
    assert node.log.recovery_point == 2


def test_an_epoch_ends_at_the_log_end_or_where_the_next_began() -> None:
    node = Node()
    node.put(batch(b"a", b"b"), leader_epoch=1)
    node.put(batch(b"c"), leader_epoch=3)
    assert node.log.end_offset_for_epoch(1, 3) == (1, 2)
    assert node.log.end_offset_for_epoch(2, 3) == (1, 2)
    assert node.log.end_offset_for_epoch(3, 3) == (3, 3)
    assert node.log.end_offset_for_epoch(4, 3) == (-1, -1)


def test_own_batches_are_not_held_to_the_rules_for_clients() -> None:
    node = Node(topic={"cleanup.policy": "compact"})
    with pytest.raises(ApiError) as refusal:
        node.put(batch(b"a"))
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    view = batch(b"a")
    node.log.append_own(view, read_header(view), 0, NOW)
    node.log.write_staged(NOW)
    assert values_of(node.log) == [b"a"]


def test_reading_old_segments_leaves_few_files_open() -> None:
    node = Node(topic=SMALL)
    many(node, 60)
    for offset in range(60):
        node.log.read(offset, EVERYTHING, EVERYTHING)
    node.log.offset_for_timestamp(NOW, EVERYTHING)
    node.log.max_timestamp_record(EVERYTHING)
    assert len(node.log.segments) > 10
    assert sum(one.is_loaded for one in node.log.segments) <= WARM_SEGMENTS_MAX + 1
    assert values_of(node.log, 30) == values_of(node.log)[30:]


def test_a_flush_and_a_committed_read_look_only_at_segments_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(topic=SMALL)
    many(node, 60)
    node.flush()
    node.put(batch(b"a", producer=(7, 0, 0), is_transactional=True))
    node.log.append_marker(7, 0, False, 0, 0, NOW)
    node.log.write_staged(NOW)
    asked: list[Segment] = []
    monkeypatch.setattr(Segment, "is_loaded", property(asked.append))
    assert node.log.flush_target() is not None
    assert len(node.log.aborted_transactions(60, 62)) == 1
    assert len(asked) <= 4 < len(node.log.segments)


def test_a_plan_for_a_cleaning_leaves_few_transaction_indexes_in_memory() -> None:
    node = Node(topic={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for number in range(30):
        view = batch(b"a" * 100, key=b"k", producer=(7, 0, number), is_transactional=True)
        node.put(view)
        node.log.append_marker(7, 0, False, 0, 0, NOW)
        node.log.write_staged(NOW)
    node.flush()
    assert len(node.log.segments) > 10
    assert plan_cleaning(node.log, NOW, 1 << 20) is not None
    assert sum(one.is_loaded for one in node.log.segments) <= WARM_SEGMENTS_MAX + 1


def test_readers_of_old_segments_do_not_take_each_others_indexes_away() -> None:
    """The indexes of a segment that is read all the time stay loaded, while many others are read
    once."""
    node = Node({"log.index.interval.bytes": 100}, topic=SMALL)
    many(node, 60)
    bases = [segment.base_offset for segment in node.log.segments.closed()]
    assert len(bases) > 15
    opened: list[str] = []

    def noted(path: str, operation: str) -> bool:
        if operation == "open":
            opened.append(path)
        return False

    node.sim.refuses = noted
    for _ in range(5):
        for base_offset in bases[:3]:
            node.log.read(base_offset + 1, 1, EVERYTHING)
    assert len(opened) == len(set(opened)) == 6
    for base_offset in bases[3:]:
        for reader in (bases[0], bases[1], base_offset):
            node.log.read(reader + 1, 1, EVERYTHING)
    assert len(opened) == len(set(opened)) == 2 * len(bases)


def test_a_segment_that_is_read_stays_loaded_while_older_ones_are_dropped() -> None:
    node = Node(topic={**SMALL, "retention.bytes": "1200"})
    many(node, 30)
    node.flush()
    held = node.log.segments.closed()[-2]
    node.log.read(held.base_offset, 1, EVERYTHING)
    assert retain(node, NOW) is not None
    node.log.max_timestamp_record(EVERYTHING)
    assert held.is_loaded


@pytest.mark.parametrize("damage", [None, b"", b"odd", b"\xff" * 24])
def test_an_index_lost_while_the_broker_runs_is_rebuilt(damage: bytes | None) -> None:
    node = Node({"log.index.interval.bytes": 100}, topic=SMALL)
    many(node, 60)
    stamps = node.log.offset_for_timestamp(NOW, EVERYTHING)
    for name in node.names():
        if name.endswith("index"):
            if damage is None:
                node.disk.unlink(node.path(name))
            else:
                node.sim.contents(node.path(name))[:] = damage
    for offset in range(60):
        region = node.log.read(offset, EVERYTHING, EVERYTHING).region
        assert region is not None
        assert read_header(region.read()).base_offset == offset
    assert node.log.offset_for_timestamp(NOW, EVERYTHING) == stamps
    assert node.log.offset_for_timestamp(NOW + 1, EVERYTHING) is None
