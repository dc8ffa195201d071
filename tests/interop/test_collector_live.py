"""The collector's process with a real broker."""

import gzip
import json
import os
import signal
import socket
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from protocol.client.partitioner import partition_for_key
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, Read, inputs
from tests.harness.logs import shared_log
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

QUEUED_EVENTS_MAX = Path("/proc/sys/fs/inotify/max_queued_events")
"""The number of events that a process can leave unread; later events are lost, and the kernel
reports it."""


def drop(source: Path, target: Path) -> bytes:
    """Copy a file into a watched folder, as a user does. Return its content."""
    data = source.read_bytes()
    target.write_bytes(data)
    return data


def test_a_real_access_log_arrives_line_by_line(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.access")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.access")) as collector:
        log = shared_log("apache_access.log")
        data = drop(log, collector.home / "watched/access/access.log")
        lines = data.split(b"\n")[:-1]
        assert reader.values(10_000) == lines
        assert {key for _, key, _ in reader.records} == {b"access/access.log"}
        assert len({partition for partition, _, _ in reader.records}) == 1
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 10, "no lag")
        (row,) = collector.details()["files"]
        assert (row["position"], row["lines"], row["state"]) == (len(data), 10_000, "idle")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.access")) as collector:
        drop(log, collector.home / "watched/access/again.log")
        assert sorted(reader.values(20_000)) == sorted(lines * 2)


def test_crlf_and_a_last_line_without_an_end(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.ssh")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.ssh")) as collector:
        target = collector.home / "watched/text/ssh.log"
        data = drop(shared_log("OpenSSH_2k.log"), target)
        expected = data.split(b"\r\n")
        assert reader.values(1_999) == expected[:1999]
        wait_until(lambda: collector.details()["files"][0]["lines"] == 1999, 10, "1,999 lines")
        assert collector.details()["lag_bytes_total"] == len(expected[-1])
        with target.open("ab") as writer:
            writer.write(b"\r\n")
        assert reader.values(2_000) == expected


def test_once_reads_everything_and_ends(broker: BrokerProcess, tmp_path: Path, read: Read) -> None:
    reader = read("t.once")
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.once"))
    folder = collector.home / "watched/text"
    (folder / "a.log").write_bytes(b"one\ntwo\nhalf")
    (folder / "b.log.gz").write_bytes(gzip.compress(b"zip\n" * 1000))
    (folder / "c.log").write_bytes(b"x" * 3_000_000 + b"\nafter\n")
    code, out = collector.run("--once")
    assert code == 0, collector.log_text()
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["event"] == "done"
    assert events[-1]["incomplete"] == []
    assert events[-1]["files_done"] == 3
    values = reader.values(3 + 1000 + 4)
    assert values.count(b"zip") == 1000
    assert reader.headers == {b"half": [("millrace.unfinished", b"1")]}
    assert b"after" in values
    assert b"".join(value for value in values if b"xx" in value) == b"x" * 3_000_000
    code, out = collector.run("--once")
    assert code == 0
    assert json.loads(out.splitlines()[-1])["lines"] == 0
    (folder / "d.gz").write_bytes(gzip.compress(b"zip\n" * 1000)[:-20])
    code, out = collector.run("--once")
    assert code == 1
    assert "not complete yet" in json.loads(out.splitlines()[-1])["incomplete"][0]


def test_check_shows_files_positions_and_lag(broker: BrokerProcess, tmp_path: Path) -> None:
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.check"))
    path = collector.home / "watched/text/a.log"
    path.write_bytes(b"one\ntwo\n")
    code, out = collector.run("--check")
    report = json.loads(out)
    assert (code, report["instance"], report["broker"]["reached"]) == (0, None, True)
    assert [(f["verdict"], f["position"], f["lag_bytes"]) for f in report["files"]] == [
        ("new", 0, 8)
    ]
    assert not collector.data_dir.exists()
    assert collector.run("--once")[0] == 0
    with path.open("ab") as out_file:
        out_file.write(b"three\n")
    report = json.loads(collector.run("--check")[1])
    (row,) = report["files"]
    assert (row["verdict"], row["position"], row["lag_bytes"]) == ("grown", 8, 6)
    assert row["inode"] == path.stat().st_ino
    assert row["key"] == "text/a.log"


