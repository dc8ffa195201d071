"""One offset over time: the end of a log or a commit at several moments.

This module is pure; `rules` and `offset_history` use it. A series has two arrays and no sample
objects, to save memory, because there are hundreds of thousands of short series. Times rise and
offsets do not fall.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Series:
    """A series of offsets: Unix milliseconds in `times`, the values in `offsets`, oldest first."""

    __slots__ = ("offsets", "times")

    def __init__(self, samples: Iterable[tuple[int, int]] = ()) -> None:
        self.times = array("q")
        self.offsets = array("q")
        for at_ms, offset in samples:
            self.times.append(at_ms)
            self.offsets.append(offset)

    @classmethod
    def of(cls, times: "array[int]", offsets: "array[int]") -> "Series":
        """Return a series of these two columns. The caller must not change them afterwards."""
        made = cls()
        made.times, made.offsets = times, offsets
        return made

    def __len__(self) -> int:
        return len(self.times)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        return self.times == other.times and self.offsets == other.offsets

    @property
    def span_ms(self) -> int:
        """The time from the first sample to the last, in milliseconds."""
        return self.times[-1] - self.times[0] if self.times else 0

    def passed_at_ms(self, offset: int) -> float | None:
        """Return the interpolated time at which the series rose above `offset`; None outside its
        samples.
        """
        later = bisect_right(self.offsets, offset)
        if later in (0, len(self.offsets)):
            return None
        low, high = self.offsets[later - 1], self.offsets[later]
        begin_ms, end_ms = self.times[later - 1], self.times[later]
        return begin_ms + (offset - low) / (high - low) * (end_ms - begin_ms)

    def value_at(self, at_ms: int) -> float:
        """Return the interpolated offset at a moment after the first sample."""
        later = max(1, bisect_left(self.times, at_ms))
        if later >= len(self.times):
            return self.offsets[-1]
        begin_ms, end_ms = self.times[later - 1], self.times[later]
        low, high = self.offsets[later - 1], self.offsets[later]
        return low + (at_ms - begin_ms) / (end_ms - begin_ms) * (high - low)


NO_SAMPLES = Series()
"""The empty series, for keys without samples. Never add a sample to it."""
