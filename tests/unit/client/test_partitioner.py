"""Keys go to the same partitions as with Java's producer. Records without a key share a partition
for a while."""

import random

import pytest

from protocol.client.partitioner import StickyPartitioner, murmur2, partition_for_key
from tests.harness.seed import seeded

# The vectors of the test of `Utils.murmur2` in Kafka's Java client.
VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), VECTORS)
def test_murmur2_is_java_s(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_every_length_agrees_with_two_other_clients() -> None:
    import aiokafka.partitioner
    import kafka.partitioner.default

    rng = seeded("murmur2")
    for length in range(70):
        key = rng.randbytes(length)
        assert murmur2(key) == aiokafka.partitioner.murmur2(key) & 0xFFFFFFFF
        assert murmur2(key) == kafka.partitioner.default.murmur2(key) & 0xFFFFFFFF
        assert 0 <= partition_for_key(key, 7) < 7


def test_sticky_stays_until_switched_and_then_moves() -> None:
    sticky = StickyPartitioner(random.Random(1))
    partitions = (0, 1, 2)
    first = sticky.current("t", partitions)
    assert [sticky.current("t", partitions) for _ in range(5)] == [first] * 5
    for _ in range(20):
        before = sticky.current("t", partitions)
        assert sticky.switch("t", partitions) != before


def test_sticky_leaves_a_partition_without_a_leader() -> None:
    sticky = StickyPartitioner(random.Random(1))
    first = sticky.current("t", (0, 1))
    others = tuple(p for p in (0, 1) if p != first)
    assert sticky.current("t", others) == others[0]
    assert sticky.switch("t", others) == others[0]
