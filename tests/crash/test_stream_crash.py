"""The driver is killed, is stopped, or loses its checkpoint. The broker and both sinks are real."""

import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sinks.config import MySqlSettings, SinksSettings
from stream.job import EXIT_SETTINGS
from stream.pieces import PIECE_OFFSETS_MIN
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.seed import seeded
from tests.harness.stream import StreamProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "logs.access"
SECTION: dict[str, Any] = {
    "from": {"access": {"topic": TOPIC, "format": "combined"}},
    "defaults": {"windows": ["1h", "all"]},
    "metrics": [
        {"name": "by_status", "from": "access", "key": "status", "measure": "count"},
        {"name": "sizes", "from": "access", "measure": "sum", "value": "bytes"},
    ],
}
DEADLINE_S = 150


def line(number: int) -> bytes:
    clock = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    status = (200, 304, 404, 500)[number % 4]
    head = f"10.0.0.{number % 250} - - [01/Aug/2026:{clock} +0000]"
    return f'{head} "GET /{number % 17} HTTP/1.1" {status} {number} "-" "x"'.encode()


@dataclass
class Rig:
    """A broker, both sinks, and a record of the sent lines."""

    broker: BrokerProcess
    mysql: MySqlServer
    redis: RedisServer
    database: MySqlSettings
    folder: Path
    sent: int = 0

    def stream(self, name: str = "stream") -> StreamProcess:
        sinks = SinksSettings(mysql=self.database, redis=self.redis.settings)
        return StreamProcess(self.folder, SECTION, sinks, self.broker.mill_bootstrap, name)

    def send(self, count: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "queue.buffering.max.messages": max(count, 1_000),
            }
        )
        for number in range(self.sent, self.sent + count):
            producer.produce(TOPIC, line(number), key=f"f{number % 5}".encode())
            producer.poll(0)
        assert producer.flush(60) == 0
        self.sent += count

    def totals(self) -> tuple[dict[str, int], int]:
        """Return MySQL's counts: the number of lines by status, and the sum of the sizes."""
        with self.mysql.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT metric, k1, `count`, `sum` FROM windows WHERE size_s = 0")
            rows: list[dict[str, Any]] = list(cursor.fetchall())
        statuses = {str(r["k1"]): int(r["count"]) for r in rows if r["metric"] == "by_status"}
        return statuses, sum(int(r["sum"]) for r in rows if r["metric"] == "sizes")

    def expected(self) -> tuple[dict[str, int], int]:
        statuses: dict[str, int] = {}
        for number in range(self.sent):
            status = str((200, 304, 404, 500)[number % 4])
            statuses[status] = statuses.get(status, 0) + 1
        return statuses, sum(range(self.sent))

    def live(self) -> dict[str, int]:
        client: Any = self.redis.client()
        return {key: int(value) for key, value in client.hgetall("mill:by_status:all").items()}

    def ledger_is_at_the_ends(self) -> bool:
        with self.mysql.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT part, end_offset FROM ledger WHERE topic = %s", (TOPIC,))
            counted = {int(row["part"]): int(row["end_offset"]) for row in cursor.fetchall()}
        listed: Any = self.broker.status().details["partition_list"]
        ends = {p["partition"]: p["log_end_offset"] for p in listed if p["topic"] == TOPIC}
        return sum(ends.values()) >= self.sent and counted == ends

    def check_exact(self) -> None:
        """Wait until the ledger has everything that was sent, and then compare every count."""
        wait_until(self.ledger_is_at_the_ends, DEADLINE_S, "the ledger at the topic's ends")
        assert self.totals() == self.expected()
        wait_until(lambda: self.live() == self.expected()[0], 30, "Redis shows the same")

    def wait_counted(self, least: int) -> None:
        wait_until(
            lambda: sum(self.totals()[0].values()) >= least, DEADLINE_S, f"{least} lines counted"
        )


@pytest.fixture
def rig(tmp_path: Path, mysql_server: MySqlServer, redis_server: RedisServer) -> Iterator[Rig]:
    with BrokerProcess(tmp_path) as broker:
        yield Rig(broker, mysql_server, redis_server, mysql_server.new_database(), tmp_path)


@pytest.mark.slow
def test_killed_during_load_nothing_is_lost_or_doubled(rig: Rig) -> None:
    chance = seeded("stream-kill")
    with rig.stream() as stream:
        for _ in range(2):
            load = threading.Thread(target=rig.send, args=(10_000,))
            before = sum(rig.totals()[0].values())
            load.start()
            rig.wait_counted(before + chance.randrange(1, 4_000))
            stream.kill9()
            load.join()
            stream.start()
        rig.check_exact()
        assert stream.stop() == 0


@pytest.mark.slow
def test_a_lost_checkpoint_resumes_from_the_ledger(rig: Rig) -> None:
    with rig.stream() as stream:
        rig.send(3_000)
        rig.check_exact()
        first = stream.details()["query_id"]
        stream.kill9()
        shutil.rmtree(stream.data_dir / "checkpoint")
        rig.send(2_000)
        stream.start()
        assert stream.details()["query_id"] != first
        rig.check_exact()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_counts_of_an_unreleased_version_are_refused_and_another_database_is_filled(
    rig: Rig,
) -> None:
    rig.send(3_000)
    stream = rig.stream()
    with stream:
        rig.check_exact()
        assert stream.stop() == 0
        with rig.mysql.connect(rig.database) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE schema_version SET version = 3")
        stream.spawn()
        assert stream.wait(DEADLINE_S) == EXIT_SETTINGS
        assert " ERROR stream MySQL has counts of version 3, " in stream.log_text()
        assert "Traceback" not in stream.log_text()
    # Follow the message's advice and name another database. Redis must then show its counts.
    rig.database = rig.mysql.new_database()
    rig.send(500)
    with rig.stream():
        rig.check_exact()


@pytest.mark.slow
def test_killed_between_the_pieces_of_a_batch_it_goes_on_behind_them(rig: Rig) -> None:
    """The driver sends a large batch to the sinks in pieces, and is killed between two pieces.
    Spark then plans the whole batch again, and the driver must skip the pieces already stored."""
    rig.send(3 * PIECE_OFFSETS_MIN + 7)
    with rig.stream() as stream:

        def is_between() -> bool:
            return 0 < sum(rig.totals()[0].values()) < rig.sent

        wait_until(is_between, DEADLINE_S, "some pieces of the batch, and not all")
        stream.kill9()
        counted = sum(rig.totals()[0].values())
        assert 0 < counted < rig.sent, "the batch came in one piece"
        stream.start()
        rig.check_exact()
        assert stream.details()["counters"]["resumes"] == 0, "its checkpoint stayed good"
        assert stream.stop() == 0


@pytest.mark.slow
def test_a_driver_that_wakes_after_its_successor_changes_nothing(rig: Rig) -> None:
    with rig.stream("old") as old, rig.stream("new") as new:
        # `new` opened the sinks after `old`, so MySQL rejects the next batch of `old`.
        old.send(signal.SIGSTOP)
        rig.send(5_000)
        rig.check_exact()
        query = new.details()["query_id"]
        old.send(signal.SIGCONT)
        assert old.wait(DEADLINE_S) == 75
        assert rig.totals() == rig.expected()
        assert rig.live() == rig.expected()[0]
        rig.send(500)
        rig.check_exact()
        assert new.details()["query_id"] == query
