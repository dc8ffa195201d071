"""JavaScript programs with an unmodified kafkajs, installed by npm into the tests' cache folder."""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.harness import ROOT
from tests.harness.fetched import fetch, need_tools

KAFKAJS_VERSION = "2.2.4"
INSTALL_DEADLINE_S = 180.0
RUN_DEADLINE_S = 120.0

PROGRAM = ROOT / "tests" / "interop" / "javascript" / "clients.js"


@cache
def node_modules() -> Path:
    """Return the folder with kafkajs, installed by npm once and kept. Skip the test if that is
    impossible."""
    need_tools(("node", "npm"), "kafkajs")
    home = ROOT / ".cache" / f"kafkajs-{KAFKAJS_VERSION}"
    if home.is_dir():
        return home / "node_modules"
    arriving = home.with_name(home.name + "-arriving")
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir(parents=True)
    wanted = f"kafkajs@{KAFKAJS_VERSION}"
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", wanted]
    fetch(command, arriving, "kafkajs", INSTALL_DEADLINE_S)
    # Rename the folder only when it is complete, so an interrupted download is never used.
    arriving.rename(home)
    return home / "node_modules"


def node_environment() -> dict[str, str]:
    """Return environment variables with which Node finds kafkajs, and kafkajs prints no advice."""
    return {"NODE_PATH": str(node_modules()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}


def run_kafkajs(*arguments: str, provoked: str = "") -> str:
    """Return the program's output. Fail if kafkajs logs a warning or an error.

    `provoked` is a pattern for messages that kafkajs logs even about a healthy cluster.
    """
    ended = subprocess.run(
        ["node", str(PROGRAM), *arguments],
        env=os.environ | node_environment(),
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
        check=False,
    )
    told = f"{arguments}\n{ended.stdout}\n{ended.stderr}"
    assert ended.returncode == 0, told
    unforeseen = [
        line
        for line in (ended.stdout + ended.stderr).splitlines()
        if _is_warning(line) and not (provoked and re.search(provoked, line))
    ]
    assert not unforeseen, told
    return ended.stdout


def _is_warning(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("level") in ("WARN", "ERROR")
