"""How a large batch is divided, so that one piece is written while the next is folded.

Room: pure. Folding uses all cores and writing uses one, so either alone leaves cores idle. Pieces
go to the sinks in order, each in its own transaction that moves the ledger. After a crash in
between, the stream resumes from there.
"""

import math
from collections.abc import Sequence

from sinks.rows import OffsetRange
from stream.quarantine.search import Part, chopped, size_of

PIECES_MAX = 4

# The last piece is this fraction of the others, because nothing is folded while it is written.
LAST_SHARE = 0.5

# A piece costs Spark two stages: a tenth of a second, whatever its size.
PIECE_OFFSETS_MIN = 50_000


def pieces_of(ranges: Sequence[OffsetRange]) -> list[Part]:
    """Return the pieces of a batch with known starts; a single piece if it is too small.

    Partitions without offsets in the batch belong to the first piece, so that the ledger has
    them too.
    """
    offsets = size_of(ranges)
    count = min(PIECES_MAX, offsets // PIECE_OFFSETS_MIN)
    if count < 2:
        return [tuple(ranges)]
    first, *others = chopped(ranges, math.ceil(offsets / (count - 1 + LAST_SHARE)))
    empty = [one for one in ranges if one.start == one.end]
    return [(*first, *empty), *others]
