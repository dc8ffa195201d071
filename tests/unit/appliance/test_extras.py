"""If a Python package is missing, the message names the extra that installs it."""

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from appliance.cli import app as command_line
from appliance.launch import extras
from appliance.mill.source import NOTED, commit_of
from appliance.output import Exit
from protocol.status import VERSION
from tests.harness import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_is_one_of_the_package() -> None:
    offered = set(PROJECT["optional-dependencies"])
    assert set(extras.EXTRA_OF.values()) == set(extras.NEEDED_BY) == offered - {"all"}


def test_a_room_with_all_its_packages_lacks_nothing() -> None:
    assert {room: extras.missing_for(room) for room in extras.NEEDED_BY} == {
        "collector": None,
        "monitor": None,
        "stream": None,
    }


def test_a_room_without_a_package_names_it_and_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        extras, "find_spec", lambda name: None if name == "watchdog" else find_spec(name)
    )
    said = extras.missing_for("collector")
    assert said is not None
    assert "watchdog" in said
    assert "pip install 'millrace[collector]'" in said


@pytest.mark.parametrize(("module", "is_ours"), [("pyspark", True), ("unheard_of", False)])
def test_a_command_without_its_package_ends_with_a_remedy(
    module: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(command_line, "app", fail)
    if is_ours:
        assert command_line.main([]) == Exit.CONDITION
        assert "pip install 'millrace[stream]'" in capsys.readouterr().err
    else:
        with pytest.raises(ModuleNotFoundError):
            command_line.main([])


def test_the_commit_is_noted_or_asked_of_git_or_unknown(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / NOTED).write_text("0123456789ab\n")
    assert commit_of(tmp_path) == "0123456789ab"


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert VERSION in (ROOT / "docker-compose.yml").read_text()
