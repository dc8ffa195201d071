"""Compare the collector with other programs that send a file, and measure the latency of live
lines.

All programs read the same file and send it to the same broker with the same codec. Each is measured
as a whole process, from its start to the last acknowledgement. CPU seconds come from the kernel and
include the start of the interpreter. Fluent Bit is measured if `FLUENT_BIT` names its program, or
if `fluent-bit` is on the path.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.librdkafka import CONSUME_AT_ONCE, TIMEOUT_S, Lost, Topics
from bench.lines import LineSource, write_lines
from bench.machine import cpu_s
from bench.measurement import Figures, Goal, Measurement, Peer
from bench.pace import Follower, Paced
from bench.report import note
from bench.session import ROOT, Bench
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess

PART = "collector"
PARTITIONS = 3
TOPIC = "logs.access"
KEY = "access/access.log"
FLUSH = {"flush.messages": str(2**63 - 1)}
LINES = {"none": 4_000_000, "gzip": 1_000_000}
"""The number of lines by codec. With gzip there are fewer, because the peer's zlib is slow."""
START = datetime(2026, 1, 1, tzinfo=UTC)
LIVE_RATE = 1_000
POLL_S = 0.002
LIVE_GOALS = (Goal("p99_ms", at_most=60),)
FLUENT_BIT = """\
[SERVICE]
    flush 1
    log_level error
[INPUT]
    name tail
    path {path}
    db {folder}/positions.db
    read_from_head on
    exit_on_eof on
    buffer_chunk_size 1M
    buffer_max_size 4M
[OUTPUT]
    name kafka
    match *
    brokers {brokers}
    topics {topic}
    format raw
    raw_log_key log
    queue_full_retries 0
    rdkafka.enable.idempotence true
"""


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure the speed without compression and with the default codec, and then the latency.

    Without compression only the cost per line matters.
    """
    folder = bench.new_folder("broker")
    fluent_bit = os.environ.get("FLUENT_BIT") or shutil.which("fluent-bit")
    if fluent_bit is None:
        note("no fluent-bit on the path and none named by FLUENT_BIT: not measured beside it")
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
            # With gzip, Fluent Bit ends before librdkafka has sent everything, so some of the lines
            # are missing.
            if fluent_bit is not None and codec == "none":
                case = f"{case}, the collector beside Fluent Bit"
                theirs_too = partial(race.fluent_bit, fluent_bit)
                runs, theirs = bench.in_turn(case, partial(race.ours, codec), theirs_too)
                goal = Goal("lines_per_cpu_s", at_least=3, of="ratio")
                yield Measurement(PART, case, runs, Peer("Fluent Bit", theirs), [goal])
            source.unlink()
        yield _live(bench, broker)
    shutil.rmtree(folder, ignore_errors=True)


def _live(bench: Bench, broker: BrokerProcess) -> Measurement:
    """Measure the latency of the collector alone, from the write of a line until a read_committed
    consumer has received it."""
    section = {"inputs": [{"paths": ["watched/access/**"], "topic": TOPIC}]}
    case = f"line written → committed in the topic, {LIVE_RATE:,} lines/s"
    topics = Topics(broker.bootstrap)
    topics.create(TOPIC, 1, {})
    try:
        with CollectorProcess(
            bench.new_folder("live"), broker.mill_bootstrap, section
        ) as collector:
            paced = Paced(
                collector.home / "watched" / KEY,
                LineSource(bench.options.seed),
                partial(_Committed, broker.bootstrap),
            )
            seconds = bench.options.sized(20, 4)
            runs = bench.repeat(case, partial(paced.latency, LIVE_RATE, seconds))
    finally:
        topics.delete(TOPIC)
    return Measurement(PART, case, runs, goals=LIVE_GOALS)


class _Committed(Follower):
    """Follows how many records of a one-partition topic a read_committed consumer can see."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(TOPIC)
        self._bootstrap = bootstrap

    def looks(self) -> Generator[int, None, None]:
        """Yield after each fetch how many records have been added since the start."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "bench", "fetch.wait.max.ms": 20}
        )
        try:
            place = TopicPartition(TOPIC, 0)
            _, place.offset = consumer.get_watermark_offsets(place, TIMEOUT_S)
            consumer.assign([place])
            found = 0
            while True:
                yield found
                messages = consumer.consume(CONSUME_AT_ONCE, timeout=POLL_S)
                found += sum(message.error() is None for message in messages)
        finally:
            consumer.close()


class _Race:
    """Runs one program on the file, and checks that every line has arrived in the topic."""

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
            return self._timed(lambda: collector.launch("--once"), collector.log_text)
        finally:
            shutil.rmtree(folder)

    def peer(self, codec: str) -> Figures:
        arguments = [self._broker.bootstrap, TOPIC, str(self._source), codec, KEY]
        command = [sys.executable, "-m", "bench.peer_produce", *arguments]
        return self._timed(lambda: subprocess.Popen(command, cwd=ROOT), lambda: "")

    def fluent_bit(self, program: str) -> Figures:
        folder = self._bench.new_folder("fluent-bit")
        settings = folder / "fluent-bit.conf"
        settings.write_text(
            FLUENT_BIT.format(
                path=self._source, folder=folder, brokers=self._broker.bootstrap, topic=TOPIC
            )
        )
        try:
            return self._timed(
                lambda: subprocess.Popen([program, "-q", "-c", str(settings)]), lambda: ""
            )
        finally:
            shutil.rmtree(folder)

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
