"""The evidence of a file, computed block by block, always matches the file's content."""

import itertools
import random

import crc32c

from collector.text.fingerprint import (
    Evidence,
    Mark,
    digest_of,
    extend_trail,
    heads_of,
    marks_within,
    resume,
)


def test_evidence_does_not_depend_on_how_the_bytes_were_cut() -> None:
    rng = random.Random(7)
    data = rng.randbytes(9000)
    for _ in range(20):
        evidence, position = Evidence(), 0
        while position < len(data):
            step = rng.choice((1, 63, 500, 1024, 5000))
            evidence = evidence.advance(data[position : position + step])
            position = min(position + step, len(data))
            found = evidence.fingerprint()
            assert found.position == position
            assert found.heads == heads_of(data[: min(position, 4096)])
            assert found.marker == digest_of(data[max(0, position - 1024) : position])
            assert found.crc == crc32c.crc32c(data[:position])


def test_heads_are_kept_at_short_lengths_too() -> None:
    assert [head.length for head in heads_of(b"x" * 2000)] == [64, 256, 1024, 2000]
    assert [head.length for head in heads_of(b"x" * 64)] == [64]
    assert heads_of(b"") == ()


def test_head_within_takes_the_longest_that_reaches() -> None:
    found = Evidence().advance(b"y" * 5000).fingerprint()
    head = found.head_within(300)
    assert head is not None and head.length == 256
    assert found.head_within(63) is None


def test_resumed_evidence_goes_on_as_if_never_stopped() -> None:
    data = random.Random(8).randbytes(12_000)
    for cut in (1, 100, 1024, 4095, 4096, 7000):
        before = Evidence().advance(data[:cut])
        tail = data[max(0, cut - 1024) : cut]
        again = resume(before.fingerprint(), data[: min(cut, 4096)], tail)
        assert (
            again.advance(data[cut:]).fingerprint() == before.advance(data[cut:]).fingerprint()
        ), cut


def test_marks_within_a_stretch_are_those_that_reading_bit_by_bit_leaves() -> None:
    data = random.Random(3).randbytes(40_000)
    marks = marks_within(data, 1_000_000)
    assert [1_000_000 - mark.position for mark in marks] == [32_768, 16_384, 8192, 4096]
    for mark in marks:
        before = Evidence().advance(data[: mark.position - 960_000]).fingerprint()
        assert mark.digest == before.marker[: len(mark.digest)]
    assert marks_within(data[:5000], 5000) == []


def test_trail_keeps_marks_at_doubling_distances() -> None:
    trail: tuple[Mark, ...] = ()
    for position in range(100, 100_000, 100):
        trail = extend_trail(trail, [Mark(position, b"")], position + 100)
    distances = [100_000 - mark.position for mark in trail]
    assert 5 <= len(trail) <= 8
    assert all(first > second for first, second in itertools.pairwise(distances))
    assert distances[0] >= 8192
