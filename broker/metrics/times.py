"""Durations of requests by API and phase, of fsyncs, and of delays of the event loop.

Reading the clock costs a few percent of the time of a small request. So only every sixteenth
Produce and Fetch is measured, and every request of the other APIs. All requests are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocol.messages.api import ApiKey

BUCKET_BITS = (14, 16, 18, 20, 22, 24, 26, 28, 30, 33)
"""The upper bounds of the published buckets, as powers of two of nanoseconds: 16 us to 8.6 s."""

_BITS_MAX = 40
_SAMPLED = {ApiKey.PRODUCE: 15, ApiKey.FETCH: 15}

PHASES = ("queue", "local", "remote", "send")


class Times:
    """A histogram of durations, with a bucket for each power of two of nanoseconds."""

    __slots__ = ("buckets", "count", "max_ns", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * (_BITS_MAX + 1)
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration."""
        self.buckets[min(duration_ns.bit_length(), _BITS_MAX)] += 1
        self.count += 1
        self.total_ns += duration_ns
        if duration_ns > self.max_ns:
            self.max_ns = duration_ns

    def quantile_ns(self, share: float) -> int:
        """Return the duration below which this share of all durations lies, correct to a factor of
        two; 0 if there are none."""
        wanted = self.count * share
        seen = 0
        for bits, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return int(min(1 << bits, self.max_ns))
        return 0

    def text(self, name: str, labels: str = "") -> Iterator[str]:
        """Yield the lines of one Prometheus histogram in seconds. `labels` have no braces."""
        comma = "," if labels else ""
        seen, start = 0, 0
        for bits in BUCKET_BITS:
            seen += sum(self.buckets[start : bits + 1])
            start = bits + 1
            yield f'{name}_bucket{{{labels}{comma}le="{(1 << bits) / 1e9:g}"}} {seen}'
        yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {self.count}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total_ns / 1e9:.9f}"
        yield f"{name}_count{braces} {self.count}"


class ApiTimes:
    """The counts and times of the requests of one API. All requests are counted, some are measured.

    `queue`: from arrival until the request starts. `local`: in its handler. `remote`: from the end
    of the handler until the answer is ready, for example because of an fsync or because the answer
    waits for records of other clients. `send`: until the kernel has taken the answer.
    """

    __slots__ = ("count", "local", "mask", "name", "now_ns", "queue", "remote", "send")

    def __init__(self, key: ApiKey, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.name = key.name.lower()
        self.count = 0
        self.mask = _SAMPLED.get(key, 0)
        """A bit mask. A request is measured if its number has none of these bits set."""
        self.queue = Times()
        self.local = Times()
        self.remote = Times()
        self.send = Times()

    def phase(self, name: str) -> Times:
        """Return the times of one of the phases in PHASES."""
        found: Times = getattr(self, name)
        return found


class RequestTiming:
    """The measurement of one request, from its start until its answer has been sent."""

    __slots__ = ("_since_ns", "_times", "is_handled")

    def __init__(self, times: ApiTimes, waited_ns: int) -> None:
        times.queue.add(waited_ns)
        self._times = times
        self._since_ns = times.now_ns()
        self.is_handled = False

    def handled(self) -> None:
        """Record that the handler has returned."""
        if not self.is_handled:
            self.is_handled = True
            self._take(self._times.local)

    def ready(self) -> None:
        """Record that the answer is ready. This can happen before the handler has returned."""
        if self.is_handled:
            self._take(self._times.remote)
        else:
            self.handled()

    def sent(self) -> None:
        """Record that the kernel has taken the answer."""
        self._take(self._times.send)

    def _take(self, times: Times) -> None:
        now_ns = self._times.now_ns()
        times.add(now_ns - self._since_ns)
        self._since_ns = now_ns
