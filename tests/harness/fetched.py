"""Files that tests download. A test is skipped if its file cannot be downloaded."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest


def need_tools(tools: Iterable[str], what: str) -> None:
    """Skip the test with the reason if one of the tools is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{what} needs {tool}, which is not installed")


def fetch(command: Sequence[str], cwd: Path, what: str, deadline_s: float) -> None:
    """Run a command that downloads. If it fails, skip the test with the end of its output."""
    fetched = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    if fetched.returncode != 0:
        told = fetched.stdout + fetched.stderr
        pytest.skip(f"{command[0]} could not fetch {what}: {told[-500:]}")
