"""The collector beside a confluent-kafka loop: the same file, the same broker, the same codec.

Both are whole processes from start to the last acknowledgement, and CPU-seconds are the kernel's
own account of them, interpreter start included.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.librdkafka import Lost, Topics
from bench.lines import LineSource, write_lines
from bench.machine import cpu_s
from bench.measurement import Figures, Goal, Measurement, Peer
from bench.session import ROOT, Bench
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess

PART = "collector"
PARTITIONS = 3
TOPIC = "logs.access"
KEY = "access/access.log"
FLUSH = {"flush.messages": str(2**63 - 1)}
LINES = {"none": 4_000_000, "gzip": 1_000_000}
"""Lines by codec; the peer's zlib is slow, so it gets fewer."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Without compression, where only the line's way counts, and with the collector's default."""
    folder = bench.new_folder("broker")
    with BrokerProcess(folder) as broker:
        for codec, full in LINES.items():
            count = bench.options.sized(full, full // 8)
            source = bench.folder / "access.log"
            size = write_lines(source, LineSource(bench.options.seed), count, START)
            race = _Race(bench, broker, source, count, size)
            case = f"{count:,} lines of {size / count:.0f} B, compression {codec}"
            runs, theirs = bench.in_turn(case, partial(race.ours, codec), partial(race.peer, codec))
            goal = Goal("lines_per_cpu_s", at_least=1.5, of="ratio")
            peer = Peer("confluent-kafka loop", theirs)
            yield Measurement(PART, case, runs, peer, [goal])
            source.unlink()
    shutil.rmtree(folder, ignore_errors=True)


class _Race:
    """Runs either over the file and checks that every line has arrived."""

    def __init__(
        self, bench: Bench, broker: BrokerProcess, source: Path, count: int, size: int
    ) -> None:
        self._bench = bench
        self._broker = broker
        self._source = source
        self._count = count
        self._size = size
        self._topics = Topics(broker.bootstrap)

    def ours(self, codec: str) -> Figures:
        folder = self._bench.new_folder("collector")
        section = {
            "inputs": [{"paths": ["watched/access/**"], "topic": TOPIC}],
            "compression": codec,
        }
        collector = CollectorProcess(folder, self._broker.mill_bootstrap, section)
        watched = collector.home / "watched" / KEY
        os.link(self._source, watched)
        try:
            return self._timed(lambda: collector.spawn("--once"), collector.log_text)
        finally:
            shutil.rmtree(folder)

    def peer(self, codec: str) -> Figures:
        arguments = [self._broker.bootstrap, TOPIC, str(self._source), codec, KEY]
        command = [sys.executable, "-m", "bench.peer_produce", *arguments]
        return self._timed(lambda: subprocess.Popen(command, cwd=ROOT), lambda: "")

    def _timed(
        self, spawn: Callable[[], "subprocess.Popen[bytes]"], log_text: Callable[[], str]
    ) -> Figures:
        self._topics.create(TOPIC, PARTITIONS, FLUSH)
        try:
            broker_s, began_s = cpu_s(self._broker.pid), time.perf_counter()
            process = spawn()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began_s
            process.returncode = os.waitstatus_to_exitcode(status)
            broker_s = cpu_s(self._broker.pid) - broker_s
            found = self._topics.committed_count(TOPIC, PARTITIONS)
        finally:
            self._topics.delete(TOPIC)
        if process.returncode or found != self._count:
            told = f"exit code {process.returncode}, {found} of {self._count} lines arrived"
            raise Lost(f"{told}\n{log_text()[-2000:]}")
        spent_s = usage.ru_utime + usage.ru_stime
        return {
            "lines_per_cpu_s": self._count / spent_s,
            "lines_per_s": self._count / seconds,
            "mb_per_s": self._size / seconds / 1e6,
            "cpu_s": spent_s,
            "peak_rss_mib": usage.ru_maxrss / 1024,
            "broker_cpu_s": broker_s,
        }
