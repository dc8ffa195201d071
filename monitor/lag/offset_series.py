"""One offset over time: the end of a log or a commit, as seen at some moments.

Floor: pure, the ground of `lag` and `history`. Two columns, for there are hundreds of thousands of
short ones and a thousand long ones; times rise, offsets do not fall.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Series:
    """Epoch milliseconds in `times` and the offsets of those moments, oldest first."""

    __slots__ = ("offsets", "times")

    def __init__(self, samples: Iterable[tuple[int, int]] = ()) -> None:
        self.times = array("q")
        self.offsets = array("q")
        for at_ms, offset in samples:
            self.times.append(at_ms)
            self.offsets.append(offset)

    @classmethod
    def of(cls, times: "array[int]", offsets: "array[int]") -> "Series":
        """A series over columns that are its own from now on."""
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
        """From the first sample to the last."""
        return self.times[-1] - self.times[0] if self.times else 0

    def passed_at_ms(self, offset: int) -> float | None:
        """When it rose above `offset`, interpolated; None where no two samples have it between."""
        later = bisect_right(self.offsets, offset)
        if later in (0, len(self.offsets)):
            return None
        low, high = self.offsets[later - 1], self.offsets[later]
        begin_ms, end_ms = self.times[later - 1], self.times[later]
        return begin_ms + (offset - low) / (high - low) * (end_ms - begin_ms)

    def value_at(self, at_ms: int) -> float:
        """The offset of a moment since the first sample, interpolated."""
        later = max(1, bisect_left(self.times, at_ms))
        if later >= len(self.times):
            return self.offsets[-1]
        begin_ms, end_ms = self.times[later - 1], self.times[later]
        low, high = self.offsets[later - 1], self.offsets[later]
        return low + (at_ms - begin_ms) / (end_ms - begin_ms) * (high - low)


NO_SAMPLES = Series()
"""Of what has never been seen; to be read and never added to."""
