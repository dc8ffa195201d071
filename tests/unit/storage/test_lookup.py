"""Searches by timestamp return exactly the record that a full search finds."""

from __future__ import annotations

from struct import pack_into

import pytest

from broker.storage.errors import CorruptionError
from broker.storage.lookup import TimestampOffset
from protocol.wire.crc32c import crc32c
from protocol.wire.record import RUN_RECORDS
from protocol.wire.records import HEADER_BYTES, Codec
from tests.harness.seed import seeded
from tests.unit.storage.kit import EVERYTHING, NOW, Node, batch, batches_of, records_of


def first_by_hand(node: Node, timestamp_ms: int, limit: int) -> tuple[int, int] | None:
    for record in records_of(node.log):
        if record.timestamp_ms >= timestamp_ms and record.offset >= node.log.log_start_offset:
            return (record.offset, record.timestamp_ms) if record.offset < limit else None
    return None


def largest_by_hand(node: Node, limit: int) -> tuple[int, int] | None:
    inside = [
        record
        for record in records_of(node.log)
        if node.log.log_start_offset <= record.offset < limit and record.timestamp_ms >= 0
    ]
    best = max(inside, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
    return (best.offset, best.timestamp_ms) if best else None


def pair(found: TimestampOffset | None) -> tuple[int, int] | None:
    return (found.offset, found.timestamp_ms) if found else None


def test_an_empty_log_has_no_record_of_any_time() -> None:
    node = Node()
    assert node.log.offset_for_timestamp(0, EVERYTHING) is None
    assert node.log.max_timestamp_record(EVERYTHING) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_record_is_found_inside_its_batch(codec: Codec) -> None:
    node = Node()
    node.put(batch(b"a", b"b", b"c", timestamps=[NOW, NOW + 10, NOW + 5], codec=codec))
    node.put(batch(b"d", b"e", timestamps=[NOW + 7, NOW + 10], codec=codec), leader_epoch=2)
    found = [node.log.offset_for_timestamp(NOW + at, EVERYTHING) for at in (-1, 0, 1, 10, 11)]
    assert [pair(one) for one in found] == [(0, NOW), (0, NOW), (1, NOW + 10), (1, NOW + 10), None]
    assert node.log.max_timestamp_record(EVERYTHING) == TimestampOffset(1, NOW + 10, 0)
    node.put(batch(b"f", timestamp_ms=NOW + 20, codec=codec), leader_epoch=3)
    assert node.log.offset_for_timestamp(NOW + 11, EVERYTHING) == TimestampOffset(5, NOW + 20, 3)


def test_what_lies_beyond_the_limit_is_not_found() -> None:
    node = Node()
    node.put(batch(b"a", b"b", timestamps=[NOW, NOW + 10]), batch(b"c", timestamp_ms=NOW + 20))
    assert pair(node.log.offset_for_timestamp(NOW + 10, 2)) == (1, NOW + 10)
    assert node.log.offset_for_timestamp(NOW + 11, 2) is None
    assert pair(node.log.max_timestamp_record(2)) == (1, NOW + 10)
    assert node.log.max_timestamp_record(0) is None


def test_what_lies_below_the_log_start_is_not_found() -> None:
    node = Node()
    node.put(batch(b"a", b"b", timestamps=[NOW + 50, NOW]), batch(b"c", timestamp_ms=NOW + 20))
    node.flush()
    node.log.advance_log_start(1)
    assert pair(node.log.offset_for_timestamp(NOW, EVERYTHING)) == (1, NOW)
    assert pair(node.log.offset_for_timestamp(NOW + 1, EVERYTHING)) == (2, NOW + 20)
    assert pair(node.log.max_timestamp_record(EVERYTHING)) == (2, NOW + 20)


def test_records_stamped_by_the_log_have_the_time_of_their_batch() -> None:
    node = Node(topic={"message.timestamp.type": "LogAppendTime"})
    node.put(batch(b"a", b"b", timestamp_ms=1), now_ms=NOW)
    node.put(batch(b"c", timestamp_ms=1), now_ms=NOW + 5)
    assert pair(node.log.offset_for_timestamp(NOW, EVERYTHING)) == (0, NOW)
    assert pair(node.log.offset_for_timestamp(NOW + 1, EVERYTHING)) == (2, NOW + 5)
    assert pair(node.log.max_timestamp_record(EVERYTHING)) == (2, NOW + 5)


def test_records_without_time_are_passed_over() -> None:
    node = Node()
    node.put(batch(b"a", timestamp_ms=-1))
    assert node.log.max_timestamp_record(EVERYTHING) is None
    assert node.log.offset_for_timestamp(0, EVERYTHING) is None
    node.put(batch(b"b", timestamp_ms=NOW))
    assert pair(node.log.offset_for_timestamp(0, EVERYTHING)) == (1, NOW)


def test_any_time_and_limit_agree_with_a_search_through_everything() -> None:
    """Pitfalls 10 and 11: the search finds the exact record, and finds nothing if all records are
    older."""
    chance = seeded("any time and limit")
    node = Node({"log.index.interval.bytes": 200}, topic={"segment.bytes": "1500"})
    for _ in range(80):
        stamps = [NOW + chance.randint(0, 60) * 10 for _ in range(chance.randint(1, 4))]
        node.put(batch(*[b"v" * chance.randint(0, 60)] * len(stamps), timestamps=stamps))
    node.flush()
    node.log.advance_log_start(chance.randint(0, 20))
    assert len(batches_of(node.log)) > 50
    for again in range(3):
        for _ in range(60):
            at = NOW + chance.randint(-5, 620)
            limit = chance.randint(0, node.log.log_end_offset + 3)
            found = node.log.offset_for_timestamp(at, limit)
            assert pair(found) == first_by_hand(node, at, limit), (again, at, limit)
            assert pair(node.log.max_timestamp_record(limit)) == largest_by_hand(node, limit)
        node.log.advance_log_start(chance.randint(node.log.log_start_offset, 60))
        node.restart()


def test_the_newest_record_between_any_start_and_limit_of_one_segment() -> None:
    chance = seeded("any start and limit of one segment")
    for _ in range(20):
        node = Node({"log.index.interval.bytes": chance.choice([0, 150, 400])})
        spread = chance.choice([1, 5, 60])
        for number in range(60):
            stamps = [
                max(NOW * chance.choice([0, 1, 1]) + number + chance.randint(-spread, spread), -1)
                for _ in range(chance.randint(1, 3))
            ]
            node.put(batch(*[b"v" * chance.randint(0, 60)] * len(stamps), timestamps=stamps))
        node.flush()
        for start in sorted(chance.sample(range(100), 8)):
            node.log.advance_log_start(min(start, node.log.high_watermark))
            for limit in range(node.log.log_end_offset + 2):
                found = node.log.max_timestamp_record(limit)
                assert pair(found) == largest_by_hand(node, limit), (start, limit)
            if chance.random() < 0.3:
                node.restart()


@pytest.mark.parametrize("order", ["rising", "falling", "level", "newest in the middle"])
def test_the_newest_record_below_a_limit_costs_the_same_in_any_part_of_a_segment(
    order: str,
) -> None:
    node = Node()
    count = 60
    stamps = {
        "rising": list(range(count)),
        "falling": list(range(count, 0, -1)),
        "level": [5] * count,
        "newest in the middle": [*range(count // 2), count, *range(count // 2 - 1)],
    }[order]
    for stamp in stamps:
        node.put(batch(b"x" * 65_000, timestamp_ms=NOW + stamp))
    reads = [0]

    def counted(path: str, operation: str) -> bool:
        reads[0] += operation == "read" and path.endswith(".log")
        return False

    for limit in (count, count - 1, count // 2 + 2, 7):
        node.sim.refuses = None
        expected = largest_by_hand(node, limit)
        node.sim.refuses, reads[0] = counted, 0
        assert pair(node.log.max_timestamp_record(limit)) == expected
        assert reads[0] <= 5, limit


@pytest.mark.parametrize("length", [16 << 20, 100_000, 1_000])
def test_a_batch_that_ends_behind_its_segment_is_damage(length: int) -> None:
    """A response that announces more bytes than the file has would never be complete."""
    node = Node(topic={"flush.messages": str(2**63 - 1)})
    for number in range(3):
        node.put(batch(b"%d" % number * 100))
    second = node.log.segments.active.locate(1)
    node.sim.contents(node.segment_path())[second + 8 : second + 12] = length.to_bytes(4, "big")
    for max_bytes in (0, 100, 1_000, 1 << 30):
        node.log.segments.active._marks.clear()
        with pytest.raises(CorruptionError):
            node.log.read(1, max_bytes, 2)
    with pytest.raises(CorruptionError):
        node.log.read(2, 1_000, 3)


def test_a_batch_whose_header_has_no_time_is_found_by_its_records() -> None:
    node = Node()
    view = batch(b"a", b"b", timestamps=[NOW, NOW + 10])
    pack_into(">q", view, 35, -1)
    pack_into(">I", view, 17, crc32c(view[21:]))
    node.put(view)
    found = node.log.offset_for_timestamp(NOW + 1, EVERYTHING)
    assert found == node.log.max_timestamp_record(EVERYTHING) == TimestampOffset(1, NOW + 10, 0)
    assert node.log.segments.active.largest_timestamp_ms == NOW + 10


def unreadable(view: memoryview, first_byte: int) -> memoryview:
    """Replace the batch from `first_byte` on by bytes that no codec can decompress. The CRC stays
    right, because a client can have sent such a batch."""
    view[first_byte:] = b"\xff" * (len(view) - first_byte)
    pack_into(">I", view, 17, crc32c(view[21:]))
    return view


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_an_unreadable_batch_is_found_by_its_header(codec: Codec) -> None:
    """Decision 0015: a search by time must not skip a batch that can have a record of that time."""
    node = Node()
    stamps = [NOW, NOW + 10, NOW + 20]
    node.put(batch(b"a", b"b", b"c", timestamps=stamps, codec=codec))
    node.put(unreadable(batch(b"d", b"e", b"f", timestamps=stamps, codec=codec), HEADER_BYTES))
    node.put(batch(b"g", timestamp_ms=NOW + 30, codec=codec))
    node.flush()

    def found_at(start: int, limit: int) -> list[tuple[int, int] | None]:
        node.log.advance_log_start(start)
        found = [node.log.offset_for_timestamp(NOW + at, limit) for at in (10, 11, 21)]
        return [pair(one) for one in (*found, node.log.max_timestamp_record(limit))]

    hidden, last = (3, NOW + 20), (6, NOW + 30)
    assert found_at(0, 7) == [(1, NOW + 10), (2, NOW + 20), last, last]
    assert found_at(3, 7) == [hidden, hidden, last, last]
    assert found_at(3, 6) == [hidden, hidden, None, hidden]
    # The log start can be within the unreadable batch.
    within = (5, NOW + 20)
    assert found_at(5, 7) == [within, within, last, last]
    assert found_at(5, 6) == [within, within, None, within]
    assert found_at(6, 7) == [last, last, last, last]


def test_the_records_before_the_place_that_cannot_be_read_are_known() -> None:
    node = Node()
    stamps = [NOW + number for number in range(3 * RUN_RECORDS)]
    view = batch(*[b"v"] * len(stamps), timestamps=stamps)
    node.put(unreadable(view, len(view) - 10))
    for offset in (0, 1, RUN_RECORDS, 2 * RUN_RECORDS - 1):
        assert pair(node.log.offset_for_timestamp(NOW + offset, EVERYTHING)) == (
            offset,
            NOW + offset,
        )
    for offset in (2 * RUN_RECORDS, len(stamps) - 1):
        assert pair(node.log.offset_for_timestamp(NOW + offset, EVERYTHING)) == (
            2 * RUN_RECORDS,
            stamps[-1],
        )
    assert node.log.offset_for_timestamp(stamps[-1] + 1, EVERYTHING) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_search_that_meets_damage_says_so(codec: Codec) -> None:
    """The disk, not the client, has changed these bytes. So the header can be damaged as well, and
    the search must not trust it."""
    node = Node()
    for number in range(3):
        node.put(batch(b"x" * 50, timestamp_ms=NOW + number, codec=codec))
    second = node.log.segments.active.locate(1)
    contents = node.sim.contents(node.segment_path())
    contents[second + HEADER_BYTES : second + HEADER_BYTES + 8] = b"\xff" * 8
    with pytest.raises(CorruptionError):
        node.log.offset_for_timestamp(NOW + 1, EVERYTHING)
    with pytest.raises(CorruptionError):
        node.log.max_timestamp_record(2)
    # The search can skip the damaged batch by its header.
    assert pair(node.log.offset_for_timestamp(NOW + 2, EVERYTHING)) == (2, NOW + 2)


@pytest.mark.parametrize("at", [8, 16], ids=["length", "magic"])
def test_a_search_gets_past_no_header_that_cannot_be_read(at: int) -> None:
    node = Node(topic={"segment.bytes": "400"})
    for number in range(4):
        node.put(batch(b"x" * 50, timestamp_ms=NOW + number))
    first, last = node.log.segments
    assert last.base_offset == 3
    second = first.locate(1)
    node.sim.contents(node.segment_path())[second + at] = 0x7F
    for timestamp_ms in (NOW + 1, NOW + 2):
        with pytest.raises(CorruptionError):
            node.log.offset_for_timestamp(timestamp_ms, EVERYTHING)
    # The segment's largest timestamp is known to be lower, so the search does not read the segment.
    assert pair(node.log.offset_for_timestamp(NOW + 3, EVERYTHING)) == (3, NOW + 3)
