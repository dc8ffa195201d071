"""Commands must not claim anything untrue. Each test repeats a case in which one did."""

import json
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.checks.startup import CheckLevel
from appliance.cli import recount_command
from appliance.cli.doctor import flush_latency
from appliance.cli.recount_command import _moment_ms, progress_text
from appliance.config.document import Document
from appliance.config.faults import ConfigFaults
from appliance.machine.processes import holder_of
from appliance.mill.home import Home, find_home
from appliance.mill.init import initialise
from appliance.mill.settings import Mill
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit
from tests.harness.ports import free_port
from tests.unit.appliance.test_commands import config, mill, run


def test_a_check_without_a_broker_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config(tmp_path, f"cluster: {{bootstrap_servers: '127.0.0.1:{free_port()}'}}")
    code, _, err = run(monkeypatch, tmp_path, "collector", "check")
    assert code == Exit.UNREACHABLE
    assert any("stored positions are unknown" in line for line in err), err


def test_a_check_without_a_broker_calls_no_file_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = "collector: {inputs: [{paths: ['watched/**'], topic: logs.x}]}"
    config(tmp_path, f"cluster: {{bootstrap_servers: '127.0.0.1:{free_port()}'}}\n{inputs}")
    (tmp_path / "watched").mkdir()
    (tmp_path / "watched" / "a.log").write_text("one line\n")
    code, out, _ = run(monkeypatch, tmp_path, "collector", "check", "--json")
    [row] = json.loads(out[0])["data"]["files"]
    assert code == Exit.UNREACHABLE
    assert (row["verdict"], row["position"], row["lag_bytes"]) == (None, None, None)
    assert row["size_bytes"] == 9
    _, out, _ = run(monkeypatch, tmp_path, "collector", "check")
    assert out[1].split()[3] == "unknown"


def test_once_says_that_no_broker_answers_instead_of_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, f"cluster: {{bootstrap_servers: '127.0.0.1:{free_port()}'}}")
    monkeypatch.setattr("appliance.cli.collector_commands.REACH_TIMEOUT_MS", 200)
    code, _, err = run(monkeypatch, tmp_path, "collector", "once")
    assert code == Exit.UNREACHABLE
    assert "nothing was read, because no broker answers" in err[0]


def test_once_beside_a_collector_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    parts = [{"part": "collector", "pid": 7}]
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": parts})
    code, _, err = run(monkeypatch, tmp_path, "collector", "once")
    assert code == Exit.CONDITION
    assert "./millrace stop collector" in err[0]


@pytest.mark.parametrize("since", ["0s", "2099-01-01", "2099-01-01T00:00Z"])
def test_a_recount_of_lines_that_are_still_to_come_is_refused(since: str) -> None:
    with pytest.raises(CommandError, match="no line has arrived since then") as raised:
        _moment_ms(since)
    assert raised.value.code == Exit.USAGE


def test_a_recount_whose_metric_was_taken_out_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(2_400_000, None), None])
    monkeypatch.setattr(recount_command, "_left", lambda mill, metric: next(answers))
    monkeypatch.setattr(recount_command, "_has_left", lambda mill, metric: True)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(CommandError, match=r"after 600,000 of 3,000,000 offsets") as raised:
        recount_command._follow(mill(tmp_path), "m", 3_000_000)
    assert raised.value.code == Exit.CONDITION


def test_the_time_left_is_told_by_a_rate_over_some_time() -> None:
    assert progress_text("m", 100, [(0.0, 100), (1.0, 40)]) == "m: 60 of 100 offsets"
    steady = [(0.0, 3_000), (60.0, 2_400)]
    assert progress_text("m", 3_000, steady).endswith("10 a second, 4m 0s left")
    assert progress_text("m", 100, [(0.0, 100), (30.0, 100)]).endswith("unknown left")


