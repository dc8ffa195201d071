"""Measures the stream alone: a backlog of realistic traffic, and every format with every measure.

After every run, all cells in MySQL are compared with a direct count. A cell that differs fails the
bench. MySQL runs with the tests' settings: a buffer pool of 64 MiB and a durable commit for each
merge.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import product

import yaml

from bench import stream_inputs
from bench.measurement import Figures, Goal, Measurement
from bench.report import note
from bench.session import ROOT, Bench
from bench.straight import Measure, shipped
from bench.stream_rig import Servers, StreamRig, servers
from bench.traffic import LINES_PER_SECOND, SECONDS_AT_ONCE, Drawn, Traffic

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


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure the shipped metrics, then each format with each measure."""
    with servers(bench) as on:
        yield _shipped(bench, on)
        yield from _table(bench, on)


class _Lines:
    """Writes the lines of one file in one format. The drawn values are kept for the direct
    count."""

    def __init__(self, seed: int, form: str) -> None:
        self._traffic = Traffic(seed)
        self._form = form
        self._next_s = START_S
        self._kept: list[Drawn] = []

    def next(self, lines: int) -> Iterator[bytes]:
        """Return at least this many lines, in whole blocks of ten minutes."""
        given = 0
        while given < lines:
            drawn, combined = self._traffic.draw(self._next_s, SECONDS_AT_ONCE)
            self._next_s += SECONDS_AT_ONCE
            self._kept.append(drawn)
            given += len(drawn)
            yield from stream_inputs.lines(self._form, drawn, combined)

    @property
    def drawn(self) -> Drawn:
        """Return the drawn values of all lines so far."""
        return Drawn.joined(self._kept)


def _shipped(bench: Bench, on: Servers) -> Measurement:
    """Measure the shipped inputs and metrics over one access log."""
    given = yaml.safe_load((ROOT / "configs" / "millrace.yaml").read_text())["stream"]
    section = {name: given[name] for name in ("from", "defaults", "metrics")}
    # The lines are old, so MySQL must keep windows of every age.
    section["defaults"]["keep"]["mysql"] = "forever"
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
    """Measure every format with every measure. With --quick, each format and each measure occurs
    once."""
    formats, measures = tuple(stream_inputs.FORMATS), stream_inputs.MEASURES
    pairs = list(zip(formats, measures, strict=True))
    if not bench.options.quick:
        pairs = list(product(formats, measures))
    for form, kind in pairs:
        case = f"{form}, {kind} by path"
        runs = bench.repeat(case, partial(counted_backlog, bench, on, form, kind), runs=1)
        yield Measurement(PART, case, runs)


def counted_backlog(bench: Bench, on: Servers, form: str, kind: Measure) -> Figures:
    """Count a backlog of one format with one measure. Raises Differs unless every cell is exact."""
    topic = f"logs.{form}.{kind}"
    lines = _Lines(bench.options.seed, form)
    section = stream_inputs.section(form, kind, topic)
    with StreamRig(on, bench.new_folder(f"{form}-{kind}"), section, topic) as rig:
        rig.warm_up(FILE, lines.next(bench.options.sized(200_000, 22_200)))
        figures = rig.backlog(FILE, lines.next(bench.options.sized(500_000, 66_600)))
        rig.check([stream_inputs.metric(kind)], lines.drawn)
    return {name: value for name, value in figures.items() if "pss" not in name}
