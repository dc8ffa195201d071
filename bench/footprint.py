"""Measures how long the mill takes to start, and how much memory it uses when idle and under
load."""

import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial

from bench.machine import cpu_s
from bench.measurement import Figures, Goal, Measurement, Run
from bench.mill import paced_file
from bench.report import note
from bench.session import Bench
from bench.traffic import Traffic
from bench.whole import WholeMill, peaks, started_mill, whole_mill
from tests.harness.broker import BrokerProcess

IDLE_S = 5.0
SAMPLE_S = 0.5
LOAD_LINES_PER_S = 10_000
MEMORY_GOALS = (
    Goal("mill_pss_mib", at_most=2.5 * 1024),
    Goal("broker-1_pss_mib", at_most=50),
)


def startup(bench: Bench) -> Iterator[Measurement]:
    """Measure three starts: a broker alone, the mill on an empty folder, and the mill with its
    data."""
    runs = bench.repeat("broker start", partial(_broker, bench), runs=bench.options.sized(5, 1))
    yield Measurement("startup", "broker start", runs, goals=[Goal("ready_s", at_most=1.0)])
    mill = whole_mill(bench)
    if not mill.is_up:
        run = bench.repeat("first up", mill.up, mill.roots, runs=1)
        yield Measurement("startup", "first up, empty data folder", run)

    runs = [_again(bench, mill) for _ in range(bench.options.sized(2, 1))]
    yield Measurement("startup", "second up", runs, goals=[Goal("up_s", at_most=25)])


def _broker(bench: Bench) -> Figures:
    """Start a broker on an empty folder, and measure the time until it answers that it is
    healthy."""
    folder = bench.new_folder("broker-start")
    with BrokerProcess(folder) as process:
        spent_s, seconds = cpu_s(process.pid), process.started_s
    shutil.rmtree(folder)
    return {"ready_s": seconds, "cpu_s": spent_s}


def _again(bench: Bench, mill: WholeMill) -> Run:
    """Stop the mill, then measure its next start. The stop is not within the `Watch`, which can
    follow only one set of processes."""
    note("second up")
    down_s = mill.down()
    run = bench.once(mill.up, mill.roots)
    return Run({**run.figures, "down_s": down_s}, run.other_load)


def memory(bench: Bench) -> Iterator[Measurement]:
    """Measure each part with its children: its idle memory, and its peak under a steady load."""
    mill = started_mill(bench)
    runs = bench.repeat("memory idle", lambda: _idle(mill), mill.roots, runs=1)
    yield Measurement("memory", "idle", runs, goals=MEMORY_GOALS)
    seconds = bench.options.sized(20, 5)
    case = f"peak at {LOAD_LINES_PER_S:,} lines/s"
    runs = bench.repeat(case, lambda: _loaded(bench, mill, seconds), mill.roots, runs=1)
    yield Measurement("memory", case, runs, goals=MEMORY_GOALS[:1])


def _idle(mill: WholeMill) -> Figures:
    time.sleep(IDLE_S)
    return mill.memory()


def _loaded(bench: Bench, mill: WholeMill, seconds: float) -> Figures:
    samples = [mill.memory()]
    ends = threading.Event()

    def sample() -> None:
        while not ends.wait(SAMPLE_S):
            samples.append(mill.memory())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        paced = paced_file(mill, "loaded.log", Traffic(bench.options.seed))
        rate = paced.latency(LOAD_LINES_PER_S, seconds)["lines_per_s"]
    finally:
        ends.set()
        sampler.join()
    return {**peaks(samples), "lines_per_s": rate}
