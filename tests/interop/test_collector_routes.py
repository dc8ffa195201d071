"""Inputs that take the topic's name from the path. With a real broker, topics are created when
needed, and each line is sent once."""

import hashlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.wait import wait_until
from tests.interop.test_collector_orders import Followed, Impatient, Writer

pytestmark = pytest.mark.live

SEED = int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))
FOLDERS = ("web", "db", "app")
KILLS = 5
LINES_MAX = 500
"""The most lines between two kills."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


def section(template: str = "logs.{1}", **keys: object) -> dict[str, Any]:
    return {"inputs": [{"paths": ["watched/*/*"], "topic": template, **keys}]}


def topics_of(broker: BrokerProcess) -> set[str]:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    return {name for name in found if name.startswith("logs.")}


def prepare(collector: CollectorProcess) -> list[Path]:
    """Create the watched folders. Return the path of one file in each of them."""
    for name in FOLDERS:
        (collector.home / "watched" / name).mkdir()
    return [collector.home / "watched" / name / f"{name}.log" for name in FOLDERS]


def check_arrival(broker: BrokerProcess, writer: Writer, *topics: str) -> dict[str, list[bytes]]:
    """Check that every line arrived exactly once, counted over all these topics. Return the lines
    of each topic."""
    readers = {topic: TopicReader(broker.bootstrap, topic, (0,)) for topic in topics}

    def count() -> int:
        return sum(len(reader.poll()) for reader in readers.values())

    try:
        wait_until(lambda: count() >= len(writer.written), 60, f"all lines, MILLRACE_SEED={SEED}")
        count()
        held = {
            topic: [value for _, _, value in reader.records] for topic, reader in readers.items()
        }
    finally:
        for reader in readers.values():
            reader.close()
    found = sorted(value for values in held.values() for value in values)
    assert found == sorted(writer.written), f"MILLRACE_SEED={SEED}"
    return held


def test_killed_at_any_moment_each_line_is_once_in_the_topic_of_its_folder(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section())
    writer = Writer(prepare(collector))
    writer.start()
    try:
        for _ in range(KILLS):
            collector.start()
            enough = len(writer.written) + rng.randrange(LINES_MAX)
            wait_until(lambda: len(writer.written) >= enough, 30, "lines before a death")  # noqa: B023
            collector.kill9()
        collector.start()
    finally:
        writer.stop()
    held = check_arrival(broker, writer, *(f"logs.{name}" for name in FOLDERS))
    for name in FOLDERS:
        assert {value.split()[0] for value in held[f"logs.{name}"]} == {f"{name}.log".encode()}
    assert topics_of(broker) == {f"logs.{name}" for name in FOLDERS}
    assert collector.details()["counters"].get("lost_possible", 0) == 0
    assert collector.stop() == 0


def test_a_changed_template_holds_for_what_is_read_from_then_on(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    one = Followed(tmp_path, broker.mill_bootstrap, section())
    writer = Writer(prepare(one))
    with one:
        writer.start()
        try:
            wait_until(lambda: len(topics_of(broker)) == len(FOLDERS), 30, "the topics")
            pid = one.status().pid
            one.save(section("logs.new.{1}"))
            wanted = hashlib.sha256(one.file.read_bytes()).hexdigest()
            wait_until(lambda: one.details()["config_sha256"] == wanted, 30, "the template")
            wait_until(lambda: len(topics_of(broker)) == 2 * len(FOLDERS), 30, "new topics")
        finally:
            writer.stop()
        names = [f"logs.{kind}{name}" for kind in ("", "new.") for name in FOLDERS]
        held = check_arrival(broker, writer, *names)
        assert all(held.values())
        assert one.status().pid == pid


def test_files_beyond_the_limit_wait_in_their_place_and_that_is_told(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section(max_topics=2))
    prepare(collector)
    for name in ("web", "db"):
        (collector.home / f"watched/{name}/a").write_bytes(b"%s\n" % name.encode())
    assert collector.run("--once")[0] == 0
    (collector.home / "watched/app/a").write_bytes(b"app\n")
    (collector.home / "watched/app/b c").write_bytes(b"app\n")
    code, said = collector.run("--once")
    assert code == 1
    incomplete = json.loads(said.splitlines()[-1])["incomplete"]
    assert len(incomplete) == 2
    assert all("already has 2 topics (max_topics)" in text for text in incomplete)
    report = json.loads(collector.run("--check")[1])
    assert [text for text in report["problems"] if "max_topics" in text] == incomplete
    with collector:
        wait_until(lambda: bool(collector.status().problems), 20, "the problem")
        (problem,) = collector.status().problems
        assert problem.code == "files"
        assert "2 files cannot be read" in problem.text
    assert topics_of(broker) == {"logs.web", "logs.db"}
    collector.section = section(max_topics=3)
    assert collector.run("--once")[0] == 0
    reader = TopicReader(broker.bootstrap, "logs.app", (0,))
    assert reader.values(2) == [b"app"] * 2
    reader.close()


def test_a_topic_that_the_cluster_refuses_keeps_only_its_own_files_waiting(
    tmp_path: Path,
) -> None:
    limits = {"max.topics": "6"}
    with BrokerProcess(tmp_path / "broker", settings=limits) as broker:
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section())
        names = [f"x{number}" for number in range(6)]
        with collector:
            for name in names:
                (collector.home / "watched" / name).mkdir()
                (collector.home / "watched" / name / "a").write_bytes(b"one\n")
            wait_until(
                lambda: any(p.code == "topic" for p in collector.status().problems), 30, "told"
            )
            made = topics_of(broker)
            assert 0 < len(made) < 6
            wait_until(lambda: collector.details()["lines_total"] == len(made), 30, "the others")
        impatient = Impatient(tmp_path, broker.mill_bootstrap, section())
        code, said = impatient.run("--once")
        assert code == 5
        incomplete = json.loads(said.splitlines()[-1])["incomplete"]
        assert incomplete[-1].startswith("no topic for some files for ")
        assert len([text for text in incomplete if " could not be created: " in text]) == 6 - len(
            made
        )


def test_a_topic_made_so_takes_the_longest_line_and_the_partitions_that_are_listed_for_it(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section())
    collector.topics = [{"name": "logs.web", "partitions": 5}]
    prepare(collector)
    long = b"x" * (1 << 20)
    (collector.home / "watched/web/a").write_bytes(long + b"\n")
    (collector.home / "watched/db/a").write_bytes(long + b"\n")
    assert collector.run("--once")[0] == 0, collector.log_text()
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    assert (len(found["logs.web"].partitions), len(found["logs.db"].partitions)) == (5, 1)
    for topic, count in (("logs.web", 5), ("logs.db", 1)):
        reader = TopicReader(broker.bootstrap, topic, tuple(range(count)))
        assert reader.values(1) == [long]
        reader.close()
