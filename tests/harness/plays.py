"""Scripts in the form of a play: commands, with their results indented below.

With `MILLRACE_BLESS=1` the scripts are rewritten with the current results. Read the diff before you
commit it.
"""

import os
from pathlib import Path
from typing import Protocol

INDENT = "    "


class Player(Protocol):
    """The interpreter of the commands of one kind of script."""

    def play(self, line: str) -> list[str]:
        """Perform the command of a line. Return its results, one indented line each."""


def played(text: str, player: Player) -> str:
    """Return a script with its current results."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += player.play(line)
    return "\n".join(lines) + "\n"


def hold_to_script(script: Path, player: Player) -> None:
    """Play a script from its start. Fail if the results differ from those in the script."""
    expected = script.read_text()
    found = played(expected, player)
    if os.environ.get("MILLRACE_BLESS") == "1":
        script.write_text(found)
    else:
        assert found.splitlines() == expected.splitlines()