def test_two_collectors_never_share_a_data_folder(broker: BrokerProcess, tmp_path: Path) -> None:
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.lock")) as collector:
        assert collector.process is not None
        code, _ = collector.run("--once")
        assert code == 1
        assert f"in use by the collector with pid {collector.process.pid}" in collector.log_text()


def test_overlong_lines_go_to_the_dead_letters(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    section = inputs("t.dead", max_line_bytes=1024, on_overlong="dead_letter")
    dead = read("millrace.dead-letters", 0)
    reader = read("t.dead")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        path = collector.home / "watched/text/a.log"
        path.write_bytes(b"short\n" + b"y" * 5000 + b"\nend\n")
        assert reader.values(2) == [b"short", b"end"]
        value = dead.values(1)[-1]
        assert value == b"y" * 1024
        assert dead.headers[value] == [
            ("reason", b"overlong"),
            ("topic", b"t.dead"),
            ("file", str(path).encode()),
            ("offset", b"6"),
            ("length", b"5001"),
        ]
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 10, "no lag")
        assert collector.details()["counters"]["dead_lettered"] == 1


def test_a_rotation_under_load_keeps_every_line_in_order(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.rotate")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.rotate")) as collector:
        folder = collector.home / "watched/access"
        written, number = [], 0

        def has_seen(count: int) -> bool:
            return bool(collector.details()["files_total"] == count)

        for rotation in range(8):
            with (folder / "access.log").open("ab") as writer:
                for part in range(40):
                    lines = [b"%07d" % n for n in range(number, number + 100)]
                    number += 100
                    written += lines
                    writer.write(b"\n".join(lines) + b"\n")
                    writer.flush()
                    time.sleep(0.002)
                    if part == 20:
                        # Wait until the collector has seen the file. It keeps the name under which
                        # it saw the file first, and the check below needs `access.log`.
                        wait_until(partial(has_seen, rotation + 1), 30, f"file {rotation}")
                for index in range(rotation, 0, -1):
                    os.rename(folder / f"access.log.{index}", folder / f"access.log.{index + 1}")
                os.rename(folder / "access.log", folder / "access.log.1")
                writer.write(b"%07d\n" % number)
                written.append(b"%07d" % number)
                number += 1
        values = reader.values(len(written))
        assert sorted(values) == written
        assert {key for _, key, _ in reader.records} == {b"access/access.log"}
        assert collector.details()["counters"].get("lost_possible", 0) == 0


def test_13_a_thousand_files_rotated_at_once_are_all_followed(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    """All files are renamed and written while the collector is frozen. So inotify's queue
    overflows, and the collector loses most events."""
    count = 1_000
    reader = read("t.many")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.many")) as collector:
        folder = collector.home / "watched/text"
        for index in range(count):
            (folder / f"a{index}.log").write_bytes(b"first %d\n" % index)
        reader.values(count)
        wait_until(lambda: collector.details()["files_total"] == count, 20, "1,000 files")
        wait_until(lambda: 0 < collector.details()["busy"] <= 1, 20, "it has worked")
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 20, "no lag")
        assert collector.process is not None
        collector.process.send_signal(signal.SIGSTOP)
        for index in range(count):
            os.rename(folder / f"a{index}.log", folder / f"b{index}.log")
        rounds = int(QUEUED_EVENTS_MAX.read_text()) // count
        for number in range(rounds):
            for index in range(count):
                with (folder / f"a{index}.log").open("ab") as log:
                    log.write(b"%d of %d\n" % (number, index))
        collector.process.send_signal(signal.SIGCONT)
        lines = count + rounds * count
        values = reader.values(lines)
        assert len(values) == len(set(values)) == lines
        wait_until(lambda: collector.details()["files_total"] == 2 * count, 20, "2,000 files")
        # A scan can be under way when the collector learns of the overflow, and it can find all
        # files. So wait for the rescan that the overflow has forced.
        wait_until(
            lambda: collector.details()["counters"].get("rescans_forced", 0) >= 1, 20, "a rescan"
        )
        counters = collector.details()["counters"]
        assert counters["renamed"] == count
        assert len(collector.details()["files"]) == count
        assert counters.get("lost_possible", 0) == 0


