"""The newest offset of each key in the part of a log being cleaned, in limited memory.

This module is pure. A key of 16 bytes or more is stored as its 16-byte BLAKE2 digest, so that long
keys cost no more than short ones. A shorter key is stored as it is, so it cannot equal a digest.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 16
ENTRY_BYTES = 200
"""The memory that one key takes in a dictionary, measured with digests and offsets above 2^30,
rounded up."""


class OffsetMap:
    """The newest offset of each key.

    A full map refuses new keys, but still updates the offsets of the keys that it has.
    """

    __slots__ = ("_newest", "_room", "end_offset")

    def __init__(self, limit_bytes: int) -> None:
        self._newest: dict[bytes, int] = {}
        self._room = max(limit_bytes // ENTRY_BYTES, 1)
        self.end_offset = 0
        """Records from this offset on are not in the map and must be kept, whatever their key."""

    def __len__(self) -> int:
        return len(self._newest)

    def put(self, key: bytes, offset: int) -> bool:
        """Add a record.

        Call this in the order of offsets. Return False if the map is full and does not have the
        key.
        """
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        newest = self._newest
        if len(newest) >= self._room and key not in newest:
            return False
        newest[key] = offset
        return True

    def newest(self, key: bytes) -> int:
        """Return the newest offset of a key, or -1 if the key does not occur."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._newest.get(key, -1)
