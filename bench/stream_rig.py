"""A broker, MySQL, Redis and one stream process, with a backlog that becomes visible at once.

The lines are produced in one open transaction and become visible when it commits. So the warm
stream is idle before the clock starts, and afterwards it never waits for a producer.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pymysql
import pytest
from confluent_kafka import Producer

from bench.librdkafka import TIMEOUT_S, Topics
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures
from bench.session import Bench, Unavailable
from bench.straight import Metric, Row, cells_of, differences
from bench.traffic import Drawn
from protocol.status import StatusUnavailable
from sinks.config import MySqlSettings, SinksSettings
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.stream import StreamProcess

Skipped = pytest.skip.Exception
SIZES_S = (60, 3_600, 0)
POLL_S = 0.05
SAMPLE_S = 0.5
# If no line was counted for this many seconds, the stream is stuck. Its log says why.
STUCK_S = 300.0
TRANSACTION_MS = 900_000
QUEUE_MESSAGES = 500_000
DIFFERENCES_TOLD = 5
LOG_CHARACTERS = 4_000
DRIVER, JVM, MYSQL, REDIS, BROKER = "driver", "jvm", "mysql", "redis", "broker"
STREAM_PROCESSES = (DRIVER, JVM, MYSQL)


class Ended(Exception):
    """The stream's process ended. The text is the end of its log."""


class Differs(AssertionError):
    """The cells differ from the direct count."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The running servers that a stream needs."""

    broker: BrokerProcess
    mysql: MySqlServer
    redis: RedisServer
    topics: Topics


@contextlib.contextmanager
def servers(bench: Bench) -> Iterator[Servers]:
    """Start new servers; raises Unavailable if one cannot run here."""
    folder = bench.new_folder("stream")
    try:
        mysql, redis = MySqlServer(folder / "mysql"), RedisServer(folder / "redis")
    except Skipped as reason:
        raise Unavailable(str(reason)) from None
    with mysql, redis, BrokerProcess(folder) as broker:
        yield Servers(broker, mysql, redis, Topics(broker.bootstrap))


