"""Measures the whole mill on this machine: how soon a line is counted, and how many lines are
counted per second.

The mill has the shipped configuration with one broker. The bench's writer and reader use the same
cores as the mill.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from bench.machine import trees_cpu_s
from bench.measurement import Figures, Goal, Measurement
from bench.pace import Counted, Paced, Source
from bench.report import note
from bench.session import Bench
from bench.traffic import Traffic, write_traffic
from bench.whole import WholeMill, peaks, started_mill

PART = "mill"
TOPIC = "logs.access"
RATES = (100, 1_000, 10_000)
AHEAD_LINES = 100_000
OLD = datetime(2025, 8, 1, tzinfo=UTC)
DROPPED_DEADLINE_S = 900.0
SAMPLE_S = 1.0
GOALS = {1_000: (Goal("p50_ms", at_most=400), Goal("p99_ms", at_most=800))}


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure the latency at three rates, the highest sustainable rate, and a file from last
    year."""
    mill = started_mill(bench)
    source = Traffic(bench.options.seed)
    paced = paced_file(mill, "paced.log", source)
    note("warming up")
    paced.latency(1_000, bench.options.sized(20, 8))
    seconds = bench.options.sized(10, 4)
    for rate in RATES:
        case = f"line written → counted in Redis, {rate:,} lines/s"
        runs = bench.repeat(
            case, partial(_at_work, mill, partial(paced.latency, rate, seconds)), mill.roots
        )
        yield Measurement(PART, case, runs, goals=GOALS.get(rate, ()))
    case = f"sustained, live, at most {AHEAD_LINES:,} lines on their way"
    seconds = bench.options.sized(20, 6)
    runs = bench.repeat(
        case, partial(_at_work, mill, partial(paced.sustained, seconds, AHEAD_LINES)), mill.roots
    )
    yield Measurement(PART, case, runs)
    yield _dropped(bench, mill, source)


def _at_work(mill: WholeMill, measure: Callable[[], Figures]) -> Figures:
    """Run `measure`. Return its figures and the number of cores that the whole mill used during the
    run."""
    spent_s, began_s = trees_cpu_s(mill.roots()), time.perf_counter()
    figures = measure()
    seconds = time.perf_counter() - began_s
    return {**figures, "mill_cores": (trees_cpu_s(mill.roots()) - spent_s) / seconds}


def paced_file(mill: WholeMill, name: str, source: Source) -> Paced:
    """Return a paced file in the watched folder that only this case writes."""
    port = mill.mill.ports["redis"]
    return Paced(mill.watched / name, source, partial(Counted, port, f"access/{name}"))


def _dropped(bench: Bench, mill: WholeMill, source: Traffic) -> Measurement:
    """Move a file from last year into the watched folder, and measure until all of it is counted.

    The file is counted when the offsets in the ledger equal the topic's end offsets.
    """
    case = f"dropped old file of {bench.options.size_bytes / 1e6:,.0f} MB"
    note(f"{case}: writing it")
    made = bench.folder / "old.log"
    lines, size = write_traffic(made, source, bench.options.size_bytes, OLD)
    reading = mill.reading

    def committed() -> int:
        return int(reading.details("collector", "collector")["lines_total"])

    def drop() -> Figures:
        before = committed()
        spent_s, began_s = trees_cpu_s(mill.roots()), time.perf_counter()
        made.rename(mill.watched / "old.log")
        rates: list[float] = []
        memory: list[dict[str, float]] = []

        def is_counted() -> bool:
            rates.append(float(reading.details("stream", "stream")["rows_per_second"]))
            memory.append(mill.memory())
            return committed() >= before + lines and reading.is_counted(TOPIC)

        mill.wait(is_counted, DROPPED_DEADLINE_S, SAMPLE_S, f"{lines:,} lines counted")
        seconds = time.perf_counter() - began_s
        spent_s = trees_cpu_s(mill.roots()) - spent_s
        busy = [rate for rate in rates if rate] or [0.0]
        return {
            "lines_per_s": lines / seconds,
            "mb_per_s": size / seconds / 1e6,
            "seconds": seconds,
            "mill_cpu_s_per_million_lines": spent_s / lines * 1e6,
            "spark_rows_per_s": sorted(busy)[len(busy) // 2],
            **{f"{name}_peak": value for name, value in peaks(memory).items()},
        }

    run = bench.repeat(case, drop, mill.roots, runs=1)
    (mill.watched / "old.log").unlink()
    return Measurement(PART, f"{case}, {lines:,} lines", run)
