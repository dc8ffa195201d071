"""Measure the monitor's page and API with the reports of a thousand collectors.

The reports are records of a real topic, which a real monitor reads. One in twenty has a problem.
All of them are sent again in each round, because a collector reports every ten seconds.
"""

import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial

from confluent_kafka import Producer

from bench.figures import percentile
from bench.librdkafka import TIMEOUT_S, Lost, Topics
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures, Goal, Measurement
from bench.session import Bench
from collector.send.topics import REPORTS_SETTINGS
from protocol.collector_report import COLLECTORS_TOPIC, REPORT_EVERY_MS, CollectorReport, encode
from protocol.status import Problem
from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess
from tests.harness.wait import wait_until

PART = "fleet"
COLLECTORS = 1_000
TROUBLED = 20
"""Every collector whose number this divides has a problem."""
ASKED = 20
KNOWN_S = 60.0
PATHS = {"page": "/collectors", "last_page": "/collectors?page=20", "api": "/api/v1/collectors"}
GOALS = (Goal("page_p99_ms", at_most=500.0), Goal("api_p99_ms", at_most=500.0))


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure all figures in one run."""
    case = f"the page with {COLLECTORS:,} collectors that report every 10 s"
    yield Measurement(PART, case, bench.repeat(case, partial(_run, bench), runs=1), goals=GOALS)


def _run(bench: Bench) -> Figures:
    folder = bench.new_folder("page")
    try:
        with BrokerProcess(folder) as broker:
            Topics(broker.bootstrap).create(COLLECTORS_TOPIC, 1, REPORTS_SETTINGS)
            monitor = MonitorProcess([broker], folder / "monitor")
            try:
                return _measured(broker, monitor, bench.options.sized(60, 10))
            finally:
                monitor.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(broker: BrokerProcess, monitor: MonitorProcess, seconds: float) -> dict[str, float]:
    pid = monitor.process.pid
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
    _report(producer, range(COLLECTORS))
    wait_until(lambda: len(monitor.rows("collectors")) == COLLECTORS, KNOWN_S, "all known")
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s(pid)
    took_s: dict[str, list[float]] = {name: [] for name in PATHS}
    found: dict[str, float] = {}
    step_s = REPORT_EVERY_MS / 1e3 / ASKED
    while time.perf_counter() < begin_s + seconds:
        for part in range(ASKED):
            _report(producer, range(part, COLLECTORS, ASKED))
            for name, path in PATHS.items():
                asked_s = time.perf_counter()
                size = len(_get(monitor, path))
                took_s[name].append(time.perf_counter() - asked_s)
                found[f"{name}_kib"] = size / 1024
            time.sleep(step_s)
    rows = monitor.rows("collectors")
    if len(rows) != COLLECTORS or {row["health"] for row in rows[: COLLECTORS // TROUBLED]} != {
        "problem"
    }:
        raise Lost(f"the monitor lists {len(rows)} collectors, or not those with trouble first")
    for name, taken in took_s.items():
        found[f"{name}_p50_ms"] = percentile(sorted(taken), 0.5) * 1e3
        found[f"{name}_p99_ms"] = percentile(sorted(taken), 0.99) * 1e3
    used_s = cpu_s(pid) - begin_cpu_s
    found["monitor_cpu_percent"] = used_s / (time.perf_counter() - begin_s) * 100
    found["monitor_pss_mib"] = pss_mib([pid])
    return found


def _report(producer: Producer, numbers: Sequence[int]) -> None:
    now_ms = time.time_ns() // 1_000_000
    for number in numbers:
        report = _report_of(f"web-{number:04}", now_ms, is_troubled=number % TROUBLED == 0)
        producer.produce(COLLECTORS_TOPIC, encode(report), report.instance)
        # One batch for each report, as real collectors send them.
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise Lost("reports were not acknowledged")


def _report_of(instance: str, now_ms: int, *, is_troubled: bool) -> CollectorReport:
    text = f"/var/log/nginx/access.log of {instance} cannot be read: Permission denied"
    problems = (Problem("files", text),) if is_troubled else ()
    return CollectorReport(
        instance=instance,
        group="web",
        host=f"{instance}.example.org",
        version="1.0.0",
        state="running",
        at_ms=now_ms,
        started_at_ms=now_ms - 3_600_000,
        problems=problems,
        problems_total=len(problems),
        files=12,
        lines_total=1_000_000,
        last_commit_ms=now_ms - 2_000,
        commit_interval_ms=5_000,
        skew_ms=3,
    )


def _get(monitor: MonitorProcess, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor.port}{path}", timeout=30) as answer:
        content: bytes = answer.read()
        return content
