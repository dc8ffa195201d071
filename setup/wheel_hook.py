"""Hatchling's hook for the wheel. It records the commit for `millrace --version`."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):
    """Adds the file `millrace/rooms/COMMIT` if the source is a git checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the short commit id to a file beside the build, and add the file to the wheel."""
        asked = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode != 0 or not (Path(self.root) / ".git").exists():
            return
        noted = Path(self.directory) / "COMMIT"
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(asked.stdout)
        build_data["force_include"][str(noted)] = "millrace/rooms/COMMIT"
