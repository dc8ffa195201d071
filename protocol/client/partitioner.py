"""Which partition a record goes to: by its key exactly as Java's producer does it, else sticky.

Floor: client. Pure: chance is passed in.
"""

import random
from collections.abc import Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of Java's `Utils.murmur2`, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length & 3:
        # Java switches through the remaining bytes, which is this little-endian number.
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key: all clients that follow Java agree on it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Keyless records of a topic share one partition until its batch is full (KIP-480).

    So batches fill up however many partitions there are. The caller tells by `switch` that the
    next record would begin another batch.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._current: dict[str, int] = {}

    def current(self, topic: str, available: Sequence[int]) -> int:
        """The topic's partition for the time being; `available` (those led by somebody) rules."""
        partition = self._current.get(topic)
        if partition is None or partition not in available:
            return self.switch(topic, available)
        return partition

    def switch(self, topic: str, available: Sequence[int]) -> int:
        """Choose another of the available partitions by chance, and stay there."""
        previous = self._current.get(topic)
        others = [partition for partition in available if partition != previous]
        partition = self._rng.choice(others) if others else available[0]
        self._current[topic] = partition
        return partition
