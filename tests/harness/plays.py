"""Scripts in the form of a play: commands, with their results indented below.

`MILLRACE_BLESS=1` replaces the results in the scripts by the current ones. Read the difference as
you would read prose.
"""

import os
from pathlib import Path
from typing import Protocol

INDENT = "    "


class Player(Protocol):
    """The interpreter of the commands of one kind of script."""

    def play(self, line: str) -> list[str]:
        """Perform the command of a line; return the indented lines of its results."""


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
