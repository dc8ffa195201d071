"""Which metrics share a grouping, the instructions for the JVM, and how its frames are read."""

import json
import pickle
import struct
from typing import Any

import pytest

from sinks.rows import CellBlock, UnparsedSample
from stream.config.settings import StreamSection
from stream.fold.compile import LINE_COLUMNS, FoldPlan, compile_plan
from stream.fold.counts import PartitionCount, Spent, Stamped
from stream.fold.groupings import FRAMES, SAMPLES, fold_spec, groupings
from stream.fold.java_fold import counts_of

END = b"E"

# Two lines are in the first slot of about two milliseconds, and one line is in the third.
FIRST_SLOT = 873_000_000_000
STAMPS = (FIRST_SLOT, 11, [2, 0, 1])

Row = tuple[Any, ...]


def plan_of(*metrics: dict[str, Any]) -> FoldPlan:
    section = {
        "from": {"access": {"topic": "logs.access", "format": "combined"}},
        "defaults": {"windows": ["1m", "1h", "all"]},
        "metrics": [{"from": "access", **metric} for metric in metrics],
    }
    return compile_plan(StreamSection.model_validate(section))


COUNT = {"name": "by_status", "key": "status", "measure": "count"}
BYTES = {"name": "bytes", "key": "status", "measure": "sum", "value": "bytes"}
VISITORS = {"name": "visitors", "key": "status", "measure": "unique", "value": "remote_addr"}
PATHS = {"name": "paths", "key": "path", "measure": "count"}


def test_metrics_of_one_key_share_a_grouping_and_sketches_stand_alone() -> None:
    plan = plan_of(COUNT, VISITORS, BYTES, PATHS)
    shared = [[reading.number for reading in one.readings] for one in groupings(plan)]
    assert shared == [[0, 2], [1], [3]]


def test_the_jvm_is_told_where_in_a_judged_line_everything_stands() -> None:
    plan = plan_of(COUNT, BYTES)
    spec = json.loads(fold_spec(plan, as_blocks=True))
    (grouping,) = spec["groupings"]
    count, total = grouping["readings"]
    at = {name: place for place, name in enumerate(plan.columns)}
    reading = plan.readings[1]
    assert reading.verdict is not None and reading.value is not None
    assert grouping["keys"] == [at[reading.keys[0]]]
    assert (grouping["slice_s"], grouping["coarser_s"]) == (60, [0, 3600])
    assert (count["verdict"], count["value"], count["has_amount"]) == (-1, -1, False)
    assert (total["verdict"], total["value"]) == (at[reading.verdict], at[reading.value])
    assert (total["has_amount"], total["is_whole"], total["sketch_size"]) == (True, True, 0)
    assert spec["columns"] == {name: at[name] for name in LINE_COLUMNS}
    assert spec["frames"] == FRAMES
    assert len(set(FRAMES.values())) == len(FRAMES)
    assert (spec["faulty_numbers"], spec["faulty_at"]) == ([1], [at[reading.verdict]])


def frame(kind: bytes, rows: list[Row]) -> bytes:
    return kind + pickle.dumps(rows)


def test_frames_become_counts() -> None:
    plan = plan_of(COUNT, BYTES)
    tally = ("logs.access", 0, "a.log", None, 7, 3, 9, 1_000, [2], STAMPS)
    bad: Row = ("logs.access", 0, "a.log", "format:combined", 1, 10, 10, None, [0], STAMPS)
    block = b"B" + bytes.fromhex("00000000 0000003c 0000000000000078 00000002") + b"(text)"
    frames = [
        frame(b"T", [tally]),
        block,
        frame(b"T", [bad]),
        frame(b"S", [("logs.access", 0, "a.log", None, 1, 5, b"line")]),
        END,
    ]
    counts = counts_of(frames, plan)
    assert counts.stamped == [Stamped("logs.access", 0, *STAMPS)] * 2
    assert counts.blocks == [CellBlock("by_status", 60, 120, 2, b"(text)")]
    assert counts.partitions == [PartitionCount("logs.access", 0, 8, 3, 10, 1_000)]
    assert [(row.reason, row.count, row.samples) for row in counts.unparsed] == [
        ("expression_null:bytes", 2, (UnparsedSample(0, 5, b"line"),)),
        ("format:combined", 1, ()),
    ]


def test_of_the_samples_of_several_tasks_the_first_are_kept() -> None:
    plan = plan_of(COUNT)
    bad: Row = (
        "logs.access",
        0,
        "a.log",
        "format:combined",
        2 * SAMPLES,
        0,
        2 * SAMPLES,
        None,
        [],
        STAMPS,
    )
    samples = [
        ("logs.access", 0, "a.log", "format:combined", None, offset, b"x")
        for offset in reversed(range(2 * SAMPLES))
    ]
    (row,) = counts_of([frame(b"S", samples), frame(b"T", [bad]), END], plan).unparsed
    assert row.count == 2 * SAMPLES
    assert [sample.offset for sample in row.samples] == list(range(SAMPLES))


def test_frames_that_break_off_are_no_counts() -> None:
    """If the counts were accepted, the ledger would include the lines after the break but no cell
    would."""
    plan = plan_of(COUNT)
    tally: Row = ("logs.access", 0, "a.log", None, 7, 3, 9, 1_000, [], STAMPS)
    with pytest.raises(OSError, match="only a part"):
        counts_of([frame(b"T", [tally])], plan)


def test_moments_are_the_middles_of_slots_that_hold_lines() -> None:
    found = list(Stamped("t", 0, *STAMPS).moments())
    width_ms = 2.048
    first_ms = FIRST_SLOT * width_ms + width_ms / 2
    assert [lines for _, lines in found] == [2, 1]
    assert [at for at, _ in found] == pytest.approx([first_ms, first_ms + 2 * width_ms])


def test_a_record_without_a_time_has_no_moment() -> None:
    """Kafka uses the timestamp -1 for "none", and Spark converts it to microseconds."""
    assert list(Stamped("t", 0, -1, 10, [5, 5]).moments()) == []


def clock(kind: bytes, *seconds: float) -> bytes:
    return kind + struct.pack(f">{len(seconds)}q", *(int(one * 1e9) for one in seconds))


@pytest.mark.parametrize(("parallel", "share"), [(1, 1.0), (2, 0.5), (8, 1 / 3)])
def test_times_of_parallel_tasks_are_those_of_one_after_the_other(
    parallel: int, share: float
) -> None:
    """The three tasks run in parallel if there are cores for them. The second stage (W) runs
    alone."""
    tasks = [clock(b"J", 1, 2, 3)] * 3
    spent = counts_of([*tasks, clock(b"W", 4), END], plan_of(COUNT), parallel).spent
    assert spent == Spent(3 * share, 6 * share, 9 * share + 4)


def test_parts_are_never_longer_than_the_whole() -> None:
    spent = Spent(1, 2, 3)
    assert spent.within(6.5) == spent
    assert spent.within(3) == Spent(0.5, 1, 1.5)
    assert spent.within(0) == Spent()
