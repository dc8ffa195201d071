"""The tree of commands: its table equals the real commands, and `--help` is fast."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from appliance.cli.app import app, main
from appliance.cli.help_lines import in_one_line
from appliance.cli.tree import COMMANDS
from appliance.mill.home import CODE

WIDE = 80
"""The width of a terminal whose size is unknown, in columns."""

ROOMS = (
    "pydantic",
    "numpy",
    "yaml",
    "appliance.mill.settings",
    "protocol.client",
    "stream",
    "sinks",
)


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
    rooms = [name for name in ROOMS if name != "pydantic"]  # typer itself imports pydantic
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


GROUPS = sorted(name for name in COMMANDS if isinstance(COMMANDS[name].load(), typer.Typer))


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_s_help_is_like_that_of_every_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: millrace {name} [OPTIONS] COMMAND [ARGS]...")
    # A group offers no option for completion, because the script completes only `millrace` as a
    # whole.
    assert "completion" not in said
    assert {character for character in said if ord(character) > 127} <= {"…"}


def test_a_line_of_help_ends_where_a_thought_does() -> None:
    assert in_one_line("Stop it: nothing left running.", 40) == "Stop it: nothing left running"
    assert in_one_line("Stop it cleanly: nothing lost, nothing left.", 32) == "Stop it cleanly"
    assert in_one_line("Look, and tell; exit code 3 on a failure.", 30) == "Look, and tell"
    assert in_one_line("Become a process. Parts start this way.", 30) == "Become a process"
    assert in_one_line("All of the things that there are to be told", 20) == "All of the things…"


@pytest.mark.parametrize("words", [[], *([name] for name in GROUPS)])
def test_help_cuts_no_word(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*words, "--help"])
    listed = capsys.readouterr().out.split("Commands:\n")[1].splitlines()
    whole = {name: entry.help for name, entry in COMMANDS.items()}
    if words:
        command = typer.main.get_command(COMMANDS[words[0]].load())
        whole = {name: str(one.help) for name, one in command.commands.items()}  # type: ignore[attr-defined]
    assert listed
    for line in listed:
        name, text = line.split(maxsplit=1)
        said = {word.rstrip(";:,.") for word in whole[name].split()}
        assert text.removesuffix("…").rstrip(";:,.").split()[-1] in said
        assert len(line) <= WIDE
