"""The systemd unit: its text, systemd's own check of it, and the path of its file."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from appliance.cli import service_command
from appliance.machine.service import MARK, PathNotFit, Service, next_steps, unit_folder, unit_text
from appliance.mill.home import CODE
from appliance.output import Exit
from tests.unit.appliance.test_commands import config, run


def service(folder: Path, *, is_system: bool = True, only_collects: bool = False) -> Service:
    return Service(
        folder=folder,
        command=folder / "millrace",
        config_file=folder / "configs" / "millrace.yaml",
        user="root" if is_system else None,
        is_system=is_system,
        only_collects=only_collects,
    )


def lines(text: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


def test_the_command_alone_is_told_to_stop_and_has_the_time_that_the_parts_need() -> None:
    text = unit_text(service(Path("/srv/mill")))
    assert lines(text, "Type") == ["notify"]
    assert lines(text, "ExecStart") == ['"/srv/mill/millrace" up --foreground --timeout 900']
    assert lines(text, "KillMode") == ["mixed"]
    assert lines(text, "TimeoutStopSec") == ["330"]
    assert lines(text, "OOMPolicy") == ["continue"]
    assert lines(text, "User") == ["root"]
    assert lines(text, "WantedBy") == ["multi-user.target"]
    own = unit_text(service(Path("/srv/mill"), is_system=False))
    assert lines(own, "User") == []
    assert lines(own, "WantedBy") == ["default.target"]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_path_that_would_end_its_line_is_refused(name: str) -> None:
    with pytest.raises(PathNotFit, match="without quotes"):
        unit_text(service(Path("/srv") / name))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("only_collects", [True, False])
@pytest.mark.parametrize("is_system", [True, False])
def test_systemd_understands_every_line(
    tmp_path: Path, is_system: bool, only_collects: bool
) -> None:
    folder = tmp_path / "my mill 100% $HOME ü"
    folder.mkdir()
    (folder / "millrace").write_text("#!/bin/sh\n")
    (folder / "millrace").chmod(0o755)
    unit = tmp_path / "millrace.service"
    unit.write_text(unit_text(service(folder, is_system=is_system, only_collects=only_collects)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *([] if is_system else ["--user"]), str(unit)],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    of_ours = [line for line in done.stderr.splitlines() if "millrace" in line]
    assert of_ours == []
    assert done.returncode == 0, done.stderr


def test_it_is_shown_first_and_written_on_demand_and_then_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "mill"
    config(home, "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "systemd" / "user" / "millrace.service"
    code, out, err = run(monkeypatch, home, "install-service", "--user")
    assert code == 0
    assert out[0] == MARK
    assert f'Environment="MILLRACE_HOME={home}"' in out
    assert f'ExecStart="{CODE}/millrace" up --foreground --timeout 900' in out
    assert err[-1] == f"nothing was written; add --write to write the unit to {path}"
    assert not path.exists()
    code, out, err = run(monkeypatch, home, "install-service", "--user", "--write")
    assert (code, out) == (0, [])
    assert path.read_text().splitlines()[0] == MARK
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert "  systemctl --user enable --now millrace.service" in err
    written = path.stat().st_mtime_ns
    code, _, err = run(monkeypatch, home, "install-service", "--user", "--write")
    assert (code, path.stat().st_mtime_ns) == (0, written)
    assert "has this unit already" in err[0]
    path.write_text(f"{MARK}\nolder\n")
    assert run(monkeypatch, home, "install-service", "--user", "--write")[0] == 0
    assert "Type=notify" in path.read_text()


def test_a_unit_that_the_mill_did_not_write_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "systemd" / "user" / "millrace.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\n")
    code, out, _ = run(monkeypatch, tmp_path, "install-service", "--user", "--json")
    data = json.loads(out[0])["data"]
    assert (code, data["found"], data["written"]) == (0, "another", False)
    code, _, err = run(monkeypatch, tmp_path, "install-service", "--user", "--write")
    assert code == Exit.CONDITION
    assert "--name" in err[0]
    assert path.read_text() == "[Service]\n"
    assert run(monkeypatch, tmp_path, "install-service", "--name", "a/b")[0] == Exit.USAGE


def test_what_the_unit_leaves_out_or_cannot_do_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MILLRACE_STREAM__TRIGGER", "200ms")
    _, _, err = run(monkeypatch, tmp_path, "install-service", "--user")
    assert "not in the unit: MILLRACE_STREAM__TRIGGER" in err[0]
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    code, _, err = run(monkeypatch, tmp_path, "install-service", "--user")
    assert code == Exit.CONDITION
    assert "belongs to" in err[-1]
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, _, err = run(monkeypatch, tmp_path, "install-service")
    assert code == Exit.CONDITION
    assert "containers" in err[-1]


def test_a_folder_that_may_not_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    config(tmp_path, "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(service_command, "write_atomically", refuse)
    code, _, err = run(monkeypatch, tmp_path, "install-service", "--user", "--write")
    assert code == Exit.FAILED
    assert "Permission denied; run the command as root, or add --user" in err[-1]


def test_where_units_lie_and_how_they_are_enabled() -> None:
    own = Path("/x/.config")
    assert unit_folder(is_system=True, config_home=own) == Path("/etc/systemd/system")
    assert unit_folder(is_system=False, config_home=own) == own / "systemd" / "user"
    assert next_steps("m.service", is_system=True, user="a") == [
        "systemctl daemon-reload",
        "systemctl enable --now m.service",
    ]
    assert next_steps("m.service", is_system=False, user="a")[-1] == "loginctl enable-linger a"
