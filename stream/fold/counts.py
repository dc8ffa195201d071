"""A folded batch: rows and blocks for the sinks, lines that were not counted, and offsets.

Room: pure, no JVM.
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
    """Why lines of a file were not counted."""

    topic: str
    file: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The lines of one partition in a batch, and the latest time among them."""

    topic: str
    partition: int
    lines: int
    first_offset: int
    last_offset: int
    latest_s: int | None

    def joined(self, other: "PartitionCount") -> "PartitionCount":
        """Combine with another count of the same partition."""
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

    Slot n begins n times its width after 1970. `lines` has the number of each slot from
    `first_slot` on.
    """

    topic: str
    partition: int
    first_slot: int
    width_bits: int
    lines: Sequence[int]

    def moments(self) -> Iterator[tuple[float, int]]:
        """Yield the middle of each slot with lines, in epoch milliseconds, and their number.

        A record without a time stamp has one before 1970, and is left out.
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
        """Return the same, scaled down if its sum exceeds the total time."""
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
        """The latest time of any counted line."""
        return max((p.latest_s for p in self.partitions if p.latest_s is not None), default=None)


def fault_reason(plan: FoldPlan, number: int) -> str:
    """Return the reason for lines that metric `number` could not measure."""
    return EXPRESSION_NULL + plan.metrics[number].name


def unparsed_rows(
    unparsed: Mapping[Reason, tuple[int, Sequence[UnparsedSample]]],
) -> list[UnparsedRow]:
    """Return counts and samples by reason; headers and comments are left out."""
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