def test_a_limit_made_smaller_cuts_what_was_refused(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.limit")
    section = inputs("t.limit") | {"compression": "none"}
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        entry = ConfigEntry(
            "max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t.limit", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(10)
        lines = [b"%099d" % number for number in range(3000)]
        (collector.home / "watched/text/a.log").write_bytes(
            b"\n".join(lines) + b"\n" + b"z" * 50_000 + b"\nend\n"
        )
        values = reader.values(3000 + 3)
        assert values[:3000] == lines
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 10, "no lag")
        values = reader.values(3003)
        assert b"".join(value for value in values if b"z" in value) == b"z" * 50_000
        assert values[-1] == b"end"
        assert collector.details()["counters"]["batches_refused"] >= 1
        wait_until(lambda: collector.status().problems == (), 10, "no problem")


def test_keys_partitions_and_line_ends_as_configured(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    section = {
        "inputs": [
            {"paths": ["watched/text/*"], "topic": "t.none", "key": "none"},
            {"paths": ["watched/json/*"], "topic": "t.host", "key": "host", "line_end": "keep"},
        ]
    }
    none = read("t.none")
    host = read("t.host")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        for index in range(9):
            (collector.home / f"watched/text/{index}").write_bytes(b"one\r\ntwo\r\n")
        (collector.home / "watched/json/a").write_bytes(b"{}\r\n")
        none.values(18)
        assert {key for _, key, _ in none.records} == {None}
        assert {value for _, _, value in none.records} == {b"one", b"two"}
        assert len({partition for partition, _, _ in none.records}) > 1
        assert host.values(1) == [b"{}\r"]
        (partition, key, _) = host.records[0]
        assert key == socket.gethostname().encode()
        assert partition == partition_for_key(key, 3)


def test_headers_of_an_input_are_on_each_record(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    """Check the headers with librdkafka, both of single lines and of a thousand lines at once."""
    headers = {"host": "{host}", "env": "production", "note": "über"}
    reader = read("t.headers")
    with CollectorProcess(
        tmp_path, broker.mill_bootstrap, inputs("t.headers", headers=headers)
    ) as (collector):
        path = collector.home / "watched/text/a.log"
        lines = [b"%d" % number for number in range(1_001)]
        path.write_bytes(lines[0] + b"\n")
        assert reader.values(1) == lines[:1]
        with path.open("ab") as out:
            out.write(b"".join(line + b"\n" for line in lines[1:]))
        assert reader.values(1_001) == lines
    expected = [
        ("host", socket.gethostname().encode()),
        ("env", b"production"),
        ("note", "über".encode()),
    ]
    assert reader.headers == dict.fromkeys(lines, expected)


def test_fields_are_in_lines_that_are_json_objects(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.fields")
    section = inputs("t.fields", fields={"host": "{host}", "shard": 3})
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        path = collector.home / "watched/json/a.log"
        path.write_bytes(b'{"n": 1}\nno object\n{"n": 2, "host": "mine"}\n')
        host = json.dumps(socket.gethostname()).encode()
        assert reader.values(3) == [
            b'{"n": 1,"host":%s,"shard":3}' % host,
            b"no object",
            b'{"n": 2, "host": "mine","shard":3}',
        ]
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 10, "no lag")
        assert collector.details()["counters"]["fields_not_put"] == 1
        assert collector.details()["files"][0]["position"] == path.stat().st_size


def test_health_and_metrics_are_served(broker: BrokerProcess, tmp_path: Path) -> None:
    with CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.metrics")) as collector:
        (collector.home / "watched/text/a.log").write_bytes(b"one\ntwo\n")
        wait_until(lambda: collector.details()["lines_total"] == 2, 10, "two lines")
        base = f"http://127.0.0.1:{collector.status_port}"
        with urllib.request.urlopen(f"{base}/healthz", timeout=5) as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{base}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert "millrace_collector_lines_total 2.0" in text
        assert 'millrace_collector_events_total{event="new"} 1.0' in text
        assert collector.stop() == 0
    assert "Traceback" not in collector.log_text()


def test_a_taken_status_port_is_named(broker: BrokerProcess, tmp_path: Path) -> None:
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.port"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", collector.status_port))
        other.listen()
        code, _ = collector.run()
    assert code == 1
    assert f"address=127.0.0.1:{collector.status_port}" in collector.log_text()


def test_wrong_settings_end_with_2(broker: BrokerProcess, tmp_path: Path) -> None:
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, {"inputs": [{"topic": "t"}]})
    assert collector.run()[0] == 2
    assert "paths" in collector.log_text()
