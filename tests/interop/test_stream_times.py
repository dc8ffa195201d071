"""What tasks report beside the counts: the timestamps of records, and the duration of each
stage."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.counts import BatchCounts, Stamped
from stream.fold.folding import Folding
from stream.source.kafka import COLUMNS_DDL
from tests.interop.stream_spark import frame_for_tasks, one_input, spark

pytestmark = pytest.mark.live

BEGIN = datetime(2026, 8, 1, 12, 0, 0, 123_456, tzinfo=UTC)
SLOTS_MAX = 64
LINES = 6_000


def folding() -> Folding:
    section = one_input(
        {"format": "logfmt", "columns": {"a": "a string"}}, {"name": "by", "key": "a"}
    )
    return Folding(compile_plan(StreamSection.model_validate(section)), as_blocks=True)


def stamped(stamps: Sequence[datetime | None], *, in_tasks: bool) -> BatchCounts:
    """Fold lines with these timestamps, all of one file and partition. Return the counts."""
    rows = [
        (bytearray(b"t/t.log"), bytearray(b"a=b"), "logs.t", 0, offset, at, 0, None)
        for offset, at in enumerate(stamps)
    ]
    lines = spark().createDataFrame(rows, COLUMNS_DDL).coalesce(1)
    return folding().fold_in_tasks(lines) if in_tasks else folding().fold_in_driver(lines)


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def check(found: Sequence[Stamped], stamps: Sequence[datetime]) -> int:
    """Check that the slots count exactly these timestamps. Return the width of a slot in
    microseconds."""
    (one,) = found
    assert (one.topic, one.partition) == ("logs.t", 0)
    assert len(one.lines) <= SLOTS_MAX
    expected = [0] * len(one.lines)
    for at in stamps:
        expected[(micros(at) >> one.width_bits) - one.first_slot] += 1
    assert list(one.lines) == expected
    return 1 << one.width_bits


@pytest.mark.parametrize("in_tasks", [False, True])
def test_stamps_of_a_moment_are_told_to_the_millisecond(in_tasks: bool) -> None:
    stamps = [BEGIN + timedelta(milliseconds=n % 60) for n in range(200)]
    assert check(stamped(stamps, in_tasks=in_tasks).stamped, stamps) == 1_024


def test_stamps_far_from_each_other_make_slots_wider_and_not_more() -> None:
    """Timestamps can come in any order: when slots become wider, the counts of the narrow slots
    move into them."""
    near = [BEGIN + timedelta(milliseconds=n * 7 % 64) for n in range(100)]
    far = [BEGIN + timedelta(minutes=n * 37 % 50 - 20) for n in range(50)]
    assert check(stamped([*near, *far, *near], in_tasks=False).stamped, [*near, *far, *near]) > 1e6


def test_records_without_a_stamp_are_counted_and_not_told() -> None:
    counts = stamped([None, BEGIN, None], in_tasks=False)
    assert counts.lines == 3
    told = [moment for one in counts.stamped for moment in one.moments()]
    assert [lines for _, lines in told] == [1]
    assert [at for at, _ in told] == pytest.approx([micros(BEGIN) / 1_000], abs=1)


def test_lines_of_several_tasks_are_told_by_each() -> None:
    counts = folding().fold_in_tasks(frame_for_tasks(["a=b"] * LINES, tasks=3))
    assert sum(sum(one.lines) for one in counts.stamped) == counts.lines == LINES


@pytest.mark.parametrize("in_tasks", [False, True])
def test_reading_judging_and_folding_are_parts_of_what_the_fold_took(in_tasks: bool) -> None:
    lines = frame_for_tasks([f"a={n}" for n in range(LINES)], tasks=2)
    one = folding()
    fold = one.fold_in_tasks if in_tasks else one.fold_in_driver
    fold(lines)
    began_s = time.monotonic()
    spent = fold(lines).spent
    passed_s = time.monotonic() - began_s
    parts = (spent.read_s, spent.judged_s, spent.folded_s)
    assert min(parts) >= 0
    assert spent.judged_s > 0 and spent.folded_s > 0
    assert sum(parts) <= passed_s
