"""Writes lines at a fixed rate, and measures when each line was counted or arrived elsewhere.

The writer notes the number of lines in the file and the time after each write. A follower notes the
number of lines that have arrived, and when. All lines of one file have the same key, so they keep
their order. Line n has arrived once the follower's number reaches n.
"""

import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

import redis

from bench.figures import percentile
from bench.measurement import Figures

TICK_S = 0.001
POLL_S = 0.05
BLOCK_LINES = 1_000
BLOCKS = 32
COUNTS_MIN = 8
COUNTED_DEADLINE_S = 120.0

CHANNEL = "mill:updates"
COUNTS = "mill:lines_by_file:all"


class Source(Protocol):
    """A source of lines."""

    def at(self, moment: datetime, count: int) -> bytes:
        """Return complete lines of one second."""
        ...


class Follower(ABC):
    """A thread that follows how many lines have arrived.

    `times[i]` is when the number first reached `counts[i]`.
    """

    def __init__(self, what: str) -> None:
        self.counts: list[int] = [0]
        self.times: list[float] = [time.perf_counter()]
        self._what = what
        self._ends = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    @property
    def latest(self) -> int:
        """Return how many lines have arrived by now."""
        return self.counts[-1]

    @abstractmethod
    def looks(self) -> Generator[int, None, None]:
        """Yield again and again how many lines have arrived. Closing the generator releases its
        resources."""

    def _follow(self) -> None:
        with closing(self.looks()) as looks:
            for count in looks:
                if count > self.counts[-1]:
                    self.times.append(time.perf_counter())
                    self.counts.append(count)
                self._begun.set()
                if self._ends.is_set():
                    return

    def wait_for(self, count: int) -> None:
        """Wait until this many lines have arrived. Raises TimeoutError if the number stops
        rising."""
        end_s, seen = time.monotonic() + COUNTED_DEADLINE_S, self.latest
        while self.latest < count:
            if self.latest > seen:
                end_s, seen = time.monotonic() + COUNTED_DEADLINE_S, self.latest
            if time.monotonic() > end_s:
                raise TimeoutError(
                    f"only {self.latest} of {count} lines of {self._what} were counted in time"
                )
            time.sleep(POLL_S)
        if self.latest > count:
            raise AssertionError(f"{self.latest} lines were counted, but only {count} were written")

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(10)


class Counted(Follower):
    """Follows the count of one file's lines in Redis."""

    def __init__(self, port: int, file: str) -> None:
        super().__init__(file)
        self._port = port

    def looks(self) -> Generator[int, None, None]:
        """Yield the count after each batch that the stream announces."""
        with redis.Redis(port=self._port, decode_responses=True) as client:
            # redis-py has no types for this.
            open_channel: Callable[..., Any] = client.pubsub
            with open_channel(ignore_subscribe_messages=True) as messages:
                messages.subscribe(CHANNEL)
                while True:
                    messages.get_message(timeout=POLL_S)
                    yield int(client.hget(COUNTS, self._what) or 0)


class Paced:
    """A file that grows at a fixed rate, with a follower of its lines."""

    def __init__(self, path: Path, source: Source, follower: Callable[[], Follower]) -> None:
        self._path = path
        self._source = source
        self._follower = follower

    def latency(self, rate: int, seconds: float) -> Figures:
        """Write at `rate`, and return p50 and p99 of the latency over all lines. The latency of a
        line begins just before its write."""
        written: list[tuple[float, int]] = []
        with self._follower() as counted, self._path.open("ab", 0) as out:
            first = counted.latest
            total, began_s = first, time.perf_counter()
            while (elapsed_s := time.perf_counter() - began_s) < seconds:
                due = first + int(elapsed_s * rate)
                if due > total:
                    block = self._source.at(datetime.now(UTC), due - total)
                    total = due
                    written.append((time.perf_counter(), total))
                    out.write(block)
                time.sleep(TICK_S)
            counted.wait_for(total)
        waits = sorted(latencies(written, first, counted.counts, counted.times))
        return {
            "p50_ms": percentile(waits, 0.5) * 1e3,
            "p99_ms": percentile(waits, 0.99) * 1e3,
            "max_ms": waits[-1] * 1e3,
            "lines_per_s": (total - first) / seconds,
        }

    def sustained(self, seconds: float, ahead: int) -> Figures:
        """Write lines as fast as they are counted, at most `ahead` lines ahead. Return the rate of
        counting.

        The first third of the time is left out, because at first no line has been counted yet. If
        too few batches end within `seconds`, writing continues until enough have ended.
        """
        blocks = [self._source.at(datetime.now(UTC), BLOCK_LINES) for _ in range(BLOCKS)]
        with self._follower() as counted, self._path.open("ab", 0) as out:
            total, number, began_s = counted.latest, 0, time.perf_counter()
            while (elapsed_s := time.perf_counter() - began_s) < seconds or (
                len(counted.counts) < COUNTS_MIN and elapsed_s < COUNTED_DEADLINE_S
            ):
                if total - counted.latest > ahead:
                    time.sleep(TICK_S)
                    continue
                out.write(blocks[number % BLOCKS])
                total, number = total + BLOCK_LINES, number + 1
            counts, times = list(counted.counts), list(counted.times)
            counted.wait_for(total)
        begin = bisect_left(times, began_s + elapsed_s / 3)
        end = min(len(counts), len(times)) - 1
        if end <= begin:
            raise TimeoutError(f"the mill counted fewer than two batches in {elapsed_s:.0f} s")
        return {"lines_per_s": (counts[end] - counts[begin]) / (times[end] - times[begin])}


def latencies(
    written: Sequence[tuple[float, int]],
    first: int,
    counts: Sequence[int],
    times: Sequence[float],
) -> Iterator[float]:
    """Return the time from write to count for each line.

    `written` has, for each write, the time before the write and the number of lines in the file
    after it. The first `first` lines were in the file before and are ignored. If the lines of one
    write were counted in two steps, all of them get the time of the later step.
    """
    before = first
    for written_s, total in written:
        seen_s = times[bisect_left(counts, total)]
        for _ in range(total - before):
            yield seen_s - written_s
        before = total
