"""The mill starts with the file that was read and checked, even if another file was saved after
that."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import mill_commands
from appliance.cli.context import load_mill
from appliance.config.load import digest_of
from appliance.mill.home import Home, find_home
from appliance.mill.init import initialise
from appliance.mill.settings import settings_for
from appliance.operate import lifecycle, starting
from appliance.output import Exit
from appliance.supervisor.following import CheckedFileChanged, ConfigFollower
from tests.harness.ports import free_port
from tests.unit.appliance.test_commands import config, run
from tests.unit.appliance.test_misleading import running

CHECKED = "collector: {inputs: [{paths: ['a/*'], topic: a}]}\nstream: {metrics: []}\n"
SAVED_MEANWHILE = CHECKED.replace("topic: a", "topic: b")


class Supervisors:
    """A double of the supervisor's process, which only records how it was started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[list[str]] = []
        monkeypatch.setattr("appliance.operate.starting.subprocess.Popen", self._make)
        monkeypatch.setattr(starting, "before_start", lambda mill: [])
        monkeypatch.setattr(starting, "snapshot", lambda home, timeout_s: {})
        monkeypatch.setattr(lifecycle, "wait_healthy", lambda *_: {"parts": []})

    def _make(self, command: list[str], **_: Any) -> Any:
        self.commands.append(command)
        return type("Process", (), {"returncode": None})()

    @property
    def digest(self) -> str:
        """Return the digest of the configuration that the supervisor got as an argument."""
        [command] = self.commands
        return command[-1]


def test_up_starts_what_it_has_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path, CHECKED)
    supervisors = Supervisors(monkeypatch)

    def check(*_: object) -> None:
        config(tmp_path, SAVED_MEANWHILE)

    monkeypatch.setattr(mill_commands, "judge_expressions", check)
    code, _, err = run(monkeypatch, tmp_path, "up")
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    assert code == Exit.OK, err
    assert any("(topic a)" in line for line in err)
    assert home.started_config.read_text() == CHECKED
    assert supervisors.digest == digest_of(CHECKED.encode())
    # The supervisor sees that the saved file has another digest, and reads it.
    supervised = Home(tmp_path, home.started_config, edited=home.config_file)
    following = ConfigFollower(supervised, supervisors.digest)
    following.read()
    assert home.started_config.read_text() == SAVED_MEANWHILE


def test_a_restart_starts_what_was_checked_before_anything_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, CHECKED)
    supervisors = Supervisors(monkeypatch)

    def stop(*_: object) -> bool:
        config(tmp_path, "a file that: [is being saved")
        return True

    monkeypatch.setattr(lifecycle, "stop", stop)
    monkeypatch.setattr(mill_commands, "judge", lambda *_: None)
    monkeypatch.setattr(mill_commands, "judge_expressions", lambda *_: None)
    code, _, err = run(monkeypatch, tmp_path, "restart")
    assert code == Exit.OK, err
    assert find_home({"MILLRACE_HOME": str(tmp_path)}).started_config.read_text() == CHECKED
    assert supervisors.digest == digest_of(CHECKED.encode())


@pytest.mark.parametrize("part", ["collector", "stream"])
def test_a_part_knows_which_file_its_settings_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A part must get the digest of the file that it was started with. With the digest of the newer
    file, it would report that it had applied that file."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    config(tmp_path, CHECKED)
    mill, _ = load_mill()
    initialise(mill.home, (1,))
    config(tmp_path, SAVED_MEANWHILE)
    told = settings_for(mill, part)
    assert told["reload"]["sha256"] == hashlib.sha256(CHECKED.encode()).hexdigest()


def test_no_other_file_than_the_checked_one_is_applied(tmp_path: Path) -> None:
    config(tmp_path, CHECKED)
    file = tmp_path / "configs" / "millrace.yaml"
    home = Home(tmp_path, tmp_path / "data" / "run" / "millrace.yaml", edited=file)
    home.run.mkdir(parents=True)
    home.started_config.write_text(CHECKED)
    following = ConfigFollower(home, "started")
    wanted = f"{CHECKED}monitor: {{listen: '127.0.0.1:{free_port()}'}}\n"
    file.write_text(f"{wanted}# saved once more\n")
    with pytest.raises(CheckedFileChanged, match=r"millrace\.yaml, which the mill uses, differs"):
        following.take_over(hashlib.sha256(wanted.encode()).hexdigest())
    assert (following.digest, home.started_config.read_text()) == ("started", CHECKED)
    file.write_text(wanted)
    assert "monitor" in following.take_over(hashlib.sha256(wanted.encode()).hexdigest()).changed
    assert home.started_config.read_text() == wanted


def test_up_with_apply_names_the_file_that_it_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, CHECKED)
    asked = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    monkeypatch.setattr(mill_commands, "judge", lambda *_: None)
    wanted = f"{CHECKED}monitor: {{listen: '127.0.0.1:{free_port()}'}}\n"
    config(tmp_path, wanted)
    assert run(monkeypatch, tmp_path, "up", "--apply")[0] == Exit.OK
    sha256 = hashlib.sha256(wanted.encode()).hexdigest()
    assert asked[-1] == {"command": "apply", "sha256": sha256}


@pytest.mark.parametrize("asked", [["up"], ["up", "--apply"]])
def test_up_makes_secrets_that_an_earlier_version_did_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """Such a mill runs, and its file opens Redis, whose settings need them."""
    config(tmp_path, CHECKED)
    requests = running(monkeypatch, tmp_path, {"monitor": "healthy"})
    secrets = find_home({"MILLRACE_HOME": str(tmp_path)}).secrets
    for name in ("monitor/redis", "redis/monitor"):
        (secrets / name).unlink()
    monkeypatch.setattr(mill_commands, "judge", lambda *_: None)
    monkeypatch.setattr("appliance.checks.startup.redis_with_tls", lambda mill: ())
    config(tmp_path, f"{CHECKED}network: {{open: [redis], names: [localhost]}}\n")
    code, _, err = run(monkeypatch, tmp_path, *asked)
    assert code == Exit.OK, err
    assert any("redis, monitor restart" in line for line in err)
    assert requests[-1]["command"] == ("apply" if "--apply" in asked else "look")
    assert (secrets / "monitor/redis").read_text() == (secrets / "redis/monitor").read_text()
