"""`top`: rates computed from two readings, and its output in a pipe and on a terminal."""

import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.top_view import (
    Frame,
    MonitorAnswer,
    frame_of,
    head_of,
    parts_table,
    readers_table,
)
from appliance.mill.home import CODE
from appliance.operate import lifecycle
from appliance.output import Exit
from tests.unit.appliance.scripted_monitor import answering
from tests.unit.appliance.test_commands import config, run

TERMINAL_S = 60.0


def part(name: str, **values: Any) -> dict[str, Any]:
    """Return the row of a part as `status` has it."""
    row: dict[str, Any] = {
        "part": name,
        "state": "healthy",
        "pid": 7,
        "uptime_ms": 61_000,
        "restarts": 0,
        "memory_bytes": 5 << 20,
        "cpu_s": 10.0,
        "reason": "",
        "address": "127.0.0.1:1",
    }
    return row | values


def group(name: str, **values: Any) -> dict[str, Any]:
    """Return the row of a group as the monitor's API has it."""
    row: dict[str, Any] = {
        "group": name,
        "status": "ok",
        "lag": 1_200,
        "known": 3,
        "partitions": 3,
        "time_lag_ms": 2_500,
        "eta_s": 61.0,
        "read_rate": 1_000.0,
        "write_rate": 4.25,
    }
    return row | values


def shown(frame: Frame) -> tuple[list[list[str]], list[list[str]]]:
    return parts_table(frame)[1], readers_table(frame)[1]


def test_use_of_the_processor_is_between_two_looks_at_the_same_process() -> None:
    first = frame_of(1_000, [part("a"), part("b"), part("c")], [], MonitorAnswer(), None)
    assert [row["cpu_share"] for row in first.parts] == [None, None, None]
    rows = [part("a", cpu_s=13.0), part("b", pid=8, cpu_s=0.5), part("c", cpu_s=None)]
    second = frame_of(3_000, rows, [], MonitorAnswer(), first)
    assert [row["cpu_share"] for row in second.parts] == [1.5, None, None]
    assert [row[4] for row in shown(second)[0]] == ["150%", "-", "-"]
    # The CPU time of a descendant that ended is lost from the sum. The share must not be negative.
    third = frame_of(4_000, [part("a", cpu_s=12.0)], [], MonitorAnswer(), second)
    assert third.parts[0]["cpu_share"] == 0.0


def test_rates_are_what_the_parts_say_and_unknown_where_they_do_not() -> None:
    details: list[dict[str, Any]] = [
        {"part": "collector", "reachable": True, "details": {"rate_lines_s": 1234.5}},
        {"part": "stream", "reachable": True, "details": {"rows_per_second": 0.0}},
        {"part": "broker-1", "reachable": True, "details": {"bytes_in_per_s": 2_000_000}},
        {"part": "broker-2", "reachable": True, "details": None},
        # The details of an unreachable part are from an earlier time, so its rate is unknown.
        {"part": "broker-3", "reachable": False, "details": {"bytes_in_per_s": 0}},
    ]
    names = ("collector", "stream", "broker-1", "broker-2", "broker-3", "mysql")
    frame = frame_of(1, [part(name) for name in names], [], MonitorAnswer(parts=details), None)
    rates = [row[6] for row in shown(frame)[0]]
    assert rates == ["1,234 lines/s", "0 lines/s", "2,000,000 B/s in", "unknown", "unknown", "-"]


def test_readers_say_at_least_and_unknown_and_never_a_lag_of_nothing() -> None:
    groups = [
        group("whole"),
        group("partly", known=2, eta_s=None),
        group("away", lag=None, known=0, status=None, time_lag_ms=None, read_rate=None),
    ]
    frame = frame_of(1, [], [], MonitorAnswer(groups=groups), None)
    assert shown(frame)[1] == [
        ["whole", "ok", "1,200", "2s", "1m 1s", "1,000/s", "4.2/s"],
        ["partly", "ok", "≥ 1,200", "2s", "-", "1,000/s", "4.2/s"],
        ["away", "unknown", "unknown", "unknown", "1m 1s", "unknown", "4.2/s"],
    ]


