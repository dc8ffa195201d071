"""Measures the latency of a thousand lines a second through the whole mill: alone, and while an old
file is counted.

If the old file goes to the partition of the live lines, the live lines wait behind its lines. So
the file is moved into the watched folder twice: once with a name that gives it another partition,
and once with a name that gives it the same partition. A case without live lines shows how much the
live lines slow down the old file.
"""

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.machine import trees_cpu_s
from bench.measurement import Figures, Goal, Measurement
from bench.mill import paced_file
from bench.pace import Counted, Paced
from bench.report import note
from bench.session import Bench
from bench.traffic import Traffic, write_traffic
from bench.whole import WholeMill, started_mill
from collector.send.topics import INPUT_PARTITIONS
from protocol.client.partitioner import partition_for_key
from protocol.status import StatusUnavailable

PART = "live"
LIVE_FILE = "traffic.log"
START = datetime(2025, 8, 1, tzinfo=UTC)
RATE = 1_000
ALONE_GOALS = (Goal("p50_ms", at_most=150), Goal("p99_ms", at_most=250))
BESIDE_GOALS = (Goal("p99_ms", at_most=1_000), Goal("old_lines_per_s", at_least=70_000))
COUNTED_DEADLINE_S = 1_800.0
STAGES_EVERY_S = 0.1
# The seconds between the first live line and the move of the old file into the watched folder.
DROP_AFTER_S = 1.0

# The size of the old file, as a share of the old file in `bench.mill`.
OLD_SHARE = 0.25


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure live lines alone, with old lines in another partition, with old lines in the same
    partition, and old lines alone."""
    mill = started_mill(bench)
    paced = paced_file(mill, LIVE_FILE, Traffic(bench.options.seed))
    old = _OldFile(bench, mill)
    note("warming up")
    paced.latency(RATE, bench.options.sized(20, 8))
    seconds = bench.options.sized(20, 5)
    case = f"line written → counted in Redis, {RATE:,} lines/s of traffic"
    runs = bench.repeat(case, partial(_paced, mill, paced, seconds), mill.roots)
    yield Measurement(PART, f"{case}, alone", runs, goals=ALONE_GOALS)
    for where, is_shared in (("another partition", False), ("their own partition", True)):
        told = f"{case}, beside {old.lines:,} old lines in {where}"
        beside = partial(_beside, mill, paced, seconds, old, is_shared=is_shared)
        runs = bench.repeat(told, beside, mill.roots)
        yield Measurement(PART, told, runs, goals=BESIDE_GOALS)
    told = f"{old.lines:,} old lines alone"
    runs = bench.repeat(told, partial(_alone, old), mill.roots)
    yield Measurement(PART, told, runs)


class _OldFile:
    """A file of old traffic that can be dropped into the folder repeatedly, each time with other
    lines."""

    def __init__(self, bench: Bench, mill: WholeMill) -> None:
        self._mill = mill
        self._folder = bench.folder
        self._seeds = itertools.count(bench.options.seed)
        self._size = int(bench.options.size_bytes * OLD_SHARE)
        self._names = itertools.count(1)
        self.lines = 0
        self._next = self._written()

    def _written(self) -> Path:
        # Each file needs other lines, because the collector would recognise a copy of a known file.
        made = self._folder / "old.log"
        seed = next(self._seeds)
        self.lines, _ = write_traffic(made, Traffic(seed), self._size, START)
        return made

    def named(self, *, is_shared: bool) -> "_Dropped":
        """Return the file with a name that gives it the live file's partition, or another one."""
        wanted = _partition_of(LIVE_FILE)
        while True:
            name = f"old-{next(self._names)}.log"
            if (_partition_of(name) == wanted) == is_shared:
                return _Dropped(self._mill, self._next, name)

    def again(self, dropped: "_Dropped") -> None:
        """Wait until the dropped file is counted, then create the next one."""
        dropped.wait(self.lines)
        dropped.path.unlink()
        self._next = self._written()


