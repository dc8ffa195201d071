"""The output of commands, the checks before a start, the demo, and readings of metrics."""

import contextlib
import io
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from appliance.checks import startup
from appliance.checks.startup import CheckLevel
from appliance.cli import doctor
from appliance.cli.app import main
from appliance.config.load import load_text
from appliance.mill.home import CODE, find_home
from appliance.mill.init import initialise
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from appliance.operate import lifecycle
from appliance.output import Exit, counted, duration_text, plain_table, size_text, utc_text
from appliance.traffic.demo import access_line
from appliance.traffic.readings import _rows_as_values
from stream.config.settings import StatusSettings
from stream.state import StreamState
from stream.status_server import StatusThread
from tests.harness.ports import free_port


def run(
    monkeypatch: pytest.MonkeyPatch, home: Path, *arguments: str
) -> tuple[int, list[str], list[str]]:
    """Run a command in this process. Return its exit code and the lines of both outputs."""
    monkeypatch.setenv("MILLRACE_HOME", str(home))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return int(code), out.getvalue().splitlines(), err.getvalue().splitlines()


def config(home: Path, text: str) -> None:
    path = home / "configs" / "millrace.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def mill(home: Path, text: str = "") -> Mill:
    return Mill(
        find_home({"MILLRACE_HOME": str(home)}), load_text(text, "m", home, {}).config, Placement()
    )


def test_faults_are_lines_on_standard_error_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "colector: {}\nports: {redis: x}\n")
    code, out, err = run(monkeypatch, tmp_path, "config", "check", "--quick")
    assert code == 2
    assert out == []
    assert [line.split(": ")[1] for line in err[:2]] == ["colector", "ports.redis"]
    assert err[-1] == "millrace: 2 faults in the configuration"


def test_a_file_in_order_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path, "topics: [{name: a}]")
    code, out, err = run(monkeypatch, tmp_path, "config", "check", "--quick")
    assert (code, out) == (0, [])
    assert err[0].endswith("no faults")
    code, out, _ = run(monkeypatch, tmp_path, "config", "show", "--json")
    envelope = json.loads(out[0])
    assert envelope["schema"] == "config/1"
    assert envelope["data"]["topics"][0]["name"] == "a"
    assert envelope["data"]["cluster"]["brokers"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["status"], 3, "not running; `make up` starts it"),
        (["down"], 0, "not running"),
        (["restart", "redis"], 5, "not running"),
        (["show", "nothing"], 4, "no metric 'nothing'"),
        (["logs", "absent"], 4, "no log of 'absent'"),
        (["logs", "--since", "soon"], 2, "duration"),
        (["lag"], 5, "no answer"),
        (["collector", "status"], 5, "collector"),
        (["run", "absent"], 2, "no part 'absent'"),
        (["init", "--owner", "mysql"], 2, "--owner mysql"),
    ],
)
def test_what_cannot_be_done_has_its_code_and_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    word: str,
) -> None:
    ports = {name: free_port() for name in ("collector", "stream", "redis")}
    config(tmp_path, f"monitor: {{listen: '127.0.0.1:{free_port()}'}}\nports: {json.dumps(ports)}")
    found, out, err = run(monkeypatch, tmp_path, *arguments)
    assert found == code, err
    assert out == []
    assert any(word in line for line in err), err


def test_a_usage_error_is_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run(monkeypatch, tmp_path, "no-such-command")
    assert code == 2
    assert any("no-such-command" in line for line in err)


def test_a_missing_metric_names_the_closest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(
        tmp_path,
        "stream:\n  from: {a: {topic: logs.access, format: common}}\n"
        "  metrics: [{name: requests, from: a, measure: count, windows: [1m]}]\n",
    )
    _, _, err = run(monkeypatch, tmp_path, "show", "request")
    assert "did you mean requests?" in err[0]
    code, _, err = run(monkeypatch, tmp_path, "show", "requests", "--size", "1h")
    assert code == 4
    assert "its windows are 1m" in err[0]


def test_a_table_in_a_pipe_is_plain_and_whole() -> None:
    rows = [["x" * 200, "7"], ["[b]", "12"], ["y" * 60, "3"]]
    lines = plain_table(["NAME", "N"], rows, frozenset({1})).splitlines()
    assert lines[0] == f"NAME{' ' * 56}   N"
    # One long key moves only the value in its own row. The other values stay aligned.
    assert lines[1] == f"{'x' * 200}   7"
    assert lines[2] == f"[b]{' ' * 57}  12"


def test_a_table_of_long_paths_is_aligned_all_the_same() -> None:
    rows = [["/" + "x" * length, "7"] for length in (70, 90, 80, 5)]
    lines = plain_table(["PATH", "N"], [*rows, ["y" * 400, "7"]], frozenset({1})).splitlines()
    assert {len(line) for line in lines[:-1]} == {94}
    assert len(lines[-1]) == 403


def test_units_are_readable() -> None:
    assert utc_text(1_785_578_400_123) == "2026-08-01T10:00:00.123Z"
    assert [duration_text(ms) for ms in (None, 900, 61_000, 3_700_000, 90_000_000)] == [
        "-",
        "0s",
        "1m 1s",
        "1h 1m",
        "1d 1h",
    ]
    sizes = (None, 0, 300, 300 << 10, 5 << 20, 3 << 30)
    assert [size_text(size) for size in sizes] == [
        "-", "0 MiB", "300 bytes", "300 KiB", "5 MiB", "3.0 GiB",
    ]  # fmt: skip


