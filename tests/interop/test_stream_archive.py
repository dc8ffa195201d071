"""The archive with a real Spark has every line once and unchanged, even after a driver has died
while writing."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.errors import ApiError, ErrorCode
from protocol.security.cluster_security import ClusterEntry
from sinks.rows import OffsetRange
from stream.archive import writer as archive_module
from stream.archive.folders import HadoopFolder, LocalFolder, root_of
from stream.archive.writer import ArchiveAway, ArchiveWriter
from stream.config.settings import ArchiveSection, StreamSection
from stream.parse.host import host_sql
from stream.source.kafka import COLUMNS, ask_readable
from stream.state import StreamState
from tests.harness.broker import BrokerProcess
from tests.harness.seed import seeded
from tests.interop.stream_spark import has_connector, spark

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not has_connector(), reason="set-up has not fetched Spark's Kafka connector"
    ),
]

TOPIC = "logs.t"
HOUR_MS = 3_600_000
HEADERS: list[list[tuple[str, str | bytes | None]]] = [
    [],
    [("millrace.host", b"web-07"), ("env", b"test")],
    [("millrace.host", b"\xff")],
]
TEN_MS = 1_785_578_400_000 - 1_785_578_400_000 % HOUR_MS


class Rig:
    """A broker with a topic of two partitions, and an archive that writes when the test calls
    `look`."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self.broker = broker
        self.folder = folder / "an archive"
        self.state = StreamState("stream", [], 100)
        self.section = StreamSection.model_validate(
            {"from": {"t": {"topic": TOPIC, "format": "raw"}}, "metrics": []}
        )
        self.root = root_of("an archive", folder)
        self.archive = self.begin()

    def begin(self) -> ArchiveWriter:
        """Start the archive writer of another driver on the same folder."""
        now = SimpleNamespace(section=self.section, sinks=SimpleNamespace(takes_blocks=False))
        configuration: Any = SimpleNamespace(now=now)
        self.archive = ArchiveWriter(
            configuration,
            ArchiveSection(folder="unused"),
            self.root,
            ClusterEntry(self.broker.bootstrap),
            lambda topics: ask_readable(ClusterEntry(self.broker.bootstrap), "test", topics),
            self.state,
            threading.Event(),
        )
        return self.archive

    def look(self) -> None:
        self.archive.look(spark().newSession())

    def send(self, lines: int, partition: int = 0) -> None:
        """Send lines of random bytes, some without a key. Their timestamps spread over three hours
        and are not in order."""
        chance = seeded("archive-lines")
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(lines):
            producer.produce(
                TOPIC,
                b"\xff\x00 %d " % number + chance.randbytes(chance.randrange(40)),
                key=None if number % 7 == 0 else b"t/\xfe.log",
                partition=partition,
                timestamp=TEN_MS + chance.randrange(3 * HOUR_MS),
                headers=HEADERS[number % len(HEADERS)],
            )
        assert producer.flush(30) == 0

    def delete_below(self, partition: int, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for answer in admin.delete_records([TopicPartition(TOPIC, partition, offset)]).values():
            answer.result(30)

    def topic(self) -> dict[tuple[int, int], tuple[Any, ...]]:
        """Return the records of the topic: key, value, timestamp and name of the collector, by
        partition and offset."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "t"})
        found: dict[tuple[int, int], tuple[Any, ...]] = {}
        for part in range(2):
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, part), 30)
            consumer.assign([TopicPartition(TOPIC, part, low)])
            while sum(one == part for one, _ in found) < high - low:
                for record in consumer.consume(1_000, 0.1):
                    key = (part, record.offset() or 0)
                    found[key] = (
                        record.key(), record.value(), record.timestamp()[1],
                        dict(record.headers() or []).get("millrace.host"),
                    )  # fmt: skip
        consumer.close()
        return found

    def read(self, *ranges: tuple[int, int, int]) -> dict[tuple[int, int], tuple[Any, ...]]:
        """Return the archived lines in the same form as `topic`. Fail if an offset occurs twice."""
        wanted = [OffsetRange(TOPIC, *one) for one in ranges]
        lines = self.archive.read(spark(), wanted)
        assert tuple(lines.columns) == COLUMNS
        rows = lines.selectExpr(
            "key", "value", "topic", "partition", "offset", "unix_millis(timestamp)",
            host_sql("headers"),
        ).collect()  # fmt: skip
        found = {
            (row[3], row[4]): (as_bytes(row[0]), as_bytes(row[1]), row[5], as_bytes(row[6]))
            for row in rows
        }
        assert len(found) == len(rows), "no line is there twice"
        assert {row[2] for row in rows} <= {TOPIC}
        return found

    def facts(self) -> dict[str, Any]:
        found: Any = self.state.snapshot().details["archive"]
        return dict(found)


def as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(archive_module, "OFFSETS_AT_ONCE", 400)
    monkeypatch.setattr(archive_module, "REST_S_MAX", 0.0)
    with BrokerProcess(tmp_path, {"num.partitions": 2}) as broker:
        yield Rig(tmp_path, broker)


def test_every_line_is_there_once_and_as_it_was(rig: Rig) -> None:
    rig.send(500, 0)
    rig.send(30, 1)
    rig.look()
    before = rig.topic()
    assert rig.archive.held([TOPIC]) == {TOPIC: {0: ((0, 500),), 1: ((0, 30),)}}
    assert rig.read((0, 0, 500), (1, 0, 30)) == before
    assert rig.read((0, 190, 210)) == {
        key: line for key, line in before.items() if key[0] == 0 and 190 <= key[1] < 210
    }
    # Another driver must delete the draft of a dead driver, and continue after the last complete
    # file.
    dead = rig.folder / f"topic={TOPIC}/_drafts/00000009-dead/hour=2026-08-01T10"
    dead.mkdir(parents=True)
    (dead / "part-0.parquet").write_text("half of a file")
    rig.send(10, 1)
    rig.begin().look(spark().newSession())
    assert not dead.exists()
    assert rig.read((0, 0, 500), (1, 0, 40)) == rig.topic()
    hours = {path.name for path in rig.folder.glob("*/hour=*")}
    assert len(hours) == 3
    assert min(hours) == "hour=2026-08-01T10"
    # A tool that reads only the folders, such as DuckDB, must find the same lines.
    plain = spark().read.parquet(f"{rig.root}/topic={TOPIC}/")
    assert plain.count() == 540
    assert plain.where(
        "CAST(date_format(timestamp, \"yyyy-MM-dd'T'HH\") AS STRING) <> hour"
    ).isEmpty()
    assert list(rig.facts()["topics"]) == [{"topic": TOPIC, "pieces": 3, "lines": 540, "lost": 0}]
    assert rig.facts()["problem"] is None


def test_files_without_the_column_host_are_read(rig: Rig) -> None:
    """Earlier versions did not write the column."""
    rig.send(30)
    rig.look()
    for path in rig.folder.glob("topic=*/hour=*/*.parquet"):
        earlier = rig.folder.parent / "earlier"
        written = spark().read.parquet(str(path)).drop("host").coalesce(1).write
        written.mode("overwrite").parquet(str(earlier))
        (made,) = earlier.glob("*.parquet")
        made.replace(path)
    rig.send(30)
    rig.look()
    sent = rig.topic()
    assert rig.read((0, 0, 60)) == {
        place: line if place[1] >= 30 else (*line[:-1], None) for place, line in sent.items()
    }


def test_what_retention_took_first_is_said_and_counted(rig: Rig) -> None:
    rig.send(100, 0)
    rig.look()
    rig.send(100, 0)
    rig.delete_below(0, 150)
    rig.look()
    assert rig.archive.held([TOPIC]) == {TOPIC: {0: ((0, 100), (150, 200))}}
    assert rig.facts()["topics"][0]["lost"] == 50
    assert set(rig.read((0, 90, 200))) == {(0, n) for n in (*range(90, 100), *range(150, 200))}


def test_a_recreated_topic_is_not_mixed_with_the_old_one(rig: Rig) -> None:
    rig.send(50, 0)
    rig.look()
    asked = ask_readable(ClusterEntry(rig.broker.bootstrap), "test", [TOPIC])[TOPIC]
    assert asked.id, "our broker tells ids"
    admin = AdminClient({"bootstrap.servers": rig.broker.bootstrap})
    for answer in admin.delete_topics([TOPIC]).values():
        answer.result(30)
    rig.send(80, 0)
    rig.look()
    assert rig.archive.held([TOPIC]) == {TOPIC: {}}, "its offsets are those of other lines"
    assert "created again" in rig.facts()["problem"]
    assert f"topic={TOPIC}" in rig.facts()["problem"], "it is said what to do"
    (rig.folder / f"topic={TOPIC}").rename(rig.folder / "before")
    rig.look()
    assert rig.facts()["problem"] is None
    assert rig.read((0, 0, 80)) == rig.topic()


def test_what_fails_is_said_and_goes_on_later(rig: Rig) -> None:
    rig.send(50, 0)
    rig.folder.write_text("a file where the folder should be")
    rig.look()
    assert TOPIC in rig.facts()["problem"]
    with pytest.raises(ArchiveAway):
        rig.archive.held([TOPIC])
    rig.folder.unlink()
    rig.look()
    assert rig.facts()["problem"] is None
    assert rig.read((0, 0, 50)) == rig.topic()

    def away(topics: object) -> Any:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    rig.archive._ask = away
    rig.look()
    assert "COORDINATOR" in rig.facts()["problem"]
    assert rig.archive.held([TOPIC]) == {TOPIC: {0: ((0, 50),)}}, "what is there can be read"


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_a_folder_here_and_one_of_hadoops_do_the_same(kind: str, tmp_path: Path) -> None:
    root = root_of("a folder", tmp_path)
    folder = LocalFolder(root) if kind == "local" else HadoopFolder(root, spark())
    assert folder.root == f"file://{tmp_path}/a folder"
    assert folder.names("none") == []
    folder.write_new("notes/1.json", b"\x00\xff one")
    with pytest.raises(FileExistsError):
        folder.write_new("notes/1.json", b"two")
    assert folder.read("notes/1.json") == b"\x00\xff one"
    assert [name for name in folder.names("notes") if not name.startswith(".")] == ["1.json"]
    folder.write_new("drafts/x/part", b"lines")
    folder.settle("drafts/x")
    for _ in range(2):
        # A driver that restarts after a death can move the same file a second time.
        folder.move("drafts/x/part", "hours/a/1")
    assert folder.read("hours/a/1") == b"lines"
    folder.remove("drafts/x")
    folder.remove("drafts/x")
    assert folder.names("drafts/x") == []
    folder.remove("hours/a/1")
    assert "1" not in folder.names("hours/a")
