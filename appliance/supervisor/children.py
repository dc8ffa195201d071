"""Starts the parts' processes, and ends the processes of an earlier supervisor.

Each child leads a process group of its own, so that all processes that it starts can be ended with
it. A child ends when its supervisor dies. `data/run/<part>.json` has the record of its process.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Iterable

from appliance.machine.processes import PARENT_VARIABLE, ProcessRecord, read_record, record_of
from appliance.mill.home import Home
from appliance.supervisor.logs import open_log
from protocol.log import fields

LEFTOVER_STOP_S = 40.0
"""The seconds that a part of an earlier supervisor may take to end before it is killed."""
KILLED_WAIT_S = 5.0
POLL_S = 0.05

logger = logging.getLogger(__name__)


async def start(home: Home, part: str, command: list[str] | None = None) -> Process:
    """Start a part's process; its output goes to its log. Raises OSError if that fails."""
    command = command or [sys.executable, "-m", "appliance", "run", part]
    environment = {
        **os.environ,
        "PYTHONPATH": str(home.code),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "MILLRACE_HOME": str(home.folder),
        "MILLRACE_CONFIG": str(home.started_config),
        PARENT_VARIABLE: str(os.getpid()),
    }
    log = open_log(home.part_log(part))
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.folder,
            env=environment,
            process_group=0,
        )
    finally:
        os.close(log)
    if record := record_of(process.pid):
        try:
            record.write(home.part_record(part))
        except OSError as error:
            # The process runs although its record could not be written, so this is not a failed
            # start. If the supervisor is killed, the process ends too.
            logger.warning(
                "the process of a part could not be recorded on disk",
                extra=fields(part=part, why=error),
            )
    return process


def end_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to every process in the group that a child leads. Processes that have ended are
    ignored."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def leftovers(home: Home) -> dict[str, ProcessRecord]:
    """Return the parts of an earlier supervisor that still run, with the records of their
    processes."""
    found = {}
    for path in sorted(home.run.glob("*.json")):
        record = read_record(path)
        if record is not None and record.is_alive():
            found[path.stem] = record
    return found


async def end_leftovers(home: Home, timeout_s: float = LEFTOVER_STOP_S) -> list[str]:
    """Stop the parts of an earlier supervisor, and kill those that do not stop in time. Return the
    names of all of them.

    These parts got SIGTERM when their supervisor died, but a database can take some time to end.
    """
    found = leftovers(home)
    for name, record in found.items():
        logger.warning(
            "a part of an earlier run still runs; it is stopped before the start",
            extra=fields(part=name, pid=record.pid),
        )
        record.signal(signal.SIGTERM)
    await asyncio.to_thread(_wait_for_end, found.values(), timeout_s)
    for name, record in found.items():
        if record.signal(signal.SIGKILL, group=True):
            logger.warning(
                "killed a part of an earlier run, because it did not stop",
                extra=fields(part=name, pid=record.pid),
            )
    await asyncio.to_thread(_wait_for_end, found.values(), KILLED_WAIT_S)
    for name in found:
        home.part_record(name).unlink(missing_ok=True)
    return list(found)


def _wait_for_end(records: Iterable[ProcessRecord], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(record.is_alive() for record in records) and time.monotonic() < deadline:
        time.sleep(POLL_S)
