"""What the place that holds the truth offers, be it MySQL or, without it, Redis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sinks.merge import Cells
from sinks.rows import Batch, MetricDefinition


@dataclass(frozen=True, slots=True)
class Guard:
    """The writer row: which query and epoch may write, its last batch, and the merges so far."""

    query_id: str
    epoch: int
    batch_id: int
    seq: int


@dataclass(frozen=True, slots=True)
class Merged:
    """What a batch became: its absolute cells, or that it was merged before."""

    guard: Guard
    cells: Cells
    replayed: bool


class Truth(Protocol):
    """One writer, one ledger; every change is one transaction behind the guard."""

    def open(self, query_id: str, definitions: Sequence[MetricDefinition], now_s: int) -> Guard:
        """Raise the epoch for this driver; raises DefinitionChanged, SinkUnavailable."""
        ...

    def ledger(self) -> Mapping[tuple[str, int], int]:
        """End offsets by (topic, partition); raises SinkUnavailable."""
        ...

    def apply(self, batch: Batch) -> Merged:
        """Merge a batch once; raises Fenced, LedgerMismatch, SinkUnavailable."""
        ...

    def close(self) -> None:
        """Leave the server."""
        ...
