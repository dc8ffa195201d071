"""The interface of the truth, which is MySQL or, without it, Redis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sinks.cells.merge import Cells, WindowId
from sinks.errors import FencedWriter, LedgerMismatch
from sinks.rows import Batch, MetricDefinition


@dataclass(frozen=True, slots=True)
class WriterGuard:
    """The writer row: the query and epoch that may write, its last batch, and the merges so far."""

    query_id: str
    epoch: int
    batch_id: int
    seq: int


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a batch: its absolute cells, or that it was merged before.

    The rankings of the windows in `fallen` must be read again, because a value in them fell or may
    have fallen. `bulk` are windows changed by blocks; of these, `cells` has only the cells that the
    live view shows. `changed` counts the cells that the batch created or changed. `left_out` counts
    cells that were not written, because their windows were older than their `keep`.
    """

    guard: WriterGuard
    cells: Cells
    replayed: bool
    fallen: frozenset[WindowId] = frozenset()
    bulk: frozenset[WindowId] = frozenset()
    changed: int = 0
    left_out: int = 0


class Truth(Protocol):
    """One writer and one ledger; every change is one transaction that checks the guard."""

    def open(
        self, query_id: str, definitions: Sequence[MetricDefinition], now_s: int
    ) -> WriterGuard:
        """Raise the epoch for this driver; raises DefinitionChanged, SinkUnavailable."""
        ...

    def ledger(self) -> Mapping[tuple[str, int], int]:
        """Return end offsets by (topic, partition); raises SinkUnavailable."""
        ...

    def apply(self, batch: Batch) -> Merged:
        """Merge a batch once; raises FencedWriter, LedgerMismatch, SinkUnavailable."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def check_ours(guard: WriterGuard, query_id: str, epoch: int) -> None:
    """Raise FencedWriter if a newer driver writes, LedgerMismatch if the truth was restored."""
    if (guard.query_id, guard.epoch) == (query_id, epoch):
        return
    found = f"query {guard.query_id or 'none'} epoch {guard.epoch}"
    own = f"this driver is query {query_id} epoch {epoch}"
    if guard.epoch < epoch:
        raise LedgerMismatch(f"the database was restored: its writer is {found}, but {own}")
    raise FencedWriter(f"another stream has taken over the database: {found}, but {own}")
