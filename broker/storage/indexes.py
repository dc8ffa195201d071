"""The two sparse indexes of one segment, in the formats of Kafka's `.index` and `.timeindex` files.

This module is pure. Both files are rows of entries, big-endian, whose values rise strictly.

An entry of the offset index has 8 bytes: relative offset (4 bytes), position (4 bytes). It says
that the batch at `position` ends with this offset (relative to the segment's base offset). To read
an offset, start at the last entry whose offset is not above it, and walk the batches from the
entry's position on.

An entry of the time index has 12 bytes: timestamp (8 bytes), relative offset (4 bytes). The offset
is the last offset of a batch, and the timestamp is the largest one in this batch. No record up to
this offset has a larger timestamp. So an entry is added only when a newer record was appended.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt
from struct import Struct, unpack

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_TIME_ENTRY = Struct(">qI")


class OffsetIndex:
    """From offsets to positions, in two arrays that `bisect` searches without building objects."""

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
        mixed = array("I", bytes(OFFSET_ENTRY_BYTES * (len(self.offsets) - first)))
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
        if len(data) % OFFSET_ENTRY_BYTES:
            raise ValueError(
                f"the offset index has {len(data)} bytes, expected a multiple of"
                f" {OFFSET_ENTRY_BYTES}"
            )
        mixed = array("I", data)
        if sys.byteorder == "little":
            mixed.byteswap()
        index = cls()
        index.offsets = mixed[0::2]
        index.positions = mixed[1::2]
        if not _rises(index.offsets) or not _rises(index.positions):
            raise ValueError("the entries of the offset index do not rise")
        if index.positions and index.positions[-1] >= size_bytes:
            raise ValueError(
                "the last entry of the offset index points beyond the end of the segment"
            )
        return index


class TimeIndex:
    """From timestamps to offsets."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    def __len__(self) -> int:
        return len(self.timestamps)

    def append_if_newer(self, timestamp_ms: int, relative_offset: int) -> None:
        if timestamp_ms > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp_ms)
            self.offsets.append(relative_offset)

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self.timestamps[count:], self.offsets[count:]

    def offset_before(self, timestamp_ms: int) -> int:
        """Return a relative offset below which every record is older than the timestamp."""
        found = bisect_left(self.timestamps, timestamp_ms)
        return self.offsets[found - 1] if found else 0

    def encode(self, first: int = 0) -> bytes:
        """Return the entries from number `first` on, in the file's format."""
        pairs = zip(self.timestamps[first:], self.offsets[first:], strict=True)
        return b"".join([_TIME_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs])

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Read the content of a file. Raises ValueError if the bytes cannot be a time index."""
        if len(data) % TIME_ENTRY_BYTES:
            raise ValueError(
                f"the time index has {len(data)} bytes, expected a multiple of {TIME_ENTRY_BYTES}"
            )
        fields = unpack(">" + "qI" * (len(data) // TIME_ENTRY_BYTES), data)
        index = cls()
        index.timestamps = array("q", fields[0::2])
        index.offsets = array("I", fields[1::2])
        if not _rises(index.timestamps) or not _rises(index.offsets):
            raise ValueError("the entries of the time index do not rise")
        return index


def _rises(numbers: array[int]) -> bool:
    """Return True if every number is larger than the one before it."""
    return all(map(lt, numbers, islice(numbers, 1, None)))
