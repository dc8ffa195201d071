"""Every command that prints results accepts `--json`, and then prints data."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.completion_command import commands
from appliance.mill.home import find_home
from appliance.operate import lifecycle
from appliance.output import Exit
from tests.unit.appliance.test_commands import config, run
from tests.unit.appliance.test_misleading import EMPTY, running

OF_ANOTHER_FORM = {
    "alerts prometheus": "a rules file",
    "alerts grafana": "a dashboard, JSON as it is",
    "completion": "a script",
    "config schema": "a JSON Schema as it is",
    "collector run": "the collector's own output",
    "collector once": "the collector's own progress, JSON lines where there is no terminal",
    "demo": "nothing but how far it is",
    "run": "a part's own output",
    "stream plan": "text of the stream's",
    "stream dry-run": "text of the stream's",
}


def data(lines: list[str], schema: str) -> Any:
    """Check the only JSON line and its schema. Return its data."""
    [line] = lines
    envelope = json.loads(line)
    assert envelope["schema"] == schema
    return envelope["data"]


def test_every_command_that_prints_has_it() -> None:
    without = {
        path
        for path, command in commands()
        if not hasattr(command, "commands")
        and "--json" not in [name for one in command.params for name in one.opts]
    }
    assert without == set(OF_ANOTHER_FORM)


def test_faults_of_a_configuration_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "colector: {}\nports: {redis: x}\n")
    code, out, err = run(monkeypatch, tmp_path, "config", "check", "--quick", "--json")
    first, second = data(out, "faults/1")
    assert (code, err) == (Exit.USAGE, [])
    assert (first["key"], first["line"], first["column"]) == ("colector", 1, 1)
    assert (second["key"], second["found"]) == ("ports.redis", "'x'")
    config(tmp_path, EMPTY)
    code, out, err = run(monkeypatch, tmp_path, "config", "check", "--quick", "--json")
    assert (code, data(out, "faults/1"), err) == (0, [], [])
    _, out, _ = run(monkeypatch, tmp_path, "config", "path", "--json")
    assert data(out, "path/1") == {"path": str(tmp_path / "configs" / "millrace.yaml")}


def test_starting_and_stopping_give_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, EMPTY)
    running(monkeypatch, tmp_path, {"monitor": "healthy", "broker-1": "stopped"})
    parts = [{"part": "monitor", "state": "healthy"}, {"part": "broker-1", "state": "healthy"}]
    found = {"config_problem": None, "parts": parts}
    monkeypatch.setattr(lifecycle, "wait_healthy", lambda *_: found)
    code, out, err = run(monkeypatch, tmp_path, "up", "--json")
    told = data(out, "up/1")
    assert (code, err) == (0, [])
    assert (told["ran_before"], told["differs"], told["parts"]) == (True, None, parts)
    config(tmp_path, f"{EMPTY}monitor: {{listen: '127.0.0.1:8099'}}\n")
    _, out, _ = run(monkeypatch, tmp_path, "up", "--json")
    assert data(out, "up/1")["differs"] == "monitor restarts"
    _, out, _ = run(monkeypatch, tmp_path, "start", "monitor", "--json")
    assert data(out, "part/1")["state"] == "healthy"
    _, out, _ = run(monkeypatch, tmp_path, "start", "broker-1", "--json")
    assert data(out, "part/1") == parts[1]
    _, out, _ = run(monkeypatch, tmp_path, "restart", "broker-1", "--force", "--json")
    assert data(out, "part/1") == parts[1]
    monkeypatch.setattr(lifecycle, "stop_part", lambda *_: None)
    _, out, _ = run(monkeypatch, tmp_path, "stop", "monitor", "--json")
    assert data(out, "part/1") == {"part": "monitor", "state": "stopped"}
    monkeypatch.setattr(lifecycle, "stop", lambda *_: True)
    _, out, _ = run(monkeypatch, tmp_path, "down", "--json")
    assert data(out, "down/1") == {"ran_before": True}


def test_lines_of_logs_are_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    home.logs.mkdir(parents=True)
    home.part_log("stream").write_text("2026-08-01T10:00:02.000Z INFO b\nTraceback\n")
    home.part_log("broker-1").write_text('2026-08-01T10:00:01.000Z INFO "a"\n')
    code, out, _ = run(monkeypatch, tmp_path, "logs", "--json")
    assert code == 0
    assert [json.loads(line) for line in out] == [
        {
            "part": "broker-1",
            "at": "2026-08-01T10:00:01.000Z",
            "line": '2026-08-01T10:00:01.000Z INFO "a"',
        },
        {
            "part": "stream",
            "at": "2026-08-01T10:00:02.000Z",
            "line": "2026-08-01T10:00:02.000Z INFO b",
        },
        {"part": "stream", "at": None, "line": "Traceback"},
    ]
    _, out, _ = run(monkeypatch, tmp_path, "logs")
    assert out[0] == 'broker-1 | 2026-08-01T10:00:01.000Z INFO "a"'
