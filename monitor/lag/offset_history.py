"""The last minutes of every offset the monitor saw: rates, and ages where no record was read.

Floor: pure; time comes in as an argument. Each series is bounded in time and in samples. Of a flat
run only its first and last sample are kept, so that a quiet topic does not push its past out. A
value that falls (truncation, a topic made anew) starts its series again.
"""

from collections.abc import Collection, Hashable, ItemsView, Iterable
from typing import Generic, TypeVar

from monitor.lag.offset_series import NO_SAMPLES, Series

WINDOW_MS = 30 * 60 * 1000
SAMPLES_MAX = 1_000
SAMPLES_MIN = 2

Key = TypeVar("Key", bound=Hashable)


class History(Generic[Key]):
    """Offset series by key, each with rising values."""

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
        self._series: dict[Key, Series] = {}

    def add(self, key: Key, at_ms: int, offset: int) -> None:
        """Note an offset; a sample from the past is ignored."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series()
        times, offsets = series.times, series.offsets
        if offsets and offset < offsets[-1]:
            del times[:], offsets[:]
        if times and at_ms <= times[-1]:
            return
        if len(offsets) >= 2 and offsets[-1] == offsets[-2] == offset:
            times[-1] = at_ms
        else:
            times.append(at_ms)
            offsets.append(offset)
        gone = max(0, len(times) - self._samples_max)
        oldest_ms = at_ms - self._window_ms
        while len(times) - gone > self._samples_min and times[gone + 1] < oldest_ms:
            gone += 1
        if gone:
            del times[:gone], offsets[:gone]

    def items(self) -> ItemsView[Key, Series]:
        """Every series, for whoever keeps them elsewhere."""
        return self._series.items()

    def restore(self, series: Iterable[tuple[Key, Series]]) -> None:
        """Take up what `items` gave."""
        self._series.update(series)

    def samples(self, key: Key) -> Series:
        """One series; to be read and not to be kept."""
        return self._series.get(key, NO_SAMPLES)

    def rate_per_s(self, key: Key, span_ms: int, now_ms: int) -> float | None:
        """Offsets a second over the last `span_ms`; None while there are fewer than 2 samples.

        The value at the span's beginning is interpolated, since flat runs keep no inner samples.
        """
        series = self._series.get(key)
        if series is None or len(series) < 2:
            return None
        begin_ms = max(now_ms - span_ms, series.times[0])
        elapsed_ms = series.times[-1] - begin_ms
        if elapsed_ms <= 0:
            return 0.0
        return (series.offsets[-1] - series.value_at(begin_ms)) * 1000 / elapsed_ms

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget every series that is not among `keys`."""
        for key in [key for key in self._series if key not in keys]:
            del self._series[key]
