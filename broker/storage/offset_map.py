"""The newest offset of each key in the stretch being cleaned, within a bound of memory.

Floor: storage. Pure. A key of 16 bytes and more is known by its BLAKE2 digest of 16 bytes, so that
long keys cost no more than short ones; a shorter key is itself, and never as long as a digest.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 16
ENTRY_BYTES = 200
"""What one key takes in a dictionary, measured with digests and offsets beyond 2^30, rounded up."""


class OffsetMap:
    """Keys and their newest offsets. Refuses new keys when full, never those it knows."""

    __slots__ = ("_newest", "_room", "end_offset")

    def __init__(self, limit_bytes: int) -> None:
        self._newest: dict[bytes, int] = {}
        self._room = max(limit_bytes // ENTRY_BYTES, 1)
        self.end_offset = 0
        """Records from here on are not in the map, and must be kept whatever their key."""

    def __len__(self) -> int:
        return len(self._newest)

    def put(self, key: bytes, offset: int) -> bool:
        """Note a record, in the order of offsets; False when there is no room for its key."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        newest = self._newest
        if len(newest) >= self._room and key not in newest:
            return False
        newest[key] = offset
        return True

    def newest(self, key: bytes) -> int:
        """The newest offset of a key, -1 when it does not occur."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._newest.get(key, -1)
