"""The stream by itself: a backlog of real-looking traffic, every format and measure, and latency.

Every run ends with a comparison of all cells in MySQL with a straight count; a cell that is not
equal fails the bench. MySQL runs with the tests' settings: a buffer pool of 64 MiB and a durable
commit for each merge.
"""

import contextlib
import statistics
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from bench import stream_inputs
from bench.machine import trees_cpu_s
from bench.measurement import Figures, Goal, Measurement
from bench.mill import paced_file
from bench.pace import Paced
from bench.report import note
from bench.session import ROOT, Bench
from bench.straight import Measure, shipped
from bench.stream_rig import Servers, StreamRig, servers
from bench.traffic import LINES_PER_SECOND, SECONDS_AT_ONCE, Drawn, Traffic, write_traffic
from bench.whole import WholeMill, started_mill
from protocol.status import StatusUnavailable

PART = "stream"
FILE = "access/backlog.log"
TOPIC = "logs.access"
START = datetime(2025, 8, 1, tzinfo=UTC)
START_S = int(START.timestamp())
SHIPPED_GOALS = (
    Goal("lines_per_s", at_least=120_000),
    Goal("stream_cpu_s_per_million_lines", at_most=12),
    Goal("pss_mib_peak", at_most=2.5 * 1024),
)
LIVE_RATE = 1_000
ALONE_GOALS = (Goal("p50_ms", at_most=150), Goal("p99_ms", at_most=250))
BESIDE_GOALS = (Goal("p99_ms", at_most=1_000),)
COUNTED_DEADLINE_S = 1_800.0
STAGES_EVERY_S = 0.1
# An old file is dropped so long after live lines began to flow.
DROP_AFTER_S = 1.0

# How large the backlog beside live lines is, as a part of the dropped file.
BACKLOG_SHARE = 0.25


def measure(bench: Bench) -> Iterator[Measurement]:
    """The shipped metrics, then format by measure, then lines that are written while it runs."""
    with servers(bench) as on:
        yield _shipped(bench, on)
        yield from _table(bench, on)
    yield from _live(bench)


class _Lines:
    """Lines of one file in order, given out in one format; what was drawn is kept."""

    def __init__(self, seed: int, form: str) -> None:
        self._traffic = Traffic(seed)
        self._form = form
        self._next_s = START_S
        self._kept: list[Drawn] = []

    def next(self, lines: int) -> Iterator[bytes]:
        """At least so many lines: whole blocks of ten minutes."""
        given = 0
        while given < lines:
            drawn, combined = self._traffic.draw(self._next_s, SECONDS_AT_ONCE)
            self._next_s += SECONDS_AT_ONCE
            self._kept.append(drawn)
            given += len(drawn)
            yield from stream_inputs.lines(self._form, drawn, combined)

    @property
    def drawn(self) -> Drawn:
        """All that was given out."""
        return Drawn.joined(self._kept)


def _shipped(bench: Bench, on: Servers) -> Measurement:
    """The shipped inputs and metrics over one access log."""
    given = yaml.safe_load((ROOT / "configs" / "millrace.yaml").read_text())["stream"]
    section = {name: given[name] for name in ("from", "defaults", "metrics")}
    warm = bench.options.sized(1_000_000, 60_000)
    count = bench.options.sized(4_000_000, 200_000)

    def run() -> Figures:
        lines = _Lines(bench.options.seed, "combined")
        with StreamRig(on, bench.new_folder("shipped"), section, TOPIC) as rig:
            rig.warm_up(FILE, lines.next(warm))
            figures = rig.backlog(FILE, lines.next(count))
            cells = rig.check(shipped(FILE), lines.drawn)
        note(f"{cells:,} cells equal a straight count")
        return {**figures, "cells": cells}

    case = f"shipped metrics, backlog of {count:,} lines at {LINES_PER_SECOND} a second"
    return Measurement(PART, case, bench.repeat(case, run), goals=SHIPPED_GOALS)