def test_a_monitor_that_is_away_leaves_the_parts_and_makes_readers_unknown() -> None:
    told = MonitorAnswer(problem="the monitor gives no answer")
    frame = frame_of(
        1_785_578_400_000, [part("stream"), part("a", state="failed")], ["e"], told, None
    )
    assert frame.readers is None
    assert frame.data["readers"] is None
    assert frame.warnings == ["e", "the monitor gives no answer"]
    assert head_of(frame) == "millrace  2026-08-01T10:00:00.000Z  1 of 2 parts healthy"


def test_brokers_that_told_of_no_group_and_do_not_answer_leave_the_readers_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        lifecycle, "snapshot", lambda home: {"parts": [part("redis")], "stopping": False}
    )
    with answering(tmp_path, lambda path: {"data": [], "ts_ms": 5, "kafka_at_ms": None}):
        code, out, err = run(monkeypatch, tmp_path, "top", "--json")
    assert (code, err) == (0, [])
    assert json.loads(out[0])["data"]["readers"] is None
    assert json.loads(out[0])["errors"] == ["no lag is known: the brokers do not answer"]


def test_of_the_findings_only_what_is_wrong_is_a_warning() -> None:
    findings = [
        {"level": level, "text": level} for level in ("bad", "warn", "good", "idle", "unknown")
    ]
    assert frame_of(1, [], [], MonitorAnswer(findings=findings), None).warnings == ["bad", "warn"]


def answer(path: str) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {
        "parts": [{"part": "collector", "reachable": True, "details": {"rate_lines_s": 12.0}}],
        "groups": [group("millrace-stream")],
        "health": [{"level": "warn", "text": "The lag grows."}],
    }
    return {"data": found[path.rpartition("/")[2]], "errors": [], "ts_ms": 5, "kafka_at_ms": 5}


def test_in_a_pipe_it_prints_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {**part("collector"), "pid": None, "state": "starting"}
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": [row], "stopping": False})
    with answering(tmp_path, answer):
        code, out, err = run(monkeypatch, tmp_path, "top")
        assert (code, err) == (0, ["millrace: The lag grows."])
        assert out[0].startswith("millrace  ")
        assert out[0].endswith("0 of 1 parts healthy")
        assert out[2].split()[:2] == ["collector", "starting"]
        assert out[4].split()[:3] == ["millrace-stream", "ok", "1,200"]
        code, out, _ = run(monkeypatch, tmp_path, "top", "--json", "-n", "2", "--every", "10ms")
    assert code == 0
    envelopes = [json.loads(line) for line in out]
    assert [one["schema"] for one in envelopes] == ["top/1", "top/1"]
    assert envelopes[1]["data"]["readers"][0]["lag"] == 1_200
    assert envelopes[1]["data"]["parts"][0]["rate"] == 12.0


def test_of_no_mill_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path, "")
    code, _, err = run(monkeypatch, tmp_path, "top")
    assert code == 3
    [line] = err
    assert line.count("the mill is not running") == 1
    assert line.endswith("`make up` starts it")
    assert run(monkeypatch, tmp_path, "top", "--every", "soon")[0] == 2


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", Exit.INTERRUPTED)])
def test_on_a_terminal_a_key_ends_it_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, key: bytes, code: int
) -> None:
    with answering(tmp_path, answer):
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance", "top"],
            cwd=CODE,
            env={**os.environ, "MILLRACE_HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "100"},
            # The process needs its own session with this terminal as the controlling one. Otherwise
            # Ctrl-C would send no signal.
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        try:
            seen = b""
            while b"The lag grows." not in seen:
                seen += os.read(ours, 65_536)
            os.write(ours, key)
            while b"\x1b[?1049l" not in seen:
                seen += os.read(ours, 65_536)
            assert process.wait(TERMINAL_S) == code
        finally:
            process.kill()
            process.wait()
            after = termios.tcgetattr(theirs)
            os.close(ours)
            os.close(theirs)
    assert b"\x1b[?1049h" in seen
    assert b"millrace-stream" in seen
    assert b"the mill is not running" in seen
    assert after == before
