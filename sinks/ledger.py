"""The comparison of a batch's offsets with what is counted: new work, a replay, or neither. Pure.

The offsets decide, not the batch id. A power cut can take the tail of Spark's own log. Spark then
plans the same batch id again with more offsets in it.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from sinks.errors import LedgerMismatch
from sinks.rows import OffsetRange

Ledger = Mapping[tuple[str, int], int]


class Standing(Enum):
    """Where a batch stands against the ledger."""

    NEW = "new"
    REPLAY = "replay"


def compare(ranges: Sequence[OffsetRange], ledger: Ledger, *, after_guard: bool) -> Standing:
    """Judge a batch's offsets; `after_guard` says that its id is above the last merged one.

    New work starts at the ledger's end in every partition (one that the ledger does not know may
    start anywhere); a replay ends at or before it in every partition. Anything else, and new
    offsets under an id that was merged before, raises LedgerMismatch.
    """
    continues = overlaps = True
    for one in ranges:
        counted = ledger.get((one.topic, one.partition))
        continues = continues and counted in (None, one.start)
        overlaps = overlaps and counted is not None and one.end <= counted
    if continues and after_guard:
        return Standing.NEW
    if overlaps or not ranges:
        return Standing.REPLAY
    raise LedgerMismatch(
        "the batch does not continue what is counted: "
        + "; ".join(
            f"{one.topic}-{one.partition} has {one.start} to {one.end}, counted up to "
            f"{ledger.get((one.topic, one.partition), 'nothing')}"
            for one in ranges
        )
    )


def after(ranges: Sequence[OffsetRange]) -> dict[tuple[str, int], int]:
    """The ledger's new ends after a batch."""
    return {(one.topic, one.partition): one.end for one in ranges}
