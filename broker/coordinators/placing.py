"""In which partition of a coordinator's topic the facts of a key lie, as Kafka's clients count too.

Floor: coordinators. Pure.
"""

from __future__ import annotations

import sys
from functools import lru_cache

PLACED_COUNT = 256
"""Groups whose place is remembered: every request asks for it, and a long name takes long."""

NATIVE_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


@lru_cache(PLACED_COUNT)
def shard_of(group_id: str, shard_count: int) -> int:
    """The partition of the offsets topic that holds a group: Java's hash of the name."""
    value = 0
    # Java's characters are the units of UTF-16.
    for unit in memoryview(group_id.encode(NATIVE_UTF_16, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # Java cannot negate its smallest number; Kafka takes 0 for it.
    return 0 if signed == -(1 << 31) else abs(signed) % shard_count
