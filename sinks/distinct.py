"""Sketches of distinct values: exact sets for few values, HyperLogLog for many.

This module is pure. A value is represented by 64 bits of its hash, its *word*: the low 26 bits of
the first half of a MurmurHash3 (128 bits, seed 9001), then the high 38 bits of the second half. An
HLL sketch of Apache DataSketches reads the same bits. So a set of words can be converted to an HLL
sketch, and united with sketches that older versions stored. `java/Distinct.java` writes the same
octets.

A sketch that begins with `E` is the sorted set of words. If it begins with `M`, it is an HLL sketch
of more than UNIQUE_EXACT_MAX values. Any other is an HLL sketch that an older version wrote. The
order and the batches in which values came do not change a union, because registers are maxima and
the estimate uses only the registers.
"""

import struct
from collections.abc import Sequence

import datasketches
import numpy as np
from numpy.typing import NDArray

from sinks.estimates import EXACT_MARK, UNIQUE_EXACT_MAX

HLL_LG_K = 12
MANY_MARK = b"M"
WORD_OCTETS = 8
_WORD = np.dtype(">u8")
# The number of low bits in a word that come from the second half of the hash.
_SECOND_BITS = 38

# The head of an HLL_8 image: preamble words, version, family, lg k, unused, flags, least value,
# mode; the running estimate, two sums of 2^-register (for registers below 32, and above), the
# number of registers that are 0, and the number of exceptions, which HLL_8 does not have.
_HEAD = struct.Struct("<8B3d2i")
_PREAMBLE, _VERSION, _FAMILY = 10, 1, 7
# The flags "compact" and "out of order". The second flag makes readers estimate from the registers
# alone.
_FLAGS = 8 | 16
_MODE_HLL_8 = 2 | 2 << 2
# The head has one sum for registers below this value, and one for all others.
_HIGH_REGISTER = 32

_Words = NDArray[np.uint64]


def unite(sketches: Sequence[bytes]) -> bytes | None:
    """Return one sketch of all values; None if there are no sketches."""
    if len(sketches) < 2:
        return sketches[0] if sketches else None
    exact = [sketch for sketch in sketches if sketch.startswith(EXACT_MARK)]
    others = [sketch for sketch in sketches if not sketch.startswith(EXACT_MARK)]
    words = np.unique(np.concatenate([_words(one) for one in exact])) if exact else None
    if not others:
        assert words is not None
        return _written(words)
    union = datasketches.hll_union(HLL_LG_K)
    if words is not None:
        union.update(datasketches.hll_sketch.deserialize(_image(words)))
    for sketch in others:
        union.update(_hll(sketch))
    is_many = any(sketch.startswith(MANY_MARK) for sketch in others)
    if words is not None and len(words) > UNIQUE_EXACT_MAX:
        is_many = True
    united = bytes(union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact())
    return MANY_MARK + united if is_many else united


def number_of(sketch: bytes) -> int:
    """Return the number of distinct values in a sketch."""
    if sketch.startswith(EXACT_MARK):
        return (len(sketch) - 1) // WORD_OCTETS
    estimate: float = _hll(sketch).get_estimate()
    least = UNIQUE_EXACT_MAX + 1 if sketch.startswith(MANY_MARK) else 0
    return max(least, round(estimate))


def is_estimate(sketch: bytes) -> bool:
    """Tell whether the number of a sketch is an estimate."""
    return not sketch.startswith(EXACT_MARK)


def _words(sketch: bytes) -> _Words:
    return np.frombuffer(sketch, _WORD, offset=1).astype(np.uint64)


def _written(words: _Words) -> bytes:
    """Return sorted words as a sketch."""
    if len(words) <= UNIQUE_EXACT_MAX:
        return EXACT_MARK + words.astype(_WORD).tobytes()
    return MANY_MARK + _image(words)


def _hll(sketch: bytes) -> "datasketches.hll_sketch":
    return datasketches.hll_sketch.deserialize(sketch.removeprefix(MANY_MARK))


def _image(words: _Words) -> bytes:
    """Return an HLL_8 sketch of words in the format of DataSketches."""
    slots = (words >> np.uint64(_SECOND_BITS)) & np.uint64((1 << HLL_LG_K) - 1)
    second = words & np.uint64((1 << _SECOND_BITS) - 1)
    # frexp returns the number of bits of each number, 0 for 0. It is exact, because a double has 53
    # bits and these numbers have 38.
    _, lengths = np.frexp(second.astype(np.float64))
    registers = np.zeros(1 << HLL_LG_K, np.uint8)
    np.maximum.at(registers, slots.astype(np.int64), (_SECOND_BITS + 1 - lengths).astype(np.uint8))
    powers = np.exp2(-registers.astype(np.float64))
    is_low = registers < _HIGH_REGISTER
    head = _HEAD.pack(
        _PREAMBLE, _VERSION, _FAMILY, HLL_LG_K, 0, _FLAGS, 0, _MODE_HLL_8,
        0.0, float(powers[is_low].sum()), float(powers[~is_low].sum()),
        int((registers == 0).sum()), 0,
    )  # fmt: skip
    return head + registers.tobytes()
