"""How a large batch is cut, so that one piece is written while the next one is folded.

Floor: pure. Folding takes all cores and writing takes one, so either by itself leaves cores idle.
Pieces go to the sinks in order, each in a transaction of its own that moves the ledger; what dies
in between is resumed from there.
"""

import math
from collections.abc import Sequence

from sinks.rows import OffsetRange
from stream.quarantine.search import Part, chopped, size_of

PIECES_MAX = 4

# The last piece is this part of another one: beside its writing nothing is folded.
LAST_SHARE = 0.5

# A piece costs Spark two stages: a tenth of a second, whatever it holds.
PIECE_OFFSETS_MIN = 50_000


def pieces_of(ranges: Sequence[OffsetRange]) -> list[Part]:
    """The pieces of a batch whose starts are known; one where it is not worth a cut.

    Partitions without an offset in the batch stand in the first piece, for the ledger is to know
    them, too.
    """
    offsets = size_of(ranges)
    count = min(PIECES_MAX, offsets // PIECE_OFFSETS_MIN)
    if count < 2:
        return [tuple(ranges)]
    first, *others = chopped(ranges, math.ceil(offsets / (count - 1 + LAST_SHARE)))
    empty = [one for one in ranges if one.start == one.end]
    return [(*first, *empty), *others]
