"""The offsets of a batch against the lines that were in it."""

import pytest

from sinks.rows import OffsetRange
from stream.checkpoint import EARLIEST
from stream.counts import PartitionCount
from stream.progress import end_offsets, latest_offsets
from stream.sources import TopicOffsets, lost_lines
from stream.state import StreamState
from stream.writers import OffsetsDiffer, exact_ranges


def seen(partition: int, first: int, last: int) -> PartitionCount:
    return PartitionCount("t", partition, last - first + 1, first, last, None)


def test_markers_and_empty_partitions_are_fine() -> None:
    ranges = [OffsetRange("t", 0, 4, 9), OffsetRange("t", 1, 7, 7)]
    assert exact_ranges(ranges, [seen(0, 5, 7)]) == ranges


def test_a_new_partition_starts_at_its_first_line() -> None:
    ranges = [OffsetRange("t", 0, EARLIEST, 9), OffsetRange("t", 1, EARLIEST, 3)]
    assert exact_ranges(ranges, [seen(0, 2, 8)]) == [
        OffsetRange("t", 0, 2, 9),
        OffsetRange("t", 1, 3, 3),
    ]


@pytest.mark.parametrize(("first", "last"), [(3, 5), (5, 9), (9, 9)])
def test_lines_outside_of_the_batch_are_refused(first: int, last: int) -> None:
    with pytest.raises(OffsetsDiffer, match="t-0"):
        exact_ranges([OffsetRange("t", 0, 4, 9)], [seen(0, first, last)])


def test_lines_of_an_unknown_partition_are_refused() -> None:
    with pytest.raises(OffsetsDiffer, match="does not cover"):
        exact_ranges([OffsetRange("t", 0, 4, 9)], [seen(1, 5, 6)])


@pytest.mark.parametrize(
    ("wanted", "text"),
    [({0: 5}, None), ({0: 2}, None), ({0: 9}, None), ({0: 1}, "retention"), ({0: 10}, "anew")],
)
def test_lines_that_are_gone(wanted: dict[int, int], text: str | None) -> None:
    held = TopicOffsets({("t", 0): 2}, {("t", 0): 9})
    lost = lost_lines({("t", partition): offset for partition, offset in wanted.items()}, held)
    assert (lost is None) if text is None else (text in str(lost))


def test_a_partition_that_is_gone() -> None:
    held = TopicOffsets({("t", 0): 0}, {("t", 0): 9})
    assert "no such partition" in str(lost_lines({("t", 3): 1}, held))
    assert held.partitions() == {"t": 1}


def test_end_offsets_of_a_report() -> None:
    nested = {"sources": [{"endOffset": {"t": {"0": 4, "1": 7}}}]}
    text = {"sources": [{"endOffset": '{"t":{"0":4,"1":7}}'}]}
    assert end_offsets(nested) == end_offsets(text) == {("t", 0): 4, ("t", 1): 7}
    assert end_offsets({"sources": [{"endOffset": None}]}) == {}


def test_what_waits_behind_a_batch_is_known() -> None:
    state = StreamState("stream", ["m"], 100)
    ranges = [OffsetRange("t", 0, 4, 9), OffsetRange("t", 1, 7, 7)]
    assert state.lines_behind(ranges) is None
    report = {"sources": [{"latestOffset": '{"t":{"0":20,"1":5}}'}]}
    state.topics_end_at(latest_offsets(report))
    assert state.lines_behind(ranges) == 11
    assert state.lines_behind([OffsetRange("t", 0, 9, 25)]) == 0