def test_the_holder_of_a_port_is_named_without_what_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stranger:
        def __init__(self, pid: int) -> None:
            pass

        def cmdline(self) -> list[str]:
            return ["/usr/bin/server", "--password=hunter2"]

        def name(self) -> str:
            return "server"

    class Connection:
        laddr = type("Address", (), {"port": 7})
        status, pid = psutil.CONN_LISTEN, 12

    monkeypatch.setattr(psutil, "net_connections", lambda kind: [Connection])
    monkeypatch.setattr(psutil, "Process", Stranger)
    assert str(holder_of(7)) == "process 12 (server)"


def test_in_containers_logs_are_where_they_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, out, err = run(monkeypatch, tmp_path, "logs", "-f", "stream")
    assert (code, out) == (Exit.USAGE, [])
    assert "`docker compose logs -f stream`" in err[0]


def test_a_disk_that_cannot_be_written_is_told_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**_: object) -> object:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    check = flush_latency(Path("/mill"))
    assert check.level is CheckLevel.WARNING
    assert "Read-only file system" in check.found


def test_doctor_in_containers_asks_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "sinks: {mysql: null}")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    row = {"part": "stream", "state": "unhealthy", "reason": "no answer"}
    rows: tuple[list[dict[str, Any]], list[str]] = ([row], [])
    monkeypatch.setattr("appliance.cli.doctor.part_rows", lambda: rows)
    _, out, _ = run(monkeypatch, tmp_path, "doctor")
    told = [line for line in out if "docker compose logs stream" in line]
    assert told
    assert not any("disk flush" in line for line in out)


def test_a_demo_that_may_not_write_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path, "")
    monkeypatch.setattr("os.access", lambda *_: False)
    code, _, err = run(monkeypatch, tmp_path, "demo", "--seconds", "1")
    assert code == Exit.FAILED
    assert "MILLRACE_UID=$(id -u)" in err[0]


def running(
    monkeypatch: pytest.MonkeyPatch, home: Path, states: dict[str, str]
) -> list[dict[str, object]]:
    """Pretend that a mill runs with the present configuration file. Return a list to which each
    request to the mill's supervisor is added."""
    ours = mill(home, (home / "configs" / "millrace.yaml").read_text())
    initialise(ours.home, (1,))
    ours.home.run.mkdir(parents=True)
    ours.home.started_config.write_text(ours.home.config_file.read_text())
    asked: list[dict[str, object]] = []

    def ask(path: Path, request: dict[str, object]) -> dict[str, object]:
        asked.append(request)
        return {"ok": True}

    monkeypatch.setattr("appliance.supervisor.control.ask", ask)
    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    parts = [{"part": name, "state": state} for name, state in states.items()]
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": parts})
    found = {"config_problem": None, "parts": parts}
    monkeypatch.setattr(lifecycle, "wait_healthy", lambda *_: found)
    return asked


EMPTY = "collector: {inputs: []}\nstream: {metrics: []}\n"


def test_up_of_a_mill_that_runs_says_what_the_file_would_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, EMPTY)
    asked = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    config(tmp_path, f"{EMPTY}monitor: {{listen: '127.0.0.1:8099'}}\n")
    code, _, err = run(monkeypatch, tmp_path, "up")
    assert code == 0
    assert [one["command"] for one in asked] == ["look"]
    assert any("monitor restarts with `./millrace up --apply`" in line for line in err)
    # The message shows the address of the running monitor, not the address in the changed file.
    assert any("http://127.0.0.1:8090" in line for line in err)
    assert "the mill runs already" in err


def test_up_with_apply_has_it_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path, EMPTY)
    asked = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    port = free_port()
    config(tmp_path, f"{EMPTY}monitor: {{listen: '127.0.0.1:{port}'}}\n")
    code, _, err = run(monkeypatch, tmp_path, "up", "--apply")
    assert code == 0, err
    assert [one["command"] for one in asked] == ["look", "apply"]
    assert "monitor restarts" in err
    assert any(f"http://127.0.0.1:{port}" in line for line in err)


