"""MurmurHash3 with 128 bits in Python, independent of the stream's code, and words made from it."""

from collections.abc import Iterable

from sinks.distinct import unite
from sinks.estimates import EXACT_MARK, UNIQUE_EXACT_MAX

SEED = 9001
_BITS = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def word_of(value: str) -> int:
    """Return the 64 bits that `sinks/distinct.py` stores for a value. They are never 0."""
    first, second = murmur3(value.encode() or b"\xff")
    return ((first & 0x3FFFFFF) << 38 | second >> 26) or 1


def sketch_of(words: Iterable[int]) -> bytes:
    """Return the sketch of some words. It is merged from sets that are small enough to be exact."""
    ordered = sorted(set(words))
    parts = [
        EXACT_MARK + b"".join(word.to_bytes(8, "big") for word in ordered[at:][:UNIQUE_EXACT_MAX])
        for at in range(0, max(1, len(ordered)), UNIQUE_EXACT_MAX)
    ]
    united = unite(parts)
    assert united is not None
    return united


def murmur3(octets: bytes, seed: int = SEED) -> tuple[int, int]:
    """Return both halves of the hash of some bytes."""
    h1 = h2 = seed
    whole = len(octets) - len(octets) % 16
    for at in range(0, whole, 16):
        k1, k2 = (int.from_bytes(octets[at + b : at + b + 8], "little") for b in (0, 8))
        h1 = (_rotated(h1 ^ _first(k1), 27) + h2) * 5 + 0x52DCE729 & _BITS
        h2 = (_rotated(h2 ^ _second(k2), 31) + h1) * 5 + 0x38495AB5 & _BITS
    h1 ^= _first(int.from_bytes(octets[whole : whole + 8], "little"))
    h2 ^= _second(int.from_bytes(octets[whole + 8 :], "little"))
    h1, h2 = h1 ^ len(octets), h2 ^ len(octets)
    h1 = h1 + h2 & _BITS
    h2 = h2 + h1 & _BITS
    h1, h2 = _mixed(h1), _mixed(h2)
    h1 = h1 + h2 & _BITS
    return h1, h2 + h1 & _BITS


def _first(k: int) -> int:
    return _rotated(k * _C1 & _BITS, 31) * _C2 & _BITS


def _second(k: int) -> int:
    return _rotated(k * _C2 & _BITS, 33) * _C1 & _BITS


def _rotated(x: int, by: int) -> int:
    return (x << by | x >> 64 - by) & _BITS


def _mixed(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _BITS
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _BITS
    return x ^ x >> 33
