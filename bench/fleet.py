"""Measure hundreds of real collectors of other hosts that write to one mill.

Each collector logs in over TLS, tails its own file, to which 20 lines a second are appended, and
commits at the interval that `enrol` gives when there are so many collectors. A read_committed
consumer notes when it gets each line. Every line must arrive exactly once, and 99 % of them within
the commit interval and one second.

All collectors run on this machine, although each would have a host of its own. So they run with a
lower priority than the brokers, and their CPU time is a separate figure. If brokers, collectors and
reader together need all cores, the latencies are those of an overloaded machine.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import collectors_page
from bench.figures import percentile
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures, Goal, Measurement
from bench.session import Bench
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import new_test_authority
from tests.harness.cluster import ClusterProcesses
from tests.harness.fleet import BROKER_SETTINGS, CLUSTER_SETTINGS, LINES_PER_S, Fleet
from tests.harness.fleet_reader import FleetReader

PART = "fleet"
COUNTS = (50, 200, 500, 1_000)
INTERVALS_BEFORE = 2
"""The commit intervals after the first line, of which nothing is measured."""
NICENESS = 10
"""The priority of the collectors, which is lower than that of the brokers."""
GOALS = (Goal("beyond_interval_p99_s", at_most=1.0),)


@contextmanager
def running_brokers(folder: Path, count: int) -> Iterator[tuple[Sequence[BrokerProcess], Path]]:
    """Run one broker or a cluster, whose listener NET requires logins. Return also the folder of
    the CA."""
    authority = new_test_authority(folder / "ca")
    if count == 1:
        broker = BrokerProcess(folder, BROKER_SETTINGS, tls=authority.write(), needs_login=True)
        with broker:
            yield [broker], authority.file
        return
    cluster = ClusterProcesses(
        folder, CLUSTER_SETTINGS, size=count, authority=authority, needs_login=True
    )
    with cluster:
        cluster.wait_for_controller()
        yield list(cluster.brokers.values()), authority.file


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure the page with many collectors, growing fleets with one broker, and the same with
    three."""
    yield from collectors_page.measure(bench)
    counts = COUNTS[:1] if bench.options.quick else COUNTS
    for brokers in (1, 3):
        for count in counts:
            case = f"{count:,} collectors at {LINES_PER_S} lines/s, {brokers} broker(s)"
            runs = bench.repeat(case, partial(_run, bench, count, brokers), runs=1)
            yield Measurement(PART, case, runs, goals=GOALS)


def _run(bench: Bench, count: int, broker_count: int) -> Figures:
    folder = bench.new_folder("fleet")
    try:
        with running_brokers(folder, broker_count) as (brokers, ca):
            fleet = Fleet(folder, brokers, ca, count, niceness=NICENESS)
            fleet.enrol()
            before_s = sum(cpu_s(one.pid) for one in brokers)
            with fleet, fleet.reader() as reader:
                started_s = sum(cpu_s(one.pid) for one in brokers) - before_s
                found = _steady(fleet, reader, brokers, bench.options.sized(60, 10))
                fleet.end()
        return found | {"broker_cpu_ms_per_start": started_s / count * 1e3}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _steady(
    fleet: Fleet, reader: FleetReader, brokers: Sequence[BrokerProcess], seconds: float
) -> dict[str, float]:
    """Return the figures of a fleet that writes for some seconds.

    Raises AssertionError unless every line has arrived once.
    """
    interval_s = fleet.interval_ms / 1e3
    fleet.write()
    time.sleep(INTERVALS_BEFORE * interval_s + 2)
    begin = _Moment(fleet, brokers)
    time.sleep(max(seconds, 3 * interval_s))
    end = _Moment(fleet, brokers)
    pss = pss_mib(one.pid for one in brokers)
    reader.wait_for_all(fleet.pause())
    fleet.check()
    late_s = reader.judge.latencies_s(begin.wall_ms, end.wall_ms)
    took_s = (end.wall_ms - begin.wall_ms) / 1e3
    commits = end.commits - begin.commits
    return {
        "interval_s": interval_s,
        "lines_per_s": len(late_s) / took_s,
        "p50_s": percentile(late_s, 0.5),
        "p99_s": percentile(late_s, 0.99),
        "beyond_interval_p99_s": percentile(late_s, 0.99) - interval_s,
        "commits_per_s": commits / took_s,
        "brokers_cpu_percent": (end.brokers_s - begin.brokers_s) / took_s * 100,
        "brokers_cpu_ms_per_commit": (end.brokers_s - begin.brokers_s) / max(1, commits) * 1e3,
        "collectors_cpu_percent": (end.fleet_s - begin.fleet_s) / took_s * 100,
        "reader_cpu_percent": (end.own_s - begin.own_s) / took_s * 100,
        "brokers_pss_mib": pss,
    }


class _Moment:
    """The CPU times and the number of commits at one moment."""

    def __init__(self, fleet: Fleet, brokers: Sequence[BrokerProcess]) -> None:
        self.wall_ms = time.time_ns() // 1_000_000
        self.brokers_s = sum(cpu_s(one.pid) for one in brokers)
        self.fleet_s = sum(cpu_s(pid) for pid in fleet.pids())
        self.own_s = cpu_s(os.getpid())
        self.commits = fleet.totals()["committed"]
