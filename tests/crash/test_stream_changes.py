"""Metrics are added, removed and rejected while lines arrive and the driver is killed.

The table `metric_ranges` lists the offsets that each metric has counted. A simple count of the
topic's records at those offsets must equal the values in MySQL and Redis.
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from protocol.status import PartState
from sinks.config import MySqlSettings, SinksSettings
from sinks.mysql import link as mysql_link
from sinks.mysql.recounts import ask_for
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.seed import seeded
from tests.harness.stream import StreamProcess
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "logs.access"
BY_STATUS = {"name": "by_status", "from": "access", "key": "status", "measure": "count"}
BY_PATH = {"name": "by_path", "from": "access", "key": "path", "measure": "count"}
BY_USER = {"name": "by_user", "from": "access", "key": "remote_addr", "measure": "count"}
KEYS = {"by_status": 8, "by_path": 6, "by_user": 0}
"""The position of a metric's key among the words of a line."""
DEADLINE_S = 150
PARTITIONS = 3


def section(*metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "from": {"access": {"topic": TOPIC, "format": "combined"}},
        "defaults": {"windows": ["1h", "all"]},
        "metrics": list(metrics),
    }


def line(number: int) -> bytes:
    clock = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    head = f"10.0.0.{number % 250} - - [01/Aug/2026:{clock} +0000]"
    return f'{head} "GET /{number % 17} HTTP/1.1" {200 + number % 5} {number} "-" "x"'.encode()


class Rig:
    """A broker, both sinks, a driver, and a thread that sends lines."""

    def __init__(
        self, broker: BrokerProcess, stream: StreamProcess, mysql: MySqlServer, redis: RedisServer
    ) -> None:
        self.broker = broker
        self.stream = stream
        self.sent = 0
        self._mysql = mysql
        self._redis = redis
        self._ended = threading.Event()
        self._sender = threading.Thread(target=self._send)

    def _send(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True}
        )
        # Send about a thousand lines per second. The metrics change at any point of this load.
        while not self._ended.wait(0.1):
            for _ in range(100):
                producer.produce(TOPIC, line(self.sent), key=f"f{self.sent % 5}".encode())
                self.sent += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def __enter__(self) -> "Rig":
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sender.join()

    def change(self, *metrics: dict[str, Any]) -> None:
        self.stream.change(section(*metrics))

    def wait_counts(self, *metrics: dict[str, Any]) -> float:
        """Wait until the stream reports that it counts these metrics. Return the seconds that
        this took."""
        begin = time.monotonic()
        names = [metric["name"] for metric in metrics]
        wait_until(
            lambda: self.stream.details()["metrics"] == names, DEADLINE_S, f"{names} are counted"
        )
        return time.monotonic() - begin

    def wait_counted(self, more: int) -> None:
        """Wait until this number of further lines is in the ledger."""
        least = sum(self.ledger().values()) + more
        wait_until(lambda: sum(self.ledger().values()) >= least, DEADLINE_S, f"{more} more lines")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        settings = self.stream.sinks.mysql
        assert settings is not None
        with self._mysql.connect(settings) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row.values()) for row in cursor.fetchall()]

    def beginnings(self, metric: str) -> list[int]:
        """Return for each partition the offset from which a metric has counted every line."""
        rows = self.rows(f"SELECT part, start_offset FROM metric_ranges WHERE metric = '{metric}'")
        return [int(start) for _, start in sorted(rows)]

    def recount(self, metric: str) -> None:
        """Order a recount of all lines as `stream recount` does."""
        settings = self.stream.sinks.mysql
        assert settings is not None
        link = mysql_link.connect(settings)
        ask_for(link.cursor(), metric, {(TOPIC, part): 0 for part in range(PARTITIONS)})
        link.close()

    def recounted(self) -> list[str]:
        """Return the metrics whose recount is neither complete nor abandoned."""
        rows = self.rows("SELECT DISTINCT metric FROM recounts WHERE problem IS NULL")
        return [str(metric) for (metric,) in rows]

    def ledger(self) -> dict[int, int]:
        return {
            int(part): int(end) for part, end in self.rows("SELECT part, end_offset FROM ledger")
        }

    def check_exact(self) -> None:
        """Stop the load, and wait until all lines are counted and no recount runs. Then check every
        cell of every metric."""
        self._ended.set()
        self._sender.join()
        wait_until(lambda: sum(self.ledger().values()) == self.sent, DEADLINE_S, "all is counted")
        # A recount changes the ranges and the cells, and they are read one after the other below.
        wait_until(lambda: not self.recounted(), DEADLINE_S, "nothing is being recounted")
        lines = self._topic()
        assert len(lines) == self.sent
        ranges = self.rows("SELECT metric, part, start_offset, end_offset FROM metric_ranges")
        found = {
            (str(metric), str(key)): int(count)
            for metric, key, count in self.rows(
                "SELECT metric, k1, `count` FROM windows WHERE size_s = 0"
            )
        }
        hours: Counter[tuple[str, str]] = Counter()
        for metric, key, count in self.rows(
            "SELECT metric, k1, `count` FROM windows WHERE size_s = 3600"
        ):
            hours[str(metric), str(key)] += int(count)
        expected: Counter[tuple[str, str]] = Counter()
        for (part, offset), text in lines.items():
            for metric in {name for name, _ in found}:
                own = [one for one in ranges if one[0] == metric and one[1] == part]
                # A partition without a range was counted from its first line on.
                if not own or any(
                    start <= offset and (end is None or offset < end) for _, _, start, end in own
                ):
                    expected[metric, text.split()[KEYS[metric]].decode()] += 1
        assert found == dict(expected)
        assert hours == expected
        client: Any = self._redis.client()
        for metric in self.stream.details()["metrics"]:
            shown = {key: int(n) for key, n in client.hgetall(f"mill:{metric}:all").items()}
            assert shown == {key: n for (name, key), n in expected.items() if name == metric}

    def _topic(self) -> dict[tuple[int, int], bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "t",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(TOPIC, part, 0) for part in range(PARTITIONS)])
        found: dict[tuple[int, int], bytes] = {}
        deadline_s = time.monotonic() + 60
        while len(found) < self.sent and time.monotonic() < deadline_s:
            for one in consumer.consume(10_000, 0.5):
                assert one.error() is None
                found[one.partition() or 0, one.offset() or 0] = one.value() or b""
        consumer.close()
        return found


