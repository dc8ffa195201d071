"""The shared real log files and cases. They are not part of this repository."""

import os
from pathlib import Path

import pytest

from tests.harness import ROOT


def shared_log(name: str) -> Path:
    """Return the path of a shared log such as `apache_access.log`. Skip the test if it is
    missing."""
    return _shared(_logs() / name)


def shared_case(name: str) -> Path:
    """Return the folder of a case such as `05-nginx-main`. Skip the test if it is missing."""
    return _shared(_logs().parent / "cases" / "files" / name)


def _logs() -> Path:
    return Path(os.environ.get("MILLRACE_SHARED", ROOT.parent / "shared" / "data"))


def _shared(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout (set MILLRACE_SHARED to its folder)")
    return path
