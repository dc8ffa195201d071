"""The result of folding a batch: cells for the sinks, lines that were not counted, and offsets.

This module is pure and needs no JVM. Cells come as rows, or as blocks (many cells of one window as
text).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sinks.rows import CellBlock, FoldRow, UnparsedRow, UnparsedSample
from stream.fold.compile import EXPRESSION_NULL, SKIPPED, FoldPlan

NO_FILE = "(none)"

_MICROS_PER_MS = 1000

Key = tuple[str | None, ...]


class Reason(NamedTuple):
    """The reason why lines of a file were not counted; `file` is None if a record has no key."""

    topic: str
    file: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The lines of one partition in a batch: their number, offsets and latest time.

    `latest_s` is None if none of the lines has a time.
    """

    topic: str
    partition: int
    lines: int
    first_offset: int
    last_offset: int
    latest_s: int | None

    def joined(self, other: "PartitionCount") -> "PartitionCount":
        """Return the combination of this count with another count of the same partition."""
        latest = [one for one in (self.latest_s, other.latest_s) if one is not None]
        return PartitionCount(
            self.topic,
            self.partition,
            self.lines + other.lines,
            min(self.first_offset, other.first_offset),
            max(self.last_offset, other.last_offset),
            max(latest, default=None),
        )


@dataclass(frozen=True, slots=True)
class Stamped:
    """The time stamps of a partition's records, as a histogram (`java/Stamps.java`).

    A slot is 2**`width_bits` microseconds wide, and slot n begins n widths after 1970. `lines` has
    the number of records in each slot, beginning with `first_slot`.
    """

    topic: str
    partition: int
    first_slot: int
    width_bits: int
    lines: Sequence[int]

    def moments(self) -> Iterator[tuple[float, int]]:
        """Yield the middle of each slot that has records, in epoch ms, and their number.

        Records without a time stamp are left out; Spark gives them a time before 1970.
        """
        half = (1 << self.width_bits) / 2
        for slot, count in enumerate(self.lines, self.first_slot):
            if count and slot > 0:
                yield ((slot << self.width_bits) + half) / _MICROS_PER_MS, count


@dataclass(frozen=True, slots=True)
class Spent:
    """The seconds spent on reading, judging and folding lines."""

    read_s: float = 0.0
    judged_s: float = 0.0
    folded_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.read_s + other.read_s,
            self.judged_s + other.judged_s,
            self.folded_s + other.folded_s,
        )

    def over(self, parallel: float) -> "Spent":
        """Return the time of the same work if this many tasks ran in parallel."""
        return Spent(self.read_s / parallel, self.judged_s / parallel, self.folded_s / parallel)

    def within(self, whole_s: float) -> "Spent":
        """Return these seconds, scaled down so that their sum is at most `whole_s`."""
        parts_s = self.read_s + self.judged_s + self.folded_s
        return (
            self
            if parts_s <= whole_s
            else self.over(parts_s / whole_s if whole_s > 0 else math.inf)
        )


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """A folded batch, with the time it took and the time stamps of its records."""

    rows: Sequence[FoldRow]
    unparsed: Sequence[UnparsedRow]
    partitions: Sequence[PartitionCount]
    blocks: Sequence[CellBlock] = ()
    spent: Spent = field(default=NOTHING_SPENT, compare=False)
    stamped: Sequence[Stamped] = field(default=(), compare=False)

    @property
    def lines(self) -> int:
        return sum(partition.lines for partition in self.partitions)

    @property
    def latest_s(self) -> int | None:
        """The latest time of any counted line; None if no line has a time."""
        return max((p.latest_s for p in self.partitions if p.latest_s is not None), default=None)


def fault_reason(plan: FoldPlan, number: int) -> str:
    """Return the reason for lines that metric `number` could not measure."""
    return EXPRESSION_NULL + plan.metrics[number].name


def unparsed_rows(
    unparsed: Mapping[Reason, tuple[int, Sequence[UnparsedSample]]],
) -> list[UnparsedRow]:
    """Return the lines that were not counted, as rows for the sinks.

    `unparsed` has the number and the samples for each reason. Headers and comments are left out.
    """
    return sorted(
        (
            UnparsedRow(
                why.topic,
                why.file if why.file is not None else NO_FILE,
                why.reason,
                count,
                tuple(sorted(samples, key=lambda one: (one.partition, one.offset))),
            )
            for why, (count, samples) in unparsed.items()
            if why.reason != SKIPPED
        ),
        key=lambda row: (row.topic, row.file, row.reason),
    )
