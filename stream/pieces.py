"""Divides a large batch into pieces, so that one piece is written while the next is folded.

This module is pure. Folding uses all cores and writing uses only one, so cores would be idle if a
batch were first folded and then written. Pieces go to the sinks in order. Each has its own
transaction, which moves the ledger, so after a crash between two pieces the stream resumes with the
second one.
"""

import math
from collections.abc import Sequence

from sinks.rows import OffsetRange
from stream.quarantine.search import Part, chopped, size_of

PIECES_MAX = 4

# The last piece has this fraction of the size of the others, because nothing is folded while it is
# written.
LAST_SHARE = 0.5

# The least offsets of a piece. A smaller piece costs more time than it saves, because each piece
# needs two stages of Spark, which take a tenth of a second for any size.
PIECE_OFFSETS_MIN = 50_000


def pieces_of(ranges: Sequence[OffsetRange]) -> list[Part]:
    """Return the pieces of a batch; a single piece if the batch is too small to divide.

    Every start in `ranges` must be known. Partitions without offsets in the batch belong to the
    first piece, so that the ledger gets them too.
    """
    offsets = size_of(ranges)
    count = min(PIECES_MAX, offsets // PIECE_OFFSETS_MIN)
    if count < 2:
        return [tuple(ranges)]
    first, *others = chopped(ranges, math.ceil(offsets / (count - 1 + LAST_SHARE)))
    empty = [one for one in ranges if one.start == one.end]
    return [(*first, *empty), *others]