class StreamRig:
    """One stream with its own topic, database and live view; use as a context manager."""

    def __init__(self, on: Servers, folder: Path, section: dict[str, Any], topic: str) -> None:
        self._on = on
        self._topic = topic
        self.database: MySqlSettings = on.mysql.new_database()
        on.redis.client().flushall()
        on.topics.create(topic, 3, {})
        sinks = SinksSettings(mysql=self.database, redis=on.redis.settings)
        try:
            self._stream = StreamProcess(folder, section, sinks, on.broker.mill_bootstrap)
        except Skipped as reason:
            raise Unavailable(str(reason)) from None
        self._sent = 0

    def __enter__(self) -> "StreamRig":
        self._stream.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *reason: Any) -> None:
        self._stream.__exit__(kind, *reason)
        if kind is None:
            self._on.topics.delete(self._topic)

    def warm_up(self, key: str, lines: Iterable[bytes]) -> None:
        """Produce lines and wait until they are counted, before the clock starts."""
        self._produce(key, lines).commit_transaction(TIMEOUT_S)
        self._wait_counted()

    def backlog(self, key: str, lines: Iterable[bytes]) -> Figures:
        """Produce lines, then let the stream count them as fast as it can. Return the figures."""
        before = self._sent
        producer = self._produce(key, lines)
        pids = self._pids()
        spent = {name: -cpu_s(pid) for name, pid in pids.items()}
        with _Memory(pids) as memory:
            began_s = time.perf_counter()
            producer.commit_transaction(TIMEOUT_S)
            self._wait_counted()
            seconds = time.perf_counter() - began_s
        for name, pid in pids.items():
            spent[name] += cpu_s(pid)
        millions = (self._sent - before) / 1e6
        return {
            "lines_per_s": millions * 1e6 / seconds,
            "stream_cpu_s_per_million_lines": sum(spent[n] for n in STREAM_PROCESSES) / millions,
            **{f"{name}_cpu_s_per_million_lines": s / millions for name, s in spent.items()},
            **{f"{name}_pss_mib_peak": peak for name, peak in memory.peaks.items()},
            "pss_mib_peak": memory.peak_of_all,
        }

    def check(self, metrics: Iterable[Metric], drawn: Drawn) -> int:
        """Compare every cell of every window with a direct count, and return the number of cells.

        Raises Differs if a cell differs or if a line could not be parsed.
        """
        unparsed = self._stream.details()["unparsed_total"]
        if unparsed:
            raise Differs(
                f"the stream could not parse {unparsed} lines: {self._stream.details()['unparsed']}"
            )
        found = 0
        for metric in metrics:
            for size_s in SIZES_S:
                cells = cells_of(metric, drawn, size_s)
                said = list(
                    _some(differences(cells, self._rows(metric.name, size_s)), DIFFERENCES_TOLD)
                )
                if said:
                    raise Differs("; ".join(said))
                found += int((cells.counts > 0).sum())
        return found

    def totals(self, metric: str) -> dict[str | None, int]:
        """Return the number of lines of each key in the window `all`."""
        return {row[1]: row[2] for row in self._rows(metric, 0)}

    def details(self) -> dict[str, Any]:
        """Return the stream's status."""
        return self._stream.details()

    def _rows(self, metric: str, size_s: int) -> Iterator[Row]:
        settings = self.database
        connection = pymysql.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password,
            database=settings.database,
            cursorclass=pymysql.cursors.SSCursor,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', start_at), k1, `count`, `sum`, `min`, "
                "`max`, value FROM windows WHERE metric = %s AND size_s = %s",
                (metric, size_s),
            )
            yield from cursor

    def _produce(self, key: str, lines: Iterable[bytes]) -> Producer:
        """Send lines to the broker in a transaction that stays open. Return its producer."""
        producer = Producer(
            {
                "bootstrap.servers": self._on.broker.bootstrap,
                "transactional.id": f"bench-{self._topic}-{self._sent}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "compression.type": "gzip",
                "compression.level": 1,
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        name = key.encode()
        for line in lines:
            while True:
                try:
                    producer.produce(self._topic, line, name)
                    break
                except BufferError:
                    producer.poll(POLL_S)
            self._sent += 1
        if producer.flush(TIMEOUT_S):
            raise TimeoutError("the broker did not acknowledge the backlog in time")
        return producer

    def _wait_counted(self) -> None:
        seen, end_s = -1, 0.0
        while (counted := self._counted(seen)) < self._sent:
            if counted != seen or not end_s:
                seen, end_s = counted, time.monotonic() + STUCK_S
            elif time.monotonic() > end_s:
                raise TimeoutError(
                    f"the stream counted {counted} of {self._sent} lines and then no more: "
                    f"{self._log_end()}"
                )
            time.sleep(POLL_S)

    def _counted(self, before: int) -> int:
        """Return the number of lines counted by now; `before` if the stream is too busy to
        answer."""
        process = self._stream.process
        if process is None or process.poll() is not None:
            raise Ended(self._log_end())
        try:
            return int(self._stream.details()["lines_total"])
        except StatusUnavailable:
            return before

    def _log_end(self) -> str:
        return self._stream.log_text()[-LOG_CHARACTERS:]

    def _pids(self) -> dict[str, int]:
        driver = self._stream.process
        mysql, redis = self._on.mysql.process, self._on.redis.process
        assert driver is not None and mysql is not None and redis is not None
        children = psutil.Process(driver.pid).children(recursive=True)
        (jvm,) = (child.pid for child in children if child.name() == "java")
        return {
            DRIVER: driver.pid,
            JVM: jvm,
            MYSQL: mysql.pid,
            REDIS: redis.pid,
            BROKER: self._on.broker.pid,
        }


class _Memory:
    """A thread that samples the memory of processes: of each process, and of all together."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)
        self.peaks: dict[str, float] = dict.fromkeys(pids, 0.0)
        self.peak_of_all = 0.0

    def _sample(self) -> None:
        while True:
            found = {name: pss_mib([pid]) for name, pid in self._pids.items()}
            for name, mib in found.items():
                self.peaks[name] = max(mib, self.peaks[name])
            self.peak_of_all = max(self.peak_of_all, sum(found.values()))
            if self._ends.wait(SAMPLE_S):
                return

    def __enter__(self) -> "_Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def _some(told: Iterator[str], most: int) -> Iterator[str]:
    for _, one in zip(range(most), told, strict=False):
        yield one