def test_ports_in_use_are_named_with_setting_and_holder(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        found = list(startup.ports(mill(tmp_path, f"ports: {{mysql: {port}}}")))
    [failed] = [check for check in found if str(port) in check.what]
    assert failed.level is CheckLevel.FAILED
    assert failed.what == f"port {port} (ports.mysql, for mysql)"
    assert "in use by process" in failed.found
    assert "ports.mysql" in failed.remedy


def test_the_data_of_another_cluster_is_named(tmp_path: Path) -> None:
    ours = mill(tmp_path)
    initialise(ours.home, (1,))
    assert list(startup.data_ownership(ours)) == []
    folder = ours.home.part_data("broker-1")
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text("cluster.id=AAAAAAAAQACAAAAAAAAAAA\n")
    [check] = startup.data_ownership(ours)
    assert check.level is CheckLevel.FAILED
    assert "another cluster" in check.found
    assert "AAAAAAAAQACAAAAAAAAAAA" in check.found


def test_missing_jars_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "stream:\n  from: {a: {topic: logs.access, format: common}}\n"
        "  metrics: [{name: m, from: a, measure: count}]\n"
    )
    ours = mill(tmp_path, text)
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    elsewhere = Mill(
        type(home)(home.folder, home.config_file, tmp_path), ours.config, ours.placement
    )
    [check] = startup.connector_jars(elsewhere)
    assert check.level is CheckLevel.FAILED
    assert "kafka-clients" in check.found
    assert "make setup" in check.remedy
    assert list(startup.connector_jars(mill(tmp_path))) == []


def test_demo_lines_repeat_with_their_seed_and_parse() -> None:
    moment = datetime(2026, 8, 1, 10, 0, 1, tzinfo=UTC)
    lines = [access_line(random.Random(seed), moment) for seed in (1, 1, 2)]
    assert lines[0] == lines[1] != lines[2]
    many = [access_line(random.Random(seed), moment) for seed in range(500)]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in many)
    assert all("[01/Aug/2026:10:00:01 +0000]" in line for line in many)
    assert len({line.split('"')[2].split()[0] for line in many}) >= 4


def test_rows_of_a_view_read_like_redis() -> None:
    heads = ["size", "start_at", "status", "host", "count", "sum", "value", "quantiles"]
    rows: list[dict[str, Any]] = [
        dict(zip(heads, ["all", None, "200", None, 7, None, None, None], strict=True)),
        dict(zip(heads, ["all", None, "404", "b", 2, 5, Decimal("2.5"), None], strict=True)),
    ]
    found = {key: value.text for key, value in _rows_as_values(heads, rows)}
    assert found == {"200|(null)": "7", "404|b": "2.5"}
    heads = ["size", "start_at", "count", "value"]
    found = {
        key: value.text
        for key, value in _rows_as_values(
            heads, [dict(zip(heads, ["all", None, 3, None], strict=True))]
        )
    }
    assert found == {"*": "3"}


@contextlib.contextmanager
def a_stream() -> Iterator[tuple[StreamState, int]]:
    """Serve the status of a stream. Yield the state and the port."""
    state = StreamState("stream", [], 100)
    serving = StatusThread(StatusSettings(port=0), state)
    serving.start()
    try:
        yield state, serving.port
    finally:
        serving.close()


def test_status_and_doctor_say_degraded_though_the_supervisor_finds_it_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "topics: [{name: a}]")
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    with a_stream() as (state, port):
        row: dict[str, Any] = {
            "part": "stream",
            "state": "healthy",
            "pid": None,
            "address": f"127.0.0.1:{port}",
            "restarts": 0,
            "uptime_ms": 1,
            "last_exit_code": None,
            "reason": "",
        }
        found = {"parts": [row], "stopping": False}
        monkeypatch.setattr(lifecycle, "snapshot", lambda home: found)

        def seen() -> tuple[int, str, str, list[tuple[CheckLevel, str, str]]]:
            code, out, _ = run(monkeypatch, tmp_path, "status", "--json")
            one = json.loads(out[0])["data"][0]
            checks = [(c.level, c.what, c.found) for c in doctor._mill_state(mill(tmp_path))]
            return code, one["state"], one["reason"], checks[1:]

        state.running()
        assert seen() == (0, "healthy", "", [])
        state.halving("a line cannot be counted")
        said = [(CheckLevel.WARNING, "stream", "degraded: a line cannot be counted")]
        assert seen() == (3, "degraded", "a line cannot be counted", said)
        state.waiting("query-ended", "the query ended")
        state.running()
        code, word, reason, _ = seen()
        assert (code, word) == (3, "degraded")
        assert reason == "a line cannot be counted; the query ended"
        code, out, _ = run(monkeypatch, tmp_path, "status")
        assert code == 3
        assert any("degraded" in line and reason in line for line in out), out


def test_one_of_something_is_one() -> None:
    told = [counted(number, "file") for number in (0, 1, 2_000)]
    assert told == ["0 files", "1 file", "2,000 files"]
    assert counted(2, "batch", "batches") == "2 batches"


@pytest.mark.parametrize("arguments", [["config", "show"], ["--help"]])
def test_a_closed_pipe_is_code_141_and_no_complaint(tmp_path: Path, arguments: list[str]) -> None:
    """A pipe is closed early for example by `| head -1`. The library that parses arguments would
    exit with code 1."""
    config(tmp_path, "")
    theirs, ours = os.pipe()
    os.close(theirs)
    done = subprocess.run(
        [sys.executable, "-m", "appliance", *arguments],
        cwd=CODE,
        env={**os.environ, "MILLRACE_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=ours,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(ours)
    assert (done.returncode, done.stderr) == (Exit.CLOSED_PIPE, "")
