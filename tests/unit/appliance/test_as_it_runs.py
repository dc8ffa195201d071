"""Commands that only read use the addresses of the running mill, not those of the edited file."""

import time
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import context
from appliance.mill.home import find_home
from appliance.operate import lifecycle
from appliance.output import Exit
from tests.harness.ports import free_port
from tests.unit.appliance.scripted_monitor import answering
from tests.unit.appliance.test_commands import config, run
from tests.unit.appliance.test_machine_refuses import METRIC
from tests.unit.appliance.test_top import group, part

FAULTY = "colector: nothing\n"


def answer(path: str) -> dict[str, Any]:
    rows = [] if "alerts" in path or "parts" in path or "health" in path else [group("mine")]
    now_ms = round(time.time() * 1000)
    return {"data": rows, "errors": [], "ts_ms": now_ms, "kafka_at_ms": now_ms}


def runs(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Make it appear that a mill runs which was started with the current file."""
    ours = find_home({"MILLRACE_HOME": str(home)})
    ours.run.mkdir(parents=True)
    ours.started_config.write_text(ours.config_file.read_text())
    monkeypatch.setattr(lifecycle, "is_running", lambda _: True)
    found = {"parts": [part("monitor", address="127.0.0.1:1")], "stopping": False}
    monkeypatch.setattr(lifecycle, "snapshot", lambda *_: found)


@pytest.mark.parametrize("arguments", [["lag"], ["top"], ["alerts", "list"]])
@pytest.mark.parametrize("edited", [FAULTY, "monitor: {{listen: '127.0.0.1:{port}'}}\n"])
def test_the_monitor_is_asked_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], edited: str
) -> None:
    """The saved file has a fault or another address. The commands must still find the running
    monitor."""
    with answering(tmp_path, answer):
        runs(monkeypatch, tmp_path)
        config(tmp_path, edited.format(port=free_port()))
        code, out, err = run(monkeypatch, tmp_path, *arguments)
    assert code == 0, err
    assert any("mine" in line for line in out) or arguments == ["alerts", "list"]


def test_a_metric_of_the_file_before_is_shown_while_the_file_has_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, METRIC)
    runs(monkeypatch, tmp_path)
    config(tmp_path, FAULTY)
    code, _, err = run(monkeypatch, tmp_path, "show", "other")
    assert (code, err) == (
        Exit.NOT_FOUND,
        ["millrace: there is no metric 'other'; the metrics are m"],
    )


def test_where_no_mill_runs_the_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    runs(monkeypatch, tmp_path)
    monkeypatch.setattr(lifecycle, "is_running", lambda _: False)
    config(tmp_path, FAULTY)
    assert run(monkeypatch, tmp_path, "lag")[0] == Exit.USAGE


def test_another_file_than_the_one_it_runs_with_is_meant_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "cluster: {bootstrap_servers: 'a:1'}\n")
    runs(monkeypatch, tmp_path)
    other = tmp_path / "other.yaml"
    other.write_text("cluster: {bootstrap_servers: 'b:2'}\n")
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    assert context.mill_as_it_runs().config.cluster.bootstrap_servers == "a:1"
    context.use_config(other)
    try:
        assert context.mill_as_it_runs().config.cluster.bootstrap_servers == "b:2"
    finally:
        context.use_config(None)
