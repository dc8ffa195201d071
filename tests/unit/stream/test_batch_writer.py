"""The offsets of a batch must agree with the lines that it contained."""

import pytest

from sinks.rows import OffsetRange
from sinks.store import BatchCost
from stream.batch_writer import exact_ranges, work_of
from stream.fold.counts import BatchCounts, PartitionCount, Spent, Stamped
from stream.quarantine.bisection import OffsetsDiffer
from stream.source.admission import LINES_PER_CORE, Admission
from stream.source.checkpoint import EARLIEST
from stream.source.kafka import (
    LINES_PER_TASK,
    LINES_PER_TASK_MIN,
    Divider,
    TopicOffsets,
    lost_lines,
    tasks_for,
)
from stream.source.progress import end_offsets
from stream.state import StreamState


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
    [
        ({0: 5}, None),
        ({0: 2}, None),
        ({0: 9}, None),
        ({0: 1}, "retention"),
        ({0: 10}, "again"),
    ],
)
def test_lines_that_are_gone(wanted: dict[int, int], text: str | None) -> None:
    held = TopicOffsets({("t", 0): 2}, {("t", 0): 9})
    lost = lost_lines({("t", partition): offset for partition, offset in wanted.items()}, held)
    assert (lost is None) if text is None else (text in str(lost))


def test_a_partition_that_is_gone() -> None:
    held = TopicOffsets({("t", 0): 0}, {("t", 0): 9})
    assert "no longer has this partition" in str(lost_lines({("t", 3): 1}, held))
    assert held.partitions() == {"t": 1}


def test_the_work_of_a_batch_is_of_its_counts_and_its_sinks() -> None:
    counts = BatchCounts([], [], [seen(0, 5, 7)])
    found = work_of(counts, Spent(1, 2, 3), BatchCost(4, 5, 60), (), 0)
    assert found.seconds == {"source": 1, "parse": 2, "fold": 3, "mysql": 4, "redis": 5}
    assert (found.lines, found.cells) == (3, 60)
    alone = work_of(counts, Spent(1, 2, 3), BatchCost(None, 5, 60), (), 0)
    assert "mysql" not in alone.seconds, "a mill without MySQL has no such stage"


def test_lines_of_partitions_that_keep_up_are_live_and_have_an_age() -> None:
    slot = 873_000_000_000
    stamped = [Stamped("t", 0, slot, 11, [2, 0, 1]), Stamped("t", 1, slot, 11, [7])]
    now_ms = int(slot * 2.048) + 500
    found = list(
        work_of(
            BatchCounts([], [], [], [], stamped=stamped), Spent(), BatchCost(), {("t", 0)}, now_ms
        ).ages
    )
    assert [lines for _, lines in found] == [2, 1]
    assert [age_ms for age_ms, _ in found] == [pytest.approx(499, abs=2), pytest.approx(495, abs=2)]


def test_end_offsets_of_a_report() -> None:
    nested = {"sources": [{"endOffset": {"t": {"0": 4, "1": 7}}}]}
    text = {"sources": [{"endOffset": '{"t":{"0":4,"1":7}}'}]}
    assert end_offsets(nested) == end_offsets(text) == {("t", 0): 4, ("t", 1): 7}
    assert end_offsets({"sources": [{"endOffset": None}]}) == {}


def test_what_waits_is_all_that_waits_also_while_a_batch_goes_to_the_sinks_in_pieces() -> None:
    state = StreamState("stream", ["m"], 100)
    first = [OffsetRange("t", 0, 4, 9), OffsetRange("t", 1, 7, 7)]
    assert state.lines_behind(first) is None
    state.begins_at({("t", 0): 4, ("t", 1): 7, ("t", 2): 100})
    state.topics_end_at({("t", 0): 20, ("t", 1): 5, ("t", 2): 150, ("t", 3): 30})
    assert state.lines_behind(first) == 11 + 0 + 50 + 30, "nothing is known of partition 3"
    counted(state, first)
    assert state.lines_behind([OffsetRange("t", 2, 100, 110)]) == 11 + 40 + 30
    counted(state, [OffsetRange("t", 2, 100, 110)])
    assert state.lines_behind([OffsetRange("t", 3, 25, 30)]) == 11 + 40
    assert state.snapshot().details["offsets"] == {"t-0": 9, "t-1": 7, "t-2": 110}


def counted(state: StreamState, ranges: list[OffsetRange]) -> None:
    state.batch_applied(1, 1, 1, [], ranges, replayed=False, event_time_ms=None, sinks_ms=1)


def test_where_the_topics_end_is_heard_when_a_batch_is_planned() -> None:
    state = StreamState("stream", ["m"], 100)
    state.begins_at({("t", 0): 4})
    divider = Divider(Admission(10), state.topics_end_at)
    assert divider.ends('{"t":{"0":4}}', '{"t":{"0":435004}}') == '{"t": {"0": 14}}'
    assert state.lines_behind([OffsetRange("t", 0, 4, 14)]) == 434_990


def test_a_batch_is_planned_for_the_cores_that_executors_have_then() -> None:
    cores = iter((1, 3))
    divider = Divider(Admission(9 * LINES_PER_CORE), lambda _: None, lambda: next(cores))
    for count in (1, 3):
        ends = divider.ends('{"t":{"0":0}}', '{"t":{"0":99000000}}')
        assert ends == f'{{"t": {{"0": {count * LINES_PER_CORE}}}}}'


@pytest.mark.parametrize(
    ("offsets", "cores", "tasks"),
    [
        (1, 8, 1),
        (LINES_PER_TASK_MIN * 2 - 1, 8, 1),
        (LINES_PER_TASK_MIN * 3, 8, 3),
        (LINES_PER_TASK_MIN * 20, 8, 8),
        (LINES_PER_TASK * 8, 8, 8),
        (LINES_PER_TASK * 8 + 1, 8, 16),
        (LINES_PER_TASK + 1, 2, 2),
    ],
)
def test_tasks_share_a_batch(offsets: int, cores: int, tasks: int) -> None:
    assert tasks_for(offsets, cores) == tasks