def test_up_with_apply_takes_over_a_change_for_which_no_part_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the mill would keep the file from before, and hold back every later change."""
    config(tmp_path, EMPTY)
    asked = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    config(tmp_path, f"{EMPTY}topics: [{{name: logs.app}}]\n")
    code, _, err = run(monkeypatch, tmp_path, "up", "--apply")
    assert code == 0, err
    assert [one["command"] for one in asked] == ["look", "apply"]
    assert "the changed file is applied; no part had to restart" in err
    assert "the mill runs already" in err


@pytest.mark.parametrize("asked", [["restart"], ["up", "--apply"]])
def test_a_file_that_the_parts_would_refuse_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    config(tmp_path, EMPTY)
    told = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    stopped: list[Home] = []

    def stop(home: Home, *_: object) -> bool:
        stopped.append(home)
        return True

    def refuse(mill: Mill, document: Document) -> bool:
        document.add(("stream", "metrics", 0), "another meaning", "a new name")
        raise ConfigFaults(document.faults)

    monkeypatch.setattr(lifecycle, "stop", stop)
    monkeypatch.setattr("appliance.checks.definitions.check_definitions", refuse)
    config(tmp_path, f"{EMPTY}monitor: {{listen: '127.0.0.1:{free_port()}'}}\n")
    code, _, err = run(monkeypatch, tmp_path, *asked)
    assert code == Exit.USAGE
    assert "stream.metrics[0]: found another meaning, expected a new name" in err[-2]
    assert stopped == []
    assert [one["command"] for one in told] in ([], ["look"])


def test_up_with_apply_goes_on_with_a_round_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, EMPTY)
    asked = running(monkeypatch, tmp_path, {"broker-1": "healthy"})
    parts = lifecycle.snapshot(find_home({"MILLRACE_HOME": str(tmp_path)}))["parts"]
    found = {"parts": parts, "round_ended": "broker-1 runs as before: \u2026"}
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: found)
    assert run(monkeypatch, tmp_path, "up")[0] == 0
    assert [one["command"] for one in asked] == ["look"]
    code, _, err = run(monkeypatch, tmp_path, "up", "--apply")
    assert code == 0, err
    assert [one["command"] for one in asked] == ["look", "look", "apply"]
    assert any(
        "now the brokers restart that still have the previous configuration" in line for line in err
    )


def test_up_starts_what_gave_up_or_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, EMPTY)
    states = {"broker-1": "healthy", "stream": "failed", "collector": "stopped"}
    asked = running(monkeypatch, tmp_path, states)
    assert run(monkeypatch, tmp_path, "up")[0] == 0
    assert asked[1:] == [
        {"command": "restart", "part": "stream"},
        {"command": "restart", "part": "collector"},
    ]


def test_up_with_apply_refuses_a_port_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, EMPTY)
    asked = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        config(tmp_path, f"{EMPTY}monitor: {{listen: '127.0.0.1:{port}'}}\n")
        code, _, err = run(monkeypatch, tmp_path, "up", "--apply")
    assert code == Exit.FAILED
    assert any(f"port {port} (monitor.listen" in line for line in err)
    assert [one["command"] for one in asked] == ["look"]


def test_a_container_s_collector_says_whose_positions_are_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, f"ports: {{collector: {free_port()}}}")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, _, err = run(monkeypatch, tmp_path, "collector", "check")
    assert code == Exit.UNREACHABLE
    assert "only the collector knows which positions are its own" in err[0]


@pytest.mark.parametrize("asked", [["up"], ["config", "check"]])
def test_a_spark_master_that_is_away_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """Spark itself needs 70 s to report an unreachable master, and does not name its address."""
    port = free_port()
    metric = "{name: m, from: a, measure: count}"
    source = "a: {topic: logs.access, format: raw}"
    config(
        tmp_path,
        f"stream: {{master: 'spark://127.0.0.1:{port}', from: {{{source}}}, metrics: [{metric}]}}",
    )
    began_s = time.monotonic()
    code, _, err = run(monkeypatch, tmp_path, *asked)
    assert code == Exit.FAILED, err
    assert any(f"127.0.0.1:{port} (Connection refused)" in line for line in err), err
    assert time.monotonic() - began_s < 10
