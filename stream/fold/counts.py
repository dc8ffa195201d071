"""What a folded batch holds: rows and blocks for the sinks, lines that were not counted, and ends.

Floor: pure, no JVM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sinks.rows import CellBlock, FoldRow, UnparsedRow, UnparsedSample
from stream.fold.compile import EXPRESSION_NULL, FoldPlan

NO_FILE = "(none)"

Key = tuple[str | None, ...]


class Reason(NamedTuple):
    """Why lines of a file were not counted."""

    topic: str
    file: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """What a batch holds of one partition: its lines, and the latest time among them."""

    topic: str
    partition: int
    lines: int
    first_offset: int
    last_offset: int
    latest_s: int | None

    def joined(self, other: "PartitionCount") -> "PartitionCount":
        """Both together, of the same partition."""
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
class Counts:
    """A folded batch."""

    rows: Sequence[FoldRow]
    unparsed: Sequence[UnparsedRow]
    partitions: Sequence[PartitionCount]
    blocks: Sequence[CellBlock] = ()

    @property
    def lines(self) -> int:
        return sum(partition.lines for partition in self.partitions)

    @property
    def latest_s(self) -> int | None:
        """The latest time of any line that was counted."""
        return max((p.latest_s for p in self.partitions if p.latest_s is not None), default=None)


def fault_reason(plan: FoldPlan, number: int) -> str:
    """Why a line is not counted that metric `number` could not measure."""
    return EXPRESSION_NULL + plan.metrics[number].name


def unparsed_rows(
    unparsed: Mapping[Reason, tuple[int, Sequence[UnparsedSample]]],
) -> list[UnparsedRow]:
    """Counts and samples by reason, as the sinks take them."""
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
        ),
        key=lambda row: (row.topic, row.file, row.reason),
    )
