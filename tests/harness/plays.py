"""Scripts like a play: commands, and the results indented below each.

`MILLRACE_BLESS=1` writes what comes of them today in place of what stands there; the difference is
then read as prose.
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
    """A script with what comes of it today."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += player.play(line)
    return "\n".join(lines) + "\n"


def hold_to_script(script: Path, player: Player) -> None:
    """Play a script from its start, and fail where it comes out otherwise than it is written."""
    expected = script.read_text()
    found = played(expected, player)
    if os.environ.get("MILLRACE_BLESS") == "1":
        script.write_text(found)
    else:
        assert found.splitlines() == expected.splitlines()
