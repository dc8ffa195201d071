"""The tree of commands: its table against the commands themselves, and what help costs."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from appliance.cli.app import app
from appliance.cli.tree import COMMANDS
from appliance.home import CODE

ROOMS = ("pydantic", "numpy", "yaml", "appliance.settings", "protocol.client", "stream", "sinks")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_help_is_the_command_s_own(name: str) -> None:
    entry = COMMANDS[name]
    found = entry.load()
    own = str(found.info.help if isinstance(found, typer.Typer) else found.__doc__)
    if entry.is_hidden:
        assert entry.help == ""
    else:
        assert entry.help == own.split("\n\n")[0].strip()


def test_help_loads_no_room() -> None:
    code = (
        "import sys; from appliance.cli.app import main; main(['--help']);"
        f"print([name for name in {ROOMS} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CODE, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "show" in done.stdout
    assert "supervise" not in done.stdout


@pytest.mark.parametrize("command", ["status", "logs"])
def test_what_needs_no_configuration_loads_none_of_it(tmp_path: Path, command: str) -> None:
    rooms = [name for name in ROOMS if name != "pydantic"]  # typer itself asks for that
    code = (
        f"import sys; from appliance.cli.app import main; main([{command!r}]);"
        f"print([name for name in {rooms} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=CODE,
        env={"MILLRACE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_command_can_be_made() -> None:
    group = typer.main.get_command(app)
    context = group.make_context("millrace", ["status"])
    for name in COMMANDS:
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        assert command.name == name
        assert command.params is not None
