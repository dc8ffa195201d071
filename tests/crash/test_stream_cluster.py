"""The stream on a standalone Spark cluster: its executors read, parse and fold every line.

Every cell equals the result on one machine, even if workers and the master are killed. The tests
run with our broker and with Apache Kafka.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sinks.config import MySqlSettings, SinksSettings
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.spark import EventLog, SparkCluster
from tests.harness.stream import StreamProcess
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_200)]

TOPIC = "logs.access"
DEADLINE_S = 240.0
LARGE = 30_000
"""A number of lines so large that all executors share them."""
LIVE = 400
LIVE_ROUNDS = 10
EVENTS_DEADLINE_S = 20.0
METRICS: list[dict[str, Any]] = [
    {"name": "by_status", "from": "access", "key": "status", "measure": "count"},
    {"name": "by_path", "from": "access", "key": "path", "measure": "sum", "value": "bytes"},
]


def line(number: int) -> bytes:
    clock = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    head = f"10.0.{number % 97}.{number % 250} - - [01/Aug/2026:{clock} +0000]"
    return f'{head} "GET /{number % 1_009} HTTP/1.1" {200 + number % 5} {number} "-" "x"'.encode()


class Rig:
    """A broker (ours or Kafka's), both sinks, a Spark cluster and a driver."""

    def __init__(
        self,
        bootstrap: str,
        stream: StreamProcess,
        spark: SparkCluster,
        events: EventLog,
        mysql: MySqlServer,
    ) -> None:
        self.stream = stream
        self.spark = spark
        self.events = events
        self.sent = 0
        self._bootstrap = bootstrap
        self._mysql = mysql

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for number in range(self.sent, self.sent + count):
            producer.produce(TOPIC, line(number), key=f"f{number % 5}".encode())
            producer.poll(0)
        assert producer.flush(60) == 0
        self.sent += count

    def check_exact(self) -> None:
        """Wait until every line is counted, then compare all cells of all windows."""
        wait_until(
            lambda: sum(self._cells("by_status", 0).values()) >= self.sent,
            DEADLINE_S,
            f"{self.sent} lines counted; {self.spark.log_text()}",
        )
        statuses, paths = Counter[str](), Counter[str]()
        for number in range(self.sent):
            statuses[str(200 + number % 5)] += 1
            paths[f"/{number % 1_009}"] += number
        for size_s in (0, 3_600):
            assert self._cells("by_status", size_s) == statuses
            assert self._cells("by_path", size_s) == paths

    def counted_per_s(self, count: int) -> float:
        """Send lines all at once and wait until they are counted. Return the number of lines
        counted per second."""
        began_s = time.monotonic()
        self.send(count)
        self.check_exact()
        return count / (time.monotonic() - began_s)

    def read_by_executors(self, count: int) -> Counter[str]:
        """Wait until executors have read this number of lines in total. Return the number of lines
        by executor."""
        wait_until(
            lambda: self.events.records_read().total() >= count,
            EVENTS_DEADLINE_S,
            f"{count} lines read by tasks: {self.events.records_read()}",
        )
        return self.events.records_read()

    def _cells(self, metric: str, size_s: int) -> Counter[str]:
        settings = self.stream.sinks.mysql
        assert settings is not None
        found: Counter[str] = Counter()
        with self._mysql.connect(settings) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT k1, value FROM windows WHERE metric = %s AND size_s = %s", (metric, size_s)
            )
            for row in cursor.fetchall():
                found[str(row["k1"])] += int(row["value"])
        return found


@pytest.fixture(params=["ours", "kafka"])
def rig(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    mysql_server: MySqlServer,
    redis_server: RedisServer,
) -> Iterator[Rig]:
    with ExitStack() as stack:
        if request.param == "ours":
            broker = stack.enter_context(BrokerProcess(tmp_path))
            inside, outside = broker.mill_bootstrap, broker.bootstrap
        else:
            inside = outside = stack.enter_context(KafkaProcess(tmp_path)).bootstrap
        spark = stack.enter_context(SparkCluster(tmp_path / "spark", workers=2))
        events = EventLog(tmp_path / "events")
        section = {
            "master": spark.url,
            "heap": "512MiB",
            "spark": {**spark.settings, **events.settings},
            "from": {"access": {"topic": TOPIC, "format": "combined"}},
            "defaults": {"windows": ["1h", "all"]},
            "metrics": METRICS,
        }
        database: MySqlSettings = mysql_server.new_database()
        sinks = SinksSettings(mysql=database, redis=redis_server.settings)
        stream = stack.enter_context(StreamProcess(tmp_path, section, sinks, inside))
        yield Rig(outside, stream, spark, events, mysql_server)


def test_executors_do_the_work_for_live_lines_and_for_old_ones(rig: Rig) -> None:
    made_up = rig.events.records_read().total()  # lines generated by the stream's warm-up
    for _ in range(LIVE_ROUNDS):
        rig.send(LIVE)
        rig.check_exact()
    read = rig.read_by_executors(made_up + rig.sent)
    assert set(read) <= {"0", "1"}, f"other readers: {read}"
    two_per_s = rig.counted_per_s(LARGE)
    more = rig.read_by_executors(made_up + rig.sent) - read
    assert min(more["0"], more["1"]) >= LARGE // 4, f"executors share {LARGE} lines: {more}"
    rig.spark.kill9("worker-2")
    one_per_s = rig.counted_per_s(LARGE)
    assert rig.read_by_executors(made_up + rig.sent)["driver"] == 0
    print(f"{LARGE} lines: {two_per_s:.0f}/s by two workers, {one_per_s:.0f}/s by one")


def test_workers_and_master_are_killed_and_every_line_counts_once(rig: Rig) -> None:
    assert rig.spark.executors() == 2, "both workers count"
    rig.send(LARGE)
    rig.check_exact()
    rig.send(LARGE)
    rig.spark.kill9("worker-1")
    rig.send(2_000)
    rig.check_exact()
    rig.spark.start_worker(1)
    rig.send(LARGE)
    rig.spark.kill9("master")
    rig.send(LARGE)
    rig.check_exact()
    rig.spark.start_master()
    rig.send(2_000)
    rig.stream.kill9()
    rig.stream.start()
    rig.send(LARGE)
    rig.check_exact()
    assert rig.stream.stop() == 0
