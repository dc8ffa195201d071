"""What the place that holds the truth offers, be it MySQL or, without it, Redis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sinks.cells.merge import Cells, WindowId
from sinks.errors import Fenced, LedgerMismatch
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
    """What a batch became: its absolute cells, or that it was merged before.

    `fallen` are the windows whose ranking must be read anew, because a value in it fell or may have
    fallen. `bulk` are windows that changed by blocks: of these only the cells that the live view
    shows are among `cells`. `changed` is how many cells the batch made or changed in all,
    `left_out` how many were of windows older than is kept, and so written nowhere.
    """

    guard: Guard
    cells: Cells
    replayed: bool
    fallen: frozenset[WindowId] = frozenset()
    bulk: frozenset[WindowId] = frozenset()
    changed: int = 0
    left_out: int = 0


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


def check_ours(guard: Guard, query_id: str, epoch: int) -> None:
    """Raise Fenced when a newer driver writes, LedgerMismatch when the truth was set back."""
    if (guard.query_id, guard.epoch) == (query_id, epoch):
        return
    found = f"query {guard.query_id or 'none'} epoch {guard.epoch}"
    own = f"this driver is query {query_id} epoch {epoch}"
    if guard.epoch < epoch:
        raise LedgerMismatch(f"the writer row was set back to {found}; {own}")
    raise Fenced(f"another driver writes: {found}; {own}")
