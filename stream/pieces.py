"""How a large batch is cut, so that one piece is written while the next one is folded.

Floor: pure. Folding takes all cores and writing takes one, so either by itself leaves cores idle.
Pieces go to the sinks in order, each in a transaction of its own that moves the ledger; what dies
in between is resumed from there.
"""

from collections.abc import Sequence

from sinks.rows import OffsetRange
from stream.quarantine import chopped, size_of

PIECES_MAX = 3

# A piece costs Spark a plan and two stages: a tenth of a second, whatever it holds.
PIECE_OFFSETS_MIN = 50_000

Ranges = tuple[OffsetRange, ...]


def pieces_of(ranges: Sequence[OffsetRange]) -> list[Ranges]:
    """The pieces of a batch whose starts are known; one where it is not worth a cut.

    Partitions without an offset in the batch stand in the first piece, for the ledger is to know
    them, too.
    """
    offsets = size_of(ranges)
    count = min(PIECES_MAX, offsets // PIECE_OFFSETS_MIN)
    if count < 2:
        return [tuple(ranges)]
    first, *others = chopped(ranges, -(-offsets // count))
    empty = [one for one in ranges if one.start == one.end]
    return [(*first, *empty), *others]
