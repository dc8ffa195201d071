"""The stream archives raw lines while it is killed. Later it recounts lines that the topic no
longer has.

The recount from the archive reveals faults: a line that was archived twice counts twice, and a
missing line does not count.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.security.cluster_security import ClusterEntry
from sinks.config import SinksSettings
from sinks.mysql import archive_rows
from sinks.mysql import link as mysql_link
from sinks.mysql.recounts import ask_for
from stream.source.kafka import offsets_since
from tests.crash.test_stream_changes import (
    BY_PATH,
    BY_STATUS,
    DEADLINE_S,
    PARTITIONS,
    TOPIC,
    has_come,
    line,
)
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.seed import seeded
from tests.harness.stream import StreamProcess
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live


class Rig:
    """A broker, MySQL, and a stream that archives some hundred lines per second."""

    def __init__(self, folder: Path, broker: BrokerProcess, stream: StreamProcess) -> None:
        self.broker = broker
        self.stream = stream
        self.sent = 0
        self._shelf = folder / "archive" / f"topic={TOPIC}"

    def section(self, *metrics: dict[str, Any]) -> dict[str, Any]:
        return {
            "from": {"access": {"topic": TOPIC, "format": "combined"}},
            "defaults": {"windows": ["all"]},
            "archive": {"folder": str(self._shelf.parent), "every": "1s"},
            "metrics": list(metrics),
        }

    def send(self, lines: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for _ in range(lines):
            producer.produce(TOPIC, line(self.sent), key=f"f{self.sent % 50}".encode())
            self.sent += 1
        assert producer.flush(60) == 0

    def lines(self) -> dict[tuple[int, int], bytes]:
        """Return all sent lines. The topic must still have them."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "t"})
        consumer.assign([TopicPartition(TOPIC, part, 0) for part in range(PARTITIONS)])
        found: dict[tuple[int, int], bytes] = {}

        def is_all() -> bool:
            for one in consumer.consume(10_000, 0.2):
                assert one.error() is None
                found[one.partition() or 0, one.offset() or 0] = one.value() or b""
            return len(found) == self.sent

        wait_until(is_all, DEADLINE_S, "all of the topic")
        consumer.close()
        return found

    def lose(self, ends: dict[int, int]) -> None:
        """Delete the topic's records below these offsets, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        places = [TopicPartition(TOPIC, part, end) for part, end in ends.items()]
        for answer in admin.delete_records(places).values():
            answer.result(30)

    def drafts(self) -> list[Path]:
        return list(self._shelf.glob("_drafts/*"))

    def archived(self) -> int:
        facts = self.stream.details()["archive"]
        return 0 if facts is None else sum(one["lines"] for one in facts["topics"])

    def recount(self, metric: str) -> dict[tuple[str, int], int]:
        """Order a recount as `stream recount` does. Return the start offset of each partition."""
        held = offsets_since(ClusterEntry(self.broker.bootstrap), "t", [TOPIC], None)
        settings = self.stream.sinks.mysql
        assert settings is not None
        link = mysql_link.connect(settings)
        cursor = link.cursor()
        archived = archive_rows.first_since(cursor, [TOPIC], None)
        floors = archive_rows.floors(held, held, archived)
        ask_for(cursor, metric, floors)
        link.commit()
        link.close()
        return floors

    def counts(self, server: MySqlServer, metric: str) -> dict[str, int]:
        settings = self.stream.sinks.mysql
        assert settings is not None
        with server.connect(settings) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT k1, `count` FROM windows WHERE metric = %s AND size_s = 0", (metric,)
            )
            return {str(row["k1"]): int(row["count"]) for row in cursor.fetchall()}


@pytest.fixture
def rig(tmp_path: Path, mysql_server: MySqlServer) -> Iterator[Rig]:
    sinks = SinksSettings(mysql=mysql_server.new_database(), redis=None)
    patch = "import stream.archive.writer as a, stream.recount as r; a.OFFSETS_AT_ONCE = 400"
    run = "r.OFFSETS_AT_ONCE = 700; from stream.__main__ import main; raise SystemExit(main())"
    with BrokerProcess(tmp_path) as broker:
        stream = StreamProcess(tmp_path, {"from": {}}, sinks, broker.mill_bootstrap)
        stream.command = [sys.executable, "-c", f"{patch}; {run}"]
        rig = Rig(tmp_path, broker, stream)
        stream.section = rig.section(BY_STATUS)
        with stream:
            yield rig


def kill_while_archiving(rig: Rig) -> None:
    wait_until(lambda: bool(rig.drafts()), DEADLINE_S, "a piece is being written")
    rig.stream.kill9()
    rig.stream.start()


def recount_to_the_end(rig: Rig, server: MySqlServer, lines: dict[tuple[int, int], bytes]) -> None:
    """Recount `by_path` over all lines, and compare the result with a simple count of the lines."""
    assert rig.recount("by_path") == {(TOPIC, part): 0 for part in range(PARTITIONS)}
    expected = Counter(text.split()[6].decode() for text in lines.values())
    wait_until(
        lambda: sum(rig.counts(server, "by_path").values()) >= rig.sent,
        DEADLINE_S,
        "all is recounted",
    )
    assert rig.counts(server, "by_path") == dict(expected)
    wait_until(lambda: rig.stream.details()["recounts"] == [], DEADLINE_S, "it is done")


@pytest.mark.slow
def test_lines_that_only_the_archive_has_are_recounted(rig: Rig, mysql_server: MySqlServer) -> None:
    rig.send(3_000)
    kill_while_archiving(rig)
    wait_until(lambda: rig.archived() == rig.sent, DEADLINE_S, "all is archived")
    lines = rig.lines()
    ends = Counter(part for part, _ in lines)
    rig.lose({part: end * 2 // 3 for part, end in ends.items()})
    rig.stream.change(rig.section(BY_STATUS, BY_PATH))
    wait_until(
        lambda: rig.stream.details()["metrics"] == ["by_status", "by_path"], DEADLINE_S, "a metric"
    )
    recount_to_the_end(rig, mysql_server, lines)
    status = rig.stream.status()
    assert status.problems == (), "archiving goes well"
    assert rig.archived() == rig.sent, "and what is archived has not been archived again"
    assert rig.stream.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_kills_at_any_moment_of_archiving(rig: Rig, mysql_server: MySqlServer) -> None:
    chance = seeded("stream-archive")
    kills = 10
    for _ in range(kills):
        rig.send(chance.randrange(100, 2_000))
        wait_until(lambda: bool(rig.drafts()), DEADLINE_S, "a piece is written")
        moment = time.monotonic() + chance.uniform(0, 3)
        wait_until(partial(has_come, moment), 10, "the moment of the kill")
        rig.stream.kill9()
        rig.stream.start()
    wait_until(lambda: rig.archived() == rig.sent, DEADLINE_S, "all is archived")
    lines = rig.lines()
    rig.lose(dict(Counter(part for part, _ in lines)))
    rig.stream.change(rig.section(BY_STATUS, BY_PATH))
    wait_until(
        lambda: rig.stream.details()["metrics"] == ["by_status", "by_path"], DEADLINE_S, "a metric"
    )
    recount_to_the_end(rig, mysql_server, lines)
    tell(f"archived over kills: {kills} kills, {rig.sent} lines, each once")
