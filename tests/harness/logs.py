"""The shared real log files, which are not part of this repository."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shared_log(name: str) -> Path:
    """Path of a shared log such as `apache_access.log`; the test is skipped where it is missing."""
    folder = Path(os.environ.get("MILLRACE_SHARED", ROOT.parent / "shared" / "data"))
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not beside this checkout (set MILLRACE_SHARED to its folder)")
    return path
