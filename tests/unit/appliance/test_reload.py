"""`config reload` returns when the collector uses the saved file. It does not matter whether the
command or the supervisor noticed the file first."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import reload_command
from appliance.mill.home import find_home
from protocol import control
from protocol.status import PartState, PartStatus
from tests.unit.appliance.test_commands import config, run

TEXT = "collector: {inputs: [{paths: ['watched/**'], topic: t}]}\n"
NEW = hashlib.sha256(TEXT.encode()).hexdigest()


class Scene:
    """A mill that was started with this file. Its collector reports the new file from the third
    status request on."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
        self.asked = 0
        self.state = state
        config(home, TEXT)
        started = find_home({"MILLRACE_HOME": str(home)}).started_config
        started.parent.mkdir(parents=True)
        started.write_text(TEXT)
        monkeypatch.setattr(control, "ask", self.supervisor)
        monkeypatch.setattr(reload_command, "fetch_status", self.collector)
        monkeypatch.setattr(reload_command, "LOOK_EVERY_S", 0.0)

    def supervisor(self, path: Path, request: dict[str, Any]) -> dict[str, Any]:
        if request["command"] == "status":
            return {"parts": [{"part": "collector", "state": self.state}]}
        return {"config_problem": None}

    def collector(self, host: str, port: int, timeout_s: float) -> PartStatus:
        self.asked += 1
        details = {"config_sha256": NEW if self.asked == 3 else "of before"}
        return PartStatus("collector", PartState.RUNNING, True, 0, 0, details=details)


def test_it_waits_for_the_collector_though_the_supervisor_saw_the_file_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, monkeypatch, "healthy")
    code, _, err = run(monkeypatch, tmp_path, "config", "reload")
    assert (code, scene.asked) == (0, 3), err
    assert err == ["the file has not changed since the last time"]


@pytest.mark.parametrize("state", ["stopped", "failed", "stopping"])
def test_a_collector_that_does_not_run_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    scene = Scene(tmp_path, monkeypatch, state)
    code, _, err = run(monkeypatch, tmp_path, "config", "reload")
    assert (code, scene.asked) == (0, 0), err