@dataclass(frozen=True, slots=True)
class _Dropped:
    """An old file, with the name that it gets in the watched folder."""

    mill: WholeMill
    made: Path
    name: str

    @property
    def path(self) -> Path:
        return self.mill.watched / self.name

    def counted(self) -> Counted:
        """Return a follower of the count of this file's lines."""
        return Counted(self.mill.mill.ports["redis"], f"access/{self.name}")

    def drop(self) -> None:
        """Move the file into the watched folder."""
        self.made.rename(self.path)

    def wait(self, lines: int) -> None:
        """Wait until this many lines of the file are counted."""
        self.mill.wait(
            lambda: self.mill.reading.lines_of(f"access/{self.name}") >= lines,
            COUNTED_DEADLINE_S,
            0.1,
            "the old lines",
        )


def _partition_of(name: str) -> int:
    return partition_for_key(f"access/{name}".encode(), INPUT_PARTITIONS)


def _alone(old: _OldFile) -> Figures:
    """Measure how fast an old file is counted while nothing else is written."""
    dropped = old.named(is_shared=False)
    began_s = time.perf_counter()
    dropped.drop()
    dropped.wait(old.lines)
    seconds = time.perf_counter() - began_s
    figures = {"old_lines_per_s": old.lines / seconds}
    old.again(dropped)
    return figures


def _paced(mill: WholeMill, paced: Paced, seconds: float) -> Figures:
    """Write live lines at the rate. Return their latency, the time of each stage, and the CPU
    cost."""
    spent_s = trees_cpu_s(mill.roots())
    with _Stages(mill) as stages:
        figures = paced.latency(RATE, seconds)
    spent_s = trees_cpu_s(mill.roots()) - spent_s
    return {**figures, **stages.medians(), "mill_cores": spent_s / seconds}


def _beside(
    mill: WholeMill, paced: Paced, seconds: float, old: _OldFile, *, is_shared: bool
) -> Figures:
    """Measure as `_paced` does, but move a file of old lines into the watched folder once live
    lines flow."""
    dropped = old.named(is_shared=is_shared)
    drop = threading.Timer(DROP_AFTER_S, dropped.drop)
    with dropped.counted() as counted:
        began_s = time.perf_counter() + DROP_AFTER_S
        drop.start()
        figures = _paced(mill, paced, seconds)
        drop.join()
        lines, until_s = counted.counts[-1], counted.times[-1]
    # If no old line is left at the end, the old file was finished early and the live lines were
    # alone for a while.
    figures = {
        **figures,
        "old_lines_per_s": lines / (until_s - began_s),
        "old_lines_left": old.lines - lines,
    }
    old.again(dropped)
    return figures


class _Stages:
    """Samples the stream's stage times, and returns their medians over all batches it has seen."""

    def __init__(self, mill: WholeMill) -> None:
        self._mill = mill
        self._seen: dict[int, dict[str, float]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="stages", daemon=True)

    def _follow(self) -> None:
        while not self._ends.wait(STAGES_EVERY_S):
            # If the stream is too busy to answer, the next sample asks again.
            with contextlib.suppress(StatusUnavailable):
                told = self._mill.reading.details("stream", "stream")
                self._seen[int(told["batch_id"] or 0)] = _stages_of(told)

    def medians(self) -> Figures:
        """Return the median milliseconds of each stage. `sinks_ms` is a part of Spark's `addBatch`,
        and `addBatch` is a part of `batch_ms`."""
        names = dict.fromkeys(name for one in self._seen.values() for name in one)
        return {
            name: statistics.median(one[name] for one in self._seen.values() if name in one)
            for name in names
        }

    def __enter__(self) -> "_Stages":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()


def _stages_of(told: dict[str, Any]) -> dict[str, float]:
    spark = {f"spark_{name}_ms": float(ms) for name, ms in told["duration_ms"].items()}
    return {"batch_ms": float(told["batch_ms"]), "sinks_ms": float(told["sinks_ms"]), **spark}
