"""Finds the commit from which the running code was made."""

import subprocess
from pathlib import Path

NOTED = "COMMIT"
"""The name of the file in which a built wheel contains its commit."""

GIT_S = 5.0


def commit_of(code: Path) -> str | None:
    """Return the short id of the code's commit; None if neither the file nor git knows it.

    A checkout with uncommitted changes has `+` after its id.
    """
    noted = code / NOTED
    if noted.is_file():
        return noted.read_text().strip() or None
    if not (code / ".git").exists():
        return None
    command = ["git", "-C", str(code), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        asked = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None if asked.returncode == 0 else None
