"""Lines of every kind, read by a collector process and sent to a real broker."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, Read, inputs
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live


def test_a_line_as_long_as_allowed_is_one_record(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.longest")
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.longest"))
    limit = 1 << 20
    lines = [b"before", b"x" * limit, b"y" * (limit + 1), b"after"]
    (collector.home / "watched/text/a.log").write_bytes(b"\n".join(lines) + b"\n")
    code, _ = collector.run("--once")
    assert code == 0, collector.log_text()
    values = reader.values(5)
    assert [len(value) for value in values] == [6, limit, limit, 1, 5]


def test_dead_letters_are_listed_with_their_place(broker: BrokerProcess, tmp_path: Path) -> None:
    section = inputs(
        "t.dead", encoding="shift_jis", on_invalid="dead_letter", on_overlong="dead_letter",
        max_line_bytes=1024,
    )  # fmt: skip
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section)
    path = collector.home / "watched/text/a.log"
    path.write_bytes(b"good\n\xff\xfe bad\n" + b"x" * 2000 + b"\n")
    (collector.home / "watched/text/b.log").write_bytes(b"\xffother\n")
    code, _ = collector.run("--once")
    assert code == 0, collector.log_text()
    rows = dead_letters(broker, "--file", "text/a.log")
    assert [(row["reason"], row["offset"], row["length"]) for row in rows] == [
        ("invalid_bytes", 5, 7),
        ("overlong", 12, 2001),
    ]
    assert {row["file"] for row in rows} == {str(path)}
    assert {row["topic"] for row in rows} == {"t.dead"}
    assert base64.b64decode(rows[0]["value_base64"]) == b"\xff\xfe bad"
    assert rows[0]["first_bytes"] == "\\xff\\xfe bad"
    assert base64.b64decode(rows[1]["value_base64"]) == b"x" * 1024
    assert len(dead_letters(broker, "--since", "1h")) == 3
    assert dead_letters(broker, "--since", "2999-01-01") == []


def test_a_file_is_deleted_once_its_lines_are_there(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.ingested")
    section = inputs("t.ingested", after_ingest="delete")
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        path = collector.home / "watched/text/a.log"
        path.write_bytes(b"one\ntwo\n")
        wait_until(lambda: not path.exists(), 30, "the file deleted")
        assert reader.values(2) == [b"one", b"two"]
        assert collector.details()["counters"]["removed_after_ingest"] == 1
        assert collector.status().problems == ()


def test_events_and_the_last_of_them_arrive(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.events")
    multiline = {"preset": "java", "max_age": "1s"}
    section = inputs("t.events", multiline=multiline)
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        path = collector.home / "watched/text/a.log"
        path.write_bytes(b"ERROR one\n\tat a\nERROR two\n")
        assert reader.values(1) == [b"ERROR one\n\tat a"]
        assert reader.values(2)[1] == b"ERROR two"
        collector.kill9()
        with path.open("ab") as writer:
            writer.write(b"ERROR three\n\tat b\n")
        collector.start()
        assert reader.values(3)[2] == b"ERROR three\n\tat b"
        path.rename(path.with_suffix(".log.1"))
        path.write_bytes(b"INFO last\n")
    assert collector.run("--once")[0] == 0
    assert reader.values(4)[3] == b"INFO last"


def dead_letters(broker: BrokerProcess, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "collector", "dead-letters", "--json",
         "-b", broker.bootstrap, *arguments],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["data"]
    return rows
