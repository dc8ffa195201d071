"""The last minutes of every log end offset and commit, from which rates and ages are computed.

This module is pure: the time is an argument. Each series has a maximum duration and a maximum
number of samples. While an offset does not change, only the first and the last sample are kept, so
that a quiet topic does not lose its older samples. A series starts again when its value falls,
because the log was truncated or the topic was created again.
"""

from collections.abc import Collection, Hashable, ItemsView, Iterable
from typing import Generic, TypeVar

from monitor.lag.offset_series import NO_SAMPLES, Series

WINDOW_MS = 30 * 60 * 1000
SAMPLES_MAX = 1_000
SAMPLES_MIN = 2

Key = TypeVar("Key", bound=Hashable)


class History(Generic[Key]):
    """Series of offsets by key. The offsets of a series never fall."""

    def __init__(
        self,
        *,
        window_ms: int = WINDOW_MS,
        samples_max: int = SAMPLES_MAX,
        samples_min: int = SAMPLES_MIN,
    ) -> None:
        """Keep `samples_min` samples of a series even if they are older than the window."""
        self._window_ms = window_ms
        self._samples_max = samples_max
        self._samples_min = samples_min
        self._series: dict[Key, Series] = {}

    def add(self, key: Key, at_ms: int, offset: int) -> None:
        """Add an offset; ignore a sample that is older than the last one."""
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
        """Return every series with its key, so that the caller can store them in another form."""
        return self._series.items()

    def restore(self, series: Iterable[tuple[Key, Series]]) -> None:
        """Add the series that `items` returned."""
        self._series.update(series)

    def samples(self, key: Key) -> Series:
        """Return one series; the caller must not keep it."""
        return self._series.get(key, NO_SAMPLES)

    def rate_per_s(self, key: Key, span_ms: int, now_ms: int) -> float | None:
        """Return the rate in offsets a second over the last `span_ms`; None if there are fewer than
        2 samples.

        The value at the beginning of the span is interpolated, because samples within an unchanged
        run are not kept.
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
        """Drop every series whose key is not among `keys`."""
        for key in [key for key in self._series if key not in keys]:
            del self._series[key]
