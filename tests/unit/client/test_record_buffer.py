"""The consumer returns fetched records in order, and takes from each partition in turn."""

from protocol.client.fetch_core import FetchedBatch
from protocol.client.record_buffer import RecordBuffer
from protocol.types import TopicPartition
from protocol.wire.record import Record

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(tp: TopicPartition, *offsets: int) -> FetchedBatch:
    records = [Record(offset, 0, None, None, (), -1) for offset in offsets]
    return FetchedBatch(tp, 100, records, offsets[-1] + 1, 100, 0)


def offsets(
    buffer: RecordBuffer, count_max: int, *unwanted: TopicPartition
) -> tuple[TopicPartition, list[int]] | None:
    taken = buffer.take(lambda tp: tp not in unwanted, count_max)
    return None if taken is None else (taken[0], [record.offset for record in taken[1]])


def test_partitions_take_turns_and_each_keeps_its_order() -> None:
    buffer = RecordBuffer()
    buffer.put([batch(ZERO, 0, 1, 4), batch(ONE, 7), batch(ZERO, 5)])
    assert offsets(buffer, 2) == (ZERO, [0, 1])
    assert buffer.next_offset(ZERO) == 4
    assert offsets(buffer, 2) == (ONE, [7])
    assert buffer.next_offset(ONE) is None
    assert offsets(buffer, 2) == (ZERO, [4])
    assert offsets(buffer, 2) == (ZERO, [5])
    assert offsets(buffer, 2) is None
    assert not buffer.partitions


def test_what_is_put_back_is_next_again() -> None:
    buffer = RecordBuffer()
    buffer.put([batch(ZERO, 0, 1, 4), batch(ONE, 7)])
    for count in (2, 1):
        taken = buffer.take(lambda tp: tp == ZERO, count)
        assert taken is not None
        buffer.put_back(ZERO, taken[1][1:])
    # The second `take` got one record and put nothing back.
    assert offsets(buffer, 9, ONE) == (ZERO, [4])
    buffer.put_back(ZERO, [])
    assert offsets(buffer, 9, ONE) is None
    assert offsets(buffer, 9) == (ONE, [7])


def test_what_is_not_wanted_stays() -> None:
    buffer = RecordBuffer()
    buffer.put([batch(ZERO, 0), batch(ONE, 7)])
    assert offsets(buffer, 9, ZERO) == (ONE, [7])
    assert offsets(buffer, 9, ZERO) is None
    assert offsets(buffer, 9) == (ZERO, [0])


def test_what_is_dropped_is_gone() -> None:
    buffer = RecordBuffer()
    buffer.put([batch(ZERO, 0), batch(ONE, 7)])
    buffer.drop((ZERO,))
    assert buffer.next_offset(ZERO) is None
    assert offsets(buffer, 9) == (ONE, [7])
