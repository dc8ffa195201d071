"""Maps keys to partitions of a coordinator's topic, as Kafka's clients do.

This module is pure.
"""

from __future__ import annotations

import sys
from functools import lru_cache

PLACED_COUNT = 256
"""The number of group names whose partition is cached.

Every request needs the partition of its group, and a long name takes long to hash.
"""

NATIVE_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


@lru_cache(PLACED_COUNT)
def shard_of(group_id: str, shard_count: int) -> int:
    """Return the partition of the offsets topic for a group, computed from Java's hash of the
    group's name."""
    value = 0
    # Java's characters are UTF-16 units.
    for unit in memoryview(group_id.encode(NATIVE_UTF_16, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # In Java the absolute value of the smallest number is negative, so Kafka uses 0 for it.
    return 0 if signed == -(1 << 31) else abs(signed) % shard_count
