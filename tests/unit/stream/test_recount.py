"""Which offsets a recount takes next."""

from sinks.rows import OffsetRange
from stream.recount import highest


def test_the_last_offsets_of_every_gap_as_many_of_each() -> None:
    gaps = [OffsetRange("t", 0, 5, 100), OffsetRange("t", 1, 0, 3)]
    assert highest(gaps, 20) == (OffsetRange("t", 0, 90, 100), OffsetRange("t", 1, 0, 3))


def test_at_least_one_of_each() -> None:
    gaps = [OffsetRange("t", part, 0, 9) for part in range(5)]
    assert highest(gaps, 3) == tuple(OffsetRange("t", part, 8, 9) for part in range(5))
