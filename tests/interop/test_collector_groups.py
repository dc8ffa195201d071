"""Collectors of a trust group, with a real broker."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from collector.send.position_topics import GROUP_PARTITIONS, group_partition, positions_topic
from protocol.collector_report import COLLECTORS_TOPIC, FENCED, STOPPED, CollectorReport, decode
from protocol.status import EXIT_FENCED
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, Read, TopicReader, inputs
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

ALL_PARTITIONS = range(GROUP_PARTITIONS)


def test_collectors_of_a_group_keep_their_positions_in_a_partition_each(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.web")
    names = ("web-1", "web-2", "web-3")
    for round_number in range(2):
        for name in names:
            section = inputs("t.web") | {"instance": name, "group": "web"}
            folder = tmp_path / name
            with CollectorProcess(folder, broker.mill_bootstrap, section) as collector:
                with (collector.home / "watched/text/a.log").open("ab") as log:
                    log.write(b"%s %d\n" % (name.encode(), round_number))
                wait_until(
                    lambda: collector.details()["files"][0]["lines"] == round_number + 1,  # noqa: B023
                    20,
                    "the line",
                )
    wanted = [b"%s %d" % (name.encode(), number) for number in (0, 1) for name in names]
    assert sorted(reader.values(6)) == sorted(wanted)
    assert reader.headers == {line: [("millrace.host", line.split()[0])] for line in wanted}

    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    assert "millrace.positions" not in topics
    assert len(topics[positions_topic("web")].partitions) == GROUP_PARTITIONS
    positions = read(positions_topic("web"), *ALL_PARTITIONS)
    # Each collector has started twice, and has committed two positions of its file.
    positions.values(4 * len(names))
    owners = {(place, (key or b"").split(b"/")[0]) for place, key, _ in positions.records}
    assert owners == {(group_partition(name), name.encode()) for name in names}

    section = inputs("t.web") | {"instance": "web-2", "group": "web"}
    code, said = CollectorProcess(tmp_path / "web-2", broker.mill_bootstrap, section).run("--check")
    (row,) = json.loads(said)["files"]
    assert (code, row["lines"], row["lag_bytes"]) == (0, 2, 0)


def test_a_collector_of_a_group_reports_its_state_and_its_clean_stop(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reports = read(COLLECTORS_TOPIC, 0)
    section = inputs("t.reported") | {"group": "reported", "instance": "r"}

    def last() -> CollectorReport:
        values = [value for _, key, value in reports.poll() if key == b"r"]
        return decode(values[-1])

    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        (collector.home / "watched/text/a.log").write_bytes(b"a line\n")
        wait_until(lambda: last().lines_total == 1, 40, "a report after the line")
        report = last()
        assert (report.state, report.group, report.files) == ("running", "reported", 1)
        assert report.last_commit_ms is not None
        assert report.skew_ms is not None
        assert abs(report.skew_ms) < 5_000, "broker and collector have the same clock"
    wait_until(lambda: last().state == STOPPED, 10, "the last report")
    assert last().problems == ()


def test_with_a_long_interval_every_line_arrives_once(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.slow")
    section = inputs("t.slow") | {"group": "slow", "commit_interval": "1s", "instance": "s"}
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        log = collector.home / "watched/text/a.log"
        log.write_bytes(b"0\n")
        reader.values(1)
        for number in range(1, 200):
            with log.open("ab") as out:
                out.write(b"%d\n" % number)
        assert [int(value) for value in reader.values(200)] == list(range(200))
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        with log.open("ab") as out:
            out.write(b"200\n")
        assert [int(value) for value in reader.values(201)] == list(range(201))


def test_a_collector_that_starts_without_brokers_holds_files_that_are_deleted(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.stop()
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.held"))
        log = collector.home / "watched/text/a.log"
        log.write_bytes(b"first\n")
        collector.spawn()
        try:
            wait_until(
                lambda: collector.status().problems, 30, "the problem that no broker answers"
            )
            assert collector.process is not None
            opened = Path(f"/proc/{collector.process.pid}/fd")
            wait_until(lambda: log in _targets(opened), 30, "the open file")
            with log.open("ab") as out:
                out.write(b"second\n")
            log.unlink()
            log.write_bytes(b"third\n")
            broker.start()
            collector.wait_until_ready()
            reader = TopicReader(broker.bootstrap, "t.held")
            assert sorted(reader.values(3)) == [b"first", b"second", b"third"]
            reader.close()
            wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 30, "no lag")
            assert collector.details()["counters"].get("lost_possible", 0) == 0
        finally:
            collector.close()


def _targets(folder: Path) -> list[Path]:
    """Return the files that a process has open."""
    found = []
    for one in folder.iterdir():
        with suppress(OSError):
            found.append(one.readlink())
    return found


def test_two_collectors_of_one_name_end_with_a_report_of_the_fenced_one(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reports = read(COLLECTORS_TOPIC, 0)
    section = inputs("t.copied") | {"group": "copied", "instance": "copied"}
    pair = [
        CollectorProcess(tmp_path / name, broker.mill_bootstrap, section)
        for name in ("first", "copy")
    ]

    def codes() -> list[int | None]:
        """Write a line for each, because a collector notices the other one when it commits."""
        for one in pair:
            with (one.home / "watched/text/a.log").open("ab") as log:
                log.write(b"a line\n")
        return [one.process.poll() for one in pair if one.process is not None]

    def fenced() -> list[CollectorReport]:
        told = [decode(value) for _, key, value in reports.poll() if key == b"copied"]
        return [one for one in told if any(problem.code == FENCED for problem in one.problems)]

    try:
        pair[0].start()
        pair[1].spawn()
        pair[1].wait_until_ready()
        wait_until(lambda: EXIT_FENCED in codes(), 90, "the end of one of them")
        assert codes().count(None) == 1, "the other one goes on"
        wait_until(fenced, 20, "the report")
        assert fenced()[-1].state == STOPPED
    finally:
        for one in pair:
            one.close()
