"""Chooses a record's partition: by its key as Java's producer does, or sticky without a key.

This module is pure: the random source is an argument.
"""

import random
from collections.abc import Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the same 32-bit hash as Java's `Utils.murmur2`, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length & 3:
        # Java reads the remaining bytes in a switch statement, with the same little-endian result.
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key. All clients that follow Java choose the same partition."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Puts the records of a topic without keys in one partition until a batch is full (KIP-480).

    So batches fill up even if there are many partitions. The caller calls `switch` if the next
    record would start another batch.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._current: dict[str, int] = {}

    def current(self, topic: str, available: Sequence[int]) -> int:
        """Return the topic's current partition.

        Choose another if it has no leader (not in `available`).
        """
        partition = self._current.get(topic)
        if partition is None or partition not in available:
            return self.switch(topic, available)
        return partition

    def switch(self, topic: str, available: Sequence[int]) -> int:
        """Choose another available partition at random for the next records."""
        previous = self._current.get(topic)
        others = [partition for partition in available if partition != previous]
        partition = self._rng.choice(others) if others else available[0]
        self._current[topic] = partition
        return partition
