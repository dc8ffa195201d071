"""The collector takes the configuration that `join` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.cli.join_command import _has_config
from appliance.config.collecting import only_collects
from appliance.config.faults import ConfigFaults
from appliance.config.load import load
from appliance.enrol.host_config import PASSWORD_FILE, config_text
from appliance.machine.service import Service, unit_text
from appliance.mill.home import Home, find_home
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, collector_settings
from appliance.output import CommandError
from tests.harness.certificates import new_test_authority
from tests.unit.appliance.enrol.kit import CANARY, join_file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = find_home({"MILLRACE_HOME": str(tmp_path)})
    found.config_file.parent.mkdir()
    password = tmp_path / PASSWORD_FILE
    password.parent.mkdir(parents=True)
    password.write_text(f"{CANARY}\n")
    (tmp_path / "ca.pem").write_bytes(new_test_authority(tmp_path / "authority").file.read_bytes())
    return found


def joined(home: Home, **changes: object) -> Mill:
    home.config_file.write_text(config_text(join_file(**changes)))
    return Mill(home, load(home.config_file, home.folder).config, Placement())


@pytest.mark.parametrize("name", ["web-07", "7", "no", "0x10", "1.5"])
def test_the_collector_gets_what_the_join_file_says(home: Home, name: str) -> None:
    mill = joined(home, name=name, commit_interval_ms=5_000)
    assert only_collects(mill.config)
    collector = mill.config.collector
    assert (collector.instance, collector.group) == (name, "web")
    assert collector.commit_interval == 5_000
    settings = collector_settings(mill)
    assert settings["bootstrap_servers"] == "mill.example.org:9192,mill.example.org:9193"
    security = settings["security"]
    assert (security["user"], security["mechanism"]) == ("collector.web-07", "SCRAM-SHA-512")
    assert security["ca"] == str(home.folder / "ca.pem")
    assert CANARY not in str(settings), "the process reads the file"


def test_a_host_trusts_its_own_cas_if_the_file_has_none(home: Home) -> None:
    assert collector_settings(joined(home, ca=None))["security"]["ca"] is None


def test_a_host_whose_data_folder_is_lost_can_join_again(home: Home) -> None:
    """`join` writes the password and the CA again. Other faults of the file are reported."""
    joined(home)
    assert _has_config(home, join_file())
    (home.folder / PASSWORD_FILE).unlink()
    (home.folder / "ca.pem").unlink()
    assert _has_config(home, join_file())
    with pytest.raises(CommandError, match="is not the configuration of collector web-08"):
        _has_config(home, join_file(name="web-08", user="collector.web-08"))
    home.config_file.write_text(f"{home.config_file.read_text()}wrong: 1\n")
    with pytest.raises(ConfigFaults, match="wrong"):
        _has_config(home, join_file())


def test_a_mill_that_counts_needs_a_sink(home: Home) -> None:
    joined(home)
    text = home.config_file.read_text()
    stream = (
        "stream: {from: {access: {topic: logs.access, format: combined}},"
        " metrics: [{name: m, from: access, measure: count}]}"
    )
    home.config_file.write_text(text.replace("stream: {metrics: []}", stream))
    with pytest.raises(ConfigFaults, match="at least one sink"):
        load(home.config_file, home.folder)


def test_the_unit_of_such_a_host_runs_the_collector() -> None:
    service = Service(
        folder=Path("/srv/collector"),
        command=Path("/srv/venv/bin/millrace"),
        config_file=Path("/srv/collector/configs/millrace.yaml"),
        user="web",
        is_system=True,
        only_collects=True,
    )
    lines = unit_text(service).splitlines()
    assert 'ExecStart="/srv/venv/bin/millrace" collector run' in lines
    assert "Type=exec" in lines and "User=web" in lines
    assert "RestartPreventExitStatus=2 3 75" in lines
