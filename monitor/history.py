"""The last minutes of every offset the monitor saw: rates, and ages where no record was read.

Floor: pure; time comes in as an argument. A list per series, bounded in time and in samples: there
are hundreds of thousands of short ones, and an empty deque takes 600 bytes. Of a flat run only its
first and last sample are kept, so that a quiet topic does not push its past out. A value that falls
(truncation, a topic made anew) starts its series again.
"""

from collections.abc import Collection, Hashable, ItemsView, Iterable, Sequence
from typing import Generic, TypeVar

from monitor.lag import EndSample

WINDOW_MS = 30 * 60 * 1000
SAMPLES_MAX = 1_000
SAMPLES_MIN = 2

Key = TypeVar("Key", bound=Hashable)


class History(Generic[Key]):
    """Offset series by key, each `(epoch milliseconds, offset)` with rising values."""

    def __init__(
        self,
        *,
        window_ms: int = WINDOW_MS,
        samples_max: int = SAMPLES_MAX,
        samples_min: int = SAMPLES_MIN,
    ) -> None:
        """A series keeps `samples_min` samples also when they are older than its window."""
        self._window_ms = window_ms
        self._samples_max = samples_max
        self._samples_min = samples_min
        self._series: dict[Key, list[EndSample]] = {}

    def add(self, key: Key, at_ms: int, offset: int) -> None:
        """Note an offset; a sample from the past is ignored."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = []
        if series and offset < series[-1].end_offset:
            series.clear()
        if series and at_ms <= series[-1].at_ms:
            return
        flat = len(series) >= 2 and series[-1].end_offset == series[-2].end_offset == offset
        if flat:
            series.pop()
        series.append(EndSample(at_ms, offset))
        if len(series) > self._samples_max:
            del series[0]
        while len(series) > self._samples_min and series[1].at_ms < at_ms - self._window_ms:
            del series[0]

    def items(self) -> ItemsView[Key, list[EndSample]]:
        """Every series with its samples, for whoever keeps them elsewhere."""
        return self._series.items()

    def restore(self, series: Iterable[tuple[Key, list[EndSample]]]) -> None:
        """Take up what `items` gave."""
        self._series.update(series)

    def samples(self, key: Key) -> Sequence[EndSample]:
        """Every sample kept of one series, oldest first; to be read and not to be kept."""
        return self._series.get(key, ())

    def rate_per_s(self, key: Key, span_ms: int, now_ms: int) -> float | None:
        """Offsets a second over the last `span_ms`; None while there are fewer than 2 samples.

        The value at the span's beginning is interpolated, since flat runs keep no inner samples.
        """
        series = self._series.get(key)
        if series is None or len(series) < 2:
            return None
        begin_ms = max(now_ms - span_ms, series[0].at_ms)
        elapsed_ms = series[-1].at_ms - begin_ms
        if elapsed_ms <= 0:
            return 0.0
        return (series[-1].end_offset - _value_at(series, begin_ms)) * 1000 / elapsed_ms

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget every series that is not among `keys`."""
        for key in [key for key in self._series if key not in keys]:
            del self._series[key]


def _value_at(series: Sequence[EndSample], at_ms: int) -> float:
    indices: Iterable[int] = range(len(series) - 1, 0, -1)
    # From the nearer end: a series that is hardly longer than the span begins where it does.
    if at_ms - series[0].at_ms < series[-1].at_ms - at_ms:
        indices = range(1, len(series))
    for index in indices:
        earlier, later = series[index - 1], series[index]
        if earlier.at_ms <= at_ms <= later.at_ms:
            share = (at_ms - earlier.at_ms) / (later.at_ms - earlier.at_ms)
            return earlier.end_offset + share * (later.end_offset - earlier.end_offset)
    return series[-1].end_offset
