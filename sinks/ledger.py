"""Compares a batch's offsets with the counted ones: the batch is new, a replay, or wrong.

This module is pure. The offsets decide, not the batch id. A power failure can remove the end of
Spark's own log, and Spark then plans a batch with the same id but more offsets.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from sinks.errors import LedgerMismatch
from sinks.rows import OffsetRange

Ledger = Mapping[tuple[str, int], int]


class BatchKind(Enum):
    """The kind of a batch: new, or a replay."""

    NEW = "new"
    REPLAY = "replay"


def compare(ranges: Sequence[OffsetRange], ledger: Ledger, *, after_guard: bool) -> BatchKind:
    """Compare a batch's offsets with the ledger.

    `after_guard`: the batch's id is higher than the last merged id. A new batch starts at the
    ledger's end in every partition; if the ledger does not have the partition, it can start
    anywhere. A replay ends at or before the ledger's end in every partition. Anything else raises
    LedgerMismatch, and so do new offsets with an id that was merged before.
    """
    continues = overlaps = True
    for one in ranges:
        counted = ledger.get((one.topic, one.partition))
        continues = continues and counted in (None, one.start)
        overlaps = overlaps and counted is not None and one.end <= counted
    if continues and after_guard:
        return BatchKind.NEW
    if overlaps or not ranges:
        return BatchKind.REPLAY
    raise LedgerMismatch(
        "the batch does not continue the counted offsets: "
        + "; ".join(
            f"{one.topic}-{one.partition} has {one.start} to {one.end}, counted up to "
            f"{ledger.get((one.topic, one.partition), 'nothing')}"
            for one in ranges
        )
    )


def after(ranges: Sequence[OffsetRange]) -> dict[tuple[str, int], int]:
    """Return the end offsets that the ledger has after this batch."""
    return {(one.topic, one.partition): one.end for one in ranges}