@pytest.fixture
def rig(tmp_path: Path, mysql_server: MySqlServer, redis_server: RedisServer) -> Iterator[Rig]:
    database: MySqlSettings = mysql_server.new_database()
    sinks = SinksSettings(mysql=database, redis=redis_server.settings)
    # Recount only 300 offsets at a time, so that kills come between and within these steps.
    patch = "import stream.recount as r; r.OFFSETS_AT_ONCE = 300"
    run = "from stream.__main__ import main; raise SystemExit(main())"
    with BrokerProcess(tmp_path) as broker:
        stream = StreamProcess(tmp_path, section(BY_STATUS), sinks, broker.mill_bootstrap)
        stream.command = [sys.executable, "-c", f"{patch}; {run}"]
        with stream, Rig(broker, stream, mysql_server, redis_server) as rig:
            yield rig


@pytest.mark.slow
def test_metrics_come_leave_and_are_recounted_over_kills(rig: Rig) -> None:
    rig.wait_counted(2_000)
    first = rig.stream.details()["query_id"]
    rig.change(BY_STATUS, BY_PATH)
    tell(f"a metric added: counted after {rig.wait_counts(BY_STATUS, BY_PATH):.1f} s")
    missing = sum(rig.beginnings("by_path"))
    assert missing >= 2_000
    rig.recount("by_path")
    wait_until(
        lambda: sum(rig.beginnings("by_path")) < 0.8 * missing, DEADLINE_S, "a part is recounted"
    )
    rig.stream.kill9()
    assert sum(rig.beginnings("by_path")) > 0, "it was killed on the way"
    rig.stream.start()
    wait_until(lambda: sum(rig.beginnings("by_path")) == 0, DEADLINE_S, "all is recounted")
    rig.change(BY_PATH, BY_USER)
    tell(f"one removed, one added: counted after {rig.wait_counts(BY_PATH, BY_USER):.1f} s")
    rig.wait_counted(1_000)
    rig.change(BY_STATUS, BY_PATH)
    rig.wait_counts(BY_STATUS, BY_PATH)
    rig.wait_counted(1_000)
    assert rig.stream.details()["query_id"] == first, "the checkpoint is kept"
    assert rig.stream.details()["recounts"] == []
    rig.check_exact()
    [(counted,)] = rig.rows(
        "SELECT SUM(`count`) FROM windows WHERE metric = 'by_path' AND size_s = 0"
    )
    assert counted == rig.sent, "the recounted metric has every line"
    assert rig.stream.stop() == 0


def test_what_cannot_be_counted_is_refused_and_the_rest_goes_on(rig: Rig) -> None:
    broken = {**BY_PATH, "where": "status >"}
    rig.change(BY_STATUS, broken)
    check_refused(rig, "stream.metrics.1.where")
    rig.stream.kill9()
    rig.stream.start()
    check_refused(rig, "stream.metrics.1.where")
    other = {**BY_STATUS, "key": "path"}
    rig.change(other)
    check_refused(rig, "stream forget by_status")
    rig.change(BY_STATUS, BY_PATH)
    rig.wait_counts(BY_STATUS, BY_PATH)
    assert rig.stream.status().state is PartState.RUNNING
    assert not (rig.stream.data_dir / "refused.json").exists()
    rig.check_exact()


def check_refused(rig: Rig, words: str) -> None:
    """Check that the status reports the rejected change, and that lines are counted as before."""

    def is_said() -> bool:
        problems = [one.text for one in rig.stream.status().problems if one.code == "configuration"]
        return any(words in text for text in problems)

    wait_until(is_said, DEADLINE_S, f"{words!r} is said")
    assert rig.stream.status().state is PartState.DEGRADED
    assert rig.stream.details()["metrics"] == ["by_status"]
    rig.wait_counted(500)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_changes_and_kills_at_any_moment(rig: Rig) -> None:
    chance = seeded("stream-changes")
    metrics: list[dict[str, Any]] = [BY_STATUS]
    for number in range(20):
        metrics = some_of(chance)
        rig.change(*metrics)
        if number % 5 == 4:
            rig.recount(chance.choice(metrics)["name"])
        moment = time.monotonic() + chance.uniform(0, 6)
        wait_until(partial(has_come, moment), 10, "the moment of the kill")
        if number % 2:
            rig.stream.kill9()
            rig.stream.start()
    rig.wait_counts(*metrics)
    rig.wait_counted(1_000)
    rig.check_exact()


def has_come(moment_s: float) -> bool:
    return time.monotonic() >= moment_s


def some_of(chance: random.Random) -> list[dict[str, Any]]:
    """Return at least one of the metrics."""
    return chance.sample([BY_STATUS, BY_PATH, BY_USER], chance.randrange(1, 4))
