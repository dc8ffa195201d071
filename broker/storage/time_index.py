"""A sparse map from timestamp to offset within one segment, as in Kafka's `.timeindex` file.

This module is pure. The file is a row of 12-byte entries, big-endian: timestamp (8 bytes), relative
offset (4 bytes). The offset is the last offset of a batch, and the timestamp is the largest one in
this batch. No record up to this offset has a larger timestamp. Timestamps rise strictly, so an
entry is added only when a newer record was appended.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct, unpack

from broker.storage.offset_index import rises

ENTRY_BYTES = 12
_ENTRY = Struct(">qI")


class TimeIndex:
    """The entries of one segment."""

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
        return b"".join([_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs])

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Read the content of a file. Raises ValueError if the bytes cannot be a time index."""
        if len(data) % ENTRY_BYTES:
            raise ValueError(
                f"the time index has {len(data)} bytes, expected a multiple of {ENTRY_BYTES}"
            )
        fields = unpack(">" + "qI" * (len(data) // ENTRY_BYTES), data)
        index = cls()
        index.timestamps = array("q", fields[0::2])
        index.offsets = array("I", fields[1::2])
        if not rises(index.timestamps) or not rises(index.offsets):
            raise ValueError("the entries of the time index do not rise")
        return index
