"""Measure what a thousand collectors cost that reconnect at once, and a thousand idle connections.

A producer with acks=all writes live lines to three brokers without TLS, while all connections of
all collectors are cut, and later while one broker restarts. The figures compare its
acknowledgements with those before. A collector is back when it has committed again.
"""

import shutil
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from bench.broker_cases import new_topic
from bench.catch_up import Line, PacedLines
from bench.figures import percentile
from bench.fleet import NICENESS, running_brokers
from bench.librdkafka import OF_THREE
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures, Goal, Measurement
from bench.servers import server
from bench.session import Bench
from tests.harness.broker import BrokerProcess
from tests.harness.fleet import Fleet
from tests.harness.secured import give_password, wire_log_in
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

PART = "storm"
COLLECTORS = 1_000
LINES_PER_S = 2
"""The lines of each collector. They are few, because the storm is measured and not the lines."""
LIVE_PER_S = 100
LIVE_PARTITIONS = 6
CALM_S = 10
"""The seconds before each storm."""
BACK_S = 300.0
CONNECTIONS = 1_000
QUIET_S = 7.0
PASSWORD = "the password of a host"
RESTARTED = 2
"""The position of the broker that restarts."""
STORM_GOALS = (Goal("live_p99_ms", at_most=500.0),)
IDLE_GOALS = (Goal("pss_mib", at_most=130.0),)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure the idle connections, then the storms."""
    case = f"{CONNECTIONS:,} idle connections with TLS and a login, one broker"
    idle = bench.repeat(case, partial(_idle, bench), runs=1)
    yield Measurement(PART, case, idle, goals=IDLE_GOALS)
    count = bench.options.sized(COLLECTORS, 50)
    for name in ("all connections cut at once", "one of three brokers restarts"):
        case = f"{count:,} collectors, {name}"
        runs = bench.repeat(case, partial(_storm, bench, count, name), runs=1)
        yield Measurement(PART, case, runs, goals=STORM_GOALS)


def _idle(bench: Bench) -> Figures:
    """Log connections in, and measure the broker when they have been silent for a while."""
    folder = bench.new_folder("idle")
    try:
        with running_brokers(folder, 1) as ((broker,), ca), ExitStack() as stack:
            give_password(broker.bootstrap, "root", PASSWORD)
            context = ssl.create_default_context(cafile=str(ca))
            before_mib, before_s = pss_mib([broker.pid]), cpu_s(broker.pid)
            for _ in range(CONNECTIONS):
                client = stack.enter_context(WireClient(broker.net_bootstrap, "bench", context))
                wire_log_in(client, "root", PASSWORD)
            login_ms = (cpu_s(broker.pid) - before_s) / CONNECTIONS * 1e3
            time.sleep(QUIET_S)
            after_mib = pss_mib([broker.pid])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "pss_mib": after_mib,
        "pss_kib_per_connection": (after_mib - before_mib) * 1024 / CONNECTIONS,
        "broker_cpu_ms_per_login": login_ms,
    }


def _storm(bench: Bench, count: int, name: str) -> Figures:
    folder = bench.new_folder("storm")
    try:
        with running_brokers(folder, OF_THREE.replicas) as (brokers, ca):
            bootstrap = ",".join(one.bootstrap for one in brokers)
            ours = server("millrace", bootstrap, lambda: [one.pid for one in brokers], OF_THREE)
            fleet = Fleet(folder, brokers, ca, count, lines_per_s=LINES_PER_S, niceness=NICENESS)
            with new_topic(ours, {}, LIVE_PARTITIONS) as live, fleet, fleet.reader() as reader:
                fleet.write()
                wait_until(lambda: fleet.oldest_commit_ms > 0, BACK_S, "a commit of each")
                with PacedLines(bootstrap, live, LIVE_PER_S) as lines:
                    found = _one(fleet, brokers, lines, cuts=name.startswith("all"))
                reader.wait_for_all(fleet.pause())
                fleet.check()
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _one(
    fleet: Fleet, brokers: Sequence[BrokerProcess], lines: PacedLines, *, cuts: bool
) -> dict[str, float]:
    """Return the figures of one storm."""
    others = [one for number, one in enumerate(brokers) if cuts or number != RESTARTED]
    calm_s, calm_cpu_s = time.perf_counter(), sum(cpu_s(one.pid) for one in others)
    time.sleep(CALM_S)
    begin_s, begin_cpu_s = time.perf_counter(), sum(cpu_s(one.pid) for one in others)
    cut_ms = time.time_ns() // 1_000_000
    if cuts:
        fleet.cut()
    else:
        brokers[RESTARTED].restart()
    wait_until(lambda: fleet.oldest_commit_ms > cut_ms, BACK_S, "all collectors back")
    end_s, end_cpu_s = time.perf_counter(), sum(cpu_s(one.pid) for one in others)
    took = lines.finish()
    return {
        "calm_p99_ms": _p99_ms(took, calm_s, begin_s),
        "live_p99_ms": _p99_ms(took, begin_s, end_s),
        "live_max_ms": max(one.took_s for one in took if one.sent_s >= begin_s) * 1e3,
        "all_back_s": end_s - begin_s,
        "calm_cpu_percent": (begin_cpu_s - calm_cpu_s) / (begin_s - calm_s) * 100,
        "storm_cpu_percent": (end_cpu_s - begin_cpu_s) / (end_s - begin_s) * 100,
        "pss_mib": pss_mib(one.pid for one in brokers),
    }


def _p99_ms(lines: Sequence[Line], begin_s: float, end_s: float) -> float:
    took_s = sorted(one.took_s for one in lines if begin_s <= one.sent_s < end_s)
    return percentile(took_s, 0.99) * 1e3
