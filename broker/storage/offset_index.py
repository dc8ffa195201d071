"""A sparse map from offset to byte position within one segment, as in Kafka's `.index` file.

This module is pure. The file is a row of 8-byte entries, big-endian: relative offset (4 bytes),
position (4 bytes). An entry says that the batch at `position` ends with this offset (relative to
the segment's base offset). Both values rise strictly. To read an offset, start at the last entry
whose offset is not above it, and walk the batches from the entry's position on.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import islice
from operator import lt

ENTRY_BYTES = 8


class OffsetIndex:
    """The entries of one segment, in two arrays that `bisect` searches without building objects."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        """The last offset of each entry's batch, relative to the segment's base offset."""
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self.offsets[count:], self.positions[count:]

    def position_before(self, relative_offset: int) -> int:
        """Return a batch boundary at or before the batch that contains the offset."""
        found = bisect_right(self.offsets, relative_offset)
        return self.positions[found - 1] if found else 0

    def boundary_at_most(self, position: int) -> int:
        """Return the last known batch boundary not beyond `position`, or 0."""
        found = bisect_right(self.positions, position)
        return self.positions[found - 1] if found else 0

    def encode(self, first: int = 0) -> bytes:
        """Return the entries from number `first` on, in the file's format."""
        mixed = array("I", bytes(ENTRY_BYTES * (len(self.offsets) - first)))
        mixed[0::2] = self.offsets[first:]
        mixed[1::2] = self.positions[first:]
        if sys.byteorder == "little":
            mixed.byteswap()
        return mixed.tobytes()

    @classmethod
    def decode(cls, data: bytes, size_bytes: int) -> OffsetIndex:
        """Read the index of a segment of `size_bytes`.

        Raises ValueError if the bytes cannot be the index of this segment.
        """
        if len(data) % ENTRY_BYTES:
            raise ValueError(
                f"the offset index has {len(data)} bytes, expected a multiple of {ENTRY_BYTES}"
            )
        mixed = array("I", data)
        if sys.byteorder == "little":
            mixed.byteswap()
        index = cls()
        index.offsets = mixed[0::2]
        index.positions = mixed[1::2]
        if not rises(index.offsets) or not rises(index.positions):
            raise ValueError("the entries of the offset index do not rise")
        if index.positions and index.positions[-1] >= size_bytes:
            raise ValueError(
                "the last entry of the offset index points beyond the end of the segment"
            )
        return index


def rises(numbers: array[int]) -> bool:
    """Return True if every number is larger than the one before it."""
    return all(map(lt, numbers, islice(numbers, 1, None)))
