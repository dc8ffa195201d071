"""Runs the command of another package in a separate process, or asks a part by its `/status`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from appliance.cli import context
from appliance.errors import reason_of
from appliance.launch.run import settings_descriptor
from appliance.machine.processes import with_all_it_starts
from appliance.mill.parts import ProbeKind
from appliance.mill.settings import Mill, encode_settings
from appliance.output import CommandError, Exit
from protocol.status import PartStatus, StatusUnavailable, fetch_status

STATUS_TIMEOUT_S = 10.0


def cell(value: object) -> str:
    """Format a value of a status for a table. An unknown value becomes the word unknown."""
    if value is None:
        return "unknown"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def cell_or_dash(value: object) -> str:
    """Format a value of a status for a table. A missing value becomes a dash."""
    return "-" if value is None else str(value)


def status_of(name: str) -> PartStatus:
    """Ask a part of the configured mill for its status."""
    mill = context.mill_as_it_runs()
    part = mill.part(name)
    if part is None or part.probe is not ProbeKind.HTTP:
        raise CommandError(f"this configuration has no part {name}", Exit.NOT_FOUND)
    try:
        return fetch_status(part.host, part.port, STATUS_TIMEOUT_S)
    except StatusUnavailable as error:
        text = f"the {name} at {part.address} gives no answer: {reason_of(error)}"
        raise CommandError(context.not_answered(text), Exit.UNREACHABLE) from error


@contextmanager
def room_process(
    mill: Mill,
    room: str,
    arguments: list[str],
    settings: dict[str, Any],
    *,
    cwd: Path | None = None,
    **options: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command of another package with the settings that it needs. After the block the
    process has ended.

    Ctrl-C does not reach the process. The caller sends the signal for an orderly end to the
    process.
    """
    descriptor = settings_descriptor(encode_settings(settings))
    try:
        with with_all_it_starts(
            [sys.executable, "-m", room, *arguments, "--settings-fd", str(descriptor)],
            pass_fds=[descriptor],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(mill.home.code), "PYTHONSAFEPATH": "1"},
            **options,
        ) as process:
            yield process
    finally:
        os.close(descriptor)


def become_room(mill: Mill, room: str, arguments: list[str], settings: dict[str, Any]) -> NoReturn:
    """Replace this process by the command of another package, with the settings that it needs."""
    descriptor = settings_descriptor(encode_settings(settings))
    os.environ["PYTHONPATH"] = str(mill.home.code)
    sys.stdout.flush()
    command = [sys.executable, "-m", room, *arguments, "--settings-fd", str(descriptor)]
    os.execv(command[0], command)
