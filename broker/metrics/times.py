"""How long things take: requests by API and phase, syncs, and the loop's own lateness.

Floor: metrics. A clock reading costs a small request a few hundredths of its time, so only every
sixteenth Produce and Fetch is timed, and every request of the other APIs; all are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocol.messages.api import ApiKey

BUCKET_BITS = (14, 16, 18, 20, 22, 24, 26, 28, 30, 33)
"""Upper bounds of the published buckets as powers of two of nanoseconds: 16 us to 8.6 s."""

_BITS_MAX = 40
_SAMPLED = {ApiKey.PRODUCE: 15, ApiKey.FETCH: 15}

PHASES = ("queue", "local", "remote", "send")


class Times:
    """Durations, counted in powers of two of nanoseconds."""

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
        """The duration that this share of all stays below, exact to a factor of two; 0: none."""
        wanted = self.count * share
        seen = 0
        for bits, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return int(min(1 << bits, self.max_ns))
        return 0

    def text(self, name: str, labels: str = "") -> Iterator[str]:
        """The lines of one Prometheus histogram in seconds; `labels` without braces."""
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
    """One API's requests: all counted, some timed.

    `queue`: from the end of its arrival until it starts. `local`: in its handler. `remote`: from
    there until its answer is ready, when that is later: the write at the end of a read, a sync,
    other people's data. `send`: until the kernel has taken the answer.
    """

    __slots__ = ("count", "local", "mask", "name", "now_ns", "queue", "remote", "send")

    def __init__(self, key: ApiKey, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.name = key.name.lower()
        self.count = 0
        self.mask = _SAMPLED.get(key, 0)
        """A request is timed when its number has none of these bits."""
        self.queue = Times()
        self.local = Times()
        self.remote = Times()
        self.send = Times()

    def phase(self, name: str) -> Times:
        """The times of one of PHASES."""
        found: Times = getattr(self, name)
        return found


class Timing:
    """One request that is timed, from its start until its answer has left."""

    __slots__ = ("_since_ns", "_times", "is_handled")

    def __init__(self, times: ApiTimes, waited_ns: int) -> None:
        times.queue.add(waited_ns)
        self._times = times
        self._since_ns = times.now_ns()
        self.is_handled = False

    def handled(self) -> None:
        """The handler has returned."""
        if not self.is_handled:
            self.is_handled = True
            self._take(self._times.local)

    def ready(self) -> None:
        """The answer is there; the handler may have given it from inside."""
        if self.is_handled:
            self._take(self._times.remote)
        else:
            self.handled()

    def sent(self) -> None:
        """The kernel has the answer."""
        self._take(self._times.send)

    def _take(self, times: Times) -> None:
        now_ns = self._times.now_ns()
        times.add(now_ns - self._since_ns)
        self._since_ns = now_ns