def _table(bench: Bench, on: Servers) -> Iterator[Measurement]:
    """Every format with every measure; of the quick ones each format and each measure once."""
    formats, measures = tuple(stream_inputs.FORMATS), stream_inputs.MEASURES
    pairs = list(zip(formats, measures, strict=True))
    if not bench.options.quick:
        pairs = list(product(formats, measures))
    for form, kind in pairs:
        case = f"{form}, {kind} by path"
        runs = bench.repeat(case, partial(counted_backlog, bench, on, form, kind), runs=1)
        yield Measurement(PART, case, runs)


def counted_backlog(bench: Bench, on: Servers, form: str, kind: Measure) -> Figures:
    """One format by one measure over a backlog. Raises Differs unless every cell is exact."""
    topic = f"logs.{form}.{kind}"
    lines = _Lines(bench.options.seed, form)
    section = stream_inputs.section(form, kind, topic)
    with StreamRig(on, bench.new_folder(f"{form}-{kind}"), section, topic) as rig:
        rig.warm_up(FILE, lines.next(bench.options.sized(200_000, 22_200)))
        figures = rig.backlog(FILE, lines.next(bench.options.sized(500_000, 66_600)))
        rig.check([stream_inputs.metric(kind)], lines.drawn)
    return {name: value for name, value in figures.items() if "pss" not in name}


def _live(bench: Bench) -> Iterator[Measurement]:
    """A thousand lines a second through the whole mill, alone and beside an old file."""
    mill = started_mill(bench)
    paced = paced_file(mill, "traffic.log", Traffic(bench.options.seed))
    note("warming up")
    paced.latency(LIVE_RATE, bench.options.sized(20, 8))
    seconds = bench.options.sized(20, 5)
    case = f"line written → counted in Redis, {LIVE_RATE:,} lines/s of traffic"
    runs = bench.repeat(case, partial(_paced, mill, paced, seconds), mill.roots)
    yield Measurement(PART, f"{case}, alone", runs, goals=ALONE_GOALS)
    old = bench.folder / "backlog.log"
    size = int(bench.options.size_bytes * BACKLOG_SHARE)
    lines, _ = write_traffic(old, Traffic(bench.options.seed), size, START)
    case = f"{case}, beside {lines:,} old lines"
    runs = bench.repeat(
        case, partial(_beside, mill, paced, seconds, old, lines), mill.roots, runs=1
    )
    yield Measurement(PART, case, runs, goals=BESIDE_GOALS)
    mill.wait(
        lambda: mill.reading.lines_of(FILE) >= lines, COUNTED_DEADLINE_S, 1.0, "the old lines"
    )
    (mill.watched / "backlog.log").unlink()


def _paced(mill: WholeMill, paced: Paced, seconds: float) -> Figures:
    """Latency, where its milliseconds are, and what it cost."""
    spent_s = trees_cpu_s(mill.roots())
    with _Stages(mill) as stages:
        figures = paced.latency(LIVE_RATE, seconds)
    spent_s = trees_cpu_s(mill.roots()) - spent_s
    return {**figures, **stages.medians(), "mill_cores": spent_s / seconds}


def _beside(mill: WholeMill, paced: Paced, seconds: float, old: Path, lines: int) -> Figures:
    """As `_paced`, but a file of so many old lines is dropped as soon as live ones flow."""
    drop = threading.Timer(DROP_AFTER_S, old.rename, (mill.watched / "backlog.log",))
    drop.start()
    figures = _paced(mill, paced, seconds)
    drop.join()
    # Where nothing is left, live lines were for a part of the time alone.
    return {**figures, "old_lines_left": lines - mill.reading.lines_of(FILE)}


class _Stages:
    """Follows what the stream says of its batches; the medians over all that were seen."""

    def __init__(self, mill: WholeMill) -> None:
        self._mill = mill
        self._seen: dict[int, dict[str, float]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="stages", daemon=True)

    def _follow(self) -> None:
        while not self._ends.wait(STAGES_EVERY_S):
            # A stream that is too busy to answer is asked again.
            with contextlib.suppress(StatusUnavailable):
                told = self._mill.reading.details("stream", "stream")
                self._seen[int(told["batch_id"] or 0)] = _stages_of(told)

    def medians(self) -> Figures:
        """Milliseconds by stage; `sinks_ms` is a part of Spark's `addBatch`, that of `batch_ms`."""
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
