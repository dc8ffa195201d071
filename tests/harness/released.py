"""Brokers and collectors of the last released version, whose code comes from this repository's
history.

code = released_code(tmp_path)
run_released(broker, code)
broker.start()
collector.code = code
collector.start()
"""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT
from tests.harness.broker import BrokerProcess

RELEASED = "c9e45188d1bec3ad0fb54a548b66310ed5e1ec57"
"""The commit of 1.0.0-rc1: the first one whose CHANGELOG.md names it."""

ROOMS = ("broker", "collector", "protocol")

LATER_KEYS = ("tls", "link_tls", "login_secret")
"""Settings that 1.0.0-rc1 does not know."""


def released_code(folder: Path) -> Path:
    """Write the code of 1.0.0-rc1 into a folder. Skip the test if git lacks the commit."""
    made = subprocess.run(
        ["git", "-C", str(ROOT), "archive", RELEASED, *ROOMS], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"this clone does not have the commit of 1.0.0-rc1: {made.stderr.decode()}")
    code = folder / "released"
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(code, filter="data")
    return code


def run_released(broker: BrokerProcess, code: Path) -> None:
    """Let the next start of a broker run 1.0.0-rc1."""
    broker.code = code
    broker.settings_object = lambda: _released_settings(broker)  # type: ignore[method-assign]


def run_present(broker: BrokerProcess) -> None:
    """Let the next start of a broker run the code of this checkout."""
    broker.code = ROOT
    vars(broker).pop("settings_object", None)


def _released_settings(broker: BrokerProcess) -> dict[str, Any]:
    settings = BrokerProcess.settings_object(broker)
    for key in LATER_KEYS:
        del settings[key]
    for listener in settings["listeners"].values():
        del listener["security_protocol"]
    return settings
