"""Follows and stops the whole mill from outside of the supervisor.

`starting.start` starts the supervisor in the background. `wait_healthy` follows it. `stop` ends it,
together with processes of an earlier supervisor. Each function can be called at any time, in any
state. This module does not need the configuration, so `status` and `down` answer without loading
the checks.
"""

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from appliance.machine.processes import read_record
from appliance.mill.home import Home
from appliance.supervisor import children, control
from appliance.supervisor.logs import tail

POLL_S = 0.1
CRASHES_TO_GIVE_UP = 4
REASON_CHARS_MAX = 160

IN_VAIN = "lines-lost: "
"""The beginning of the reason that a part reports while it waits for lost data."""

IN_VAIN_S = 30.0
"""The seconds for which brokers may report lost lines after a start, until they know all their
data."""

_PROBLEM = re.compile(r"[a-z]+(-[a-z]+)*: ")


class StartFailed(Exception):
    """Raised when the mill was started, but a part does not become healthy."""


class StillStopping(Exception):
    """Raised when parts have not ended in time. The supervisor continues to stop them."""


@dataclass(frozen=True, slots=True)
class MillProgress:
    """The progress of a start or stop."""

    done: int
    of: int
    waiting_for: str


def is_running(home: Home) -> bool:
    """Return whether a supervisor runs. A running supervisor has locked a file; the file with its
    process id can be outdated."""
    try:
        descriptor = os.open(home.lock_file, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # Take a shared lock, so that two processes that check at the same time do not take each
        # other for a supervisor.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def snapshot(home: Home, timeout_s: float = control.TIMEOUT_S) -> dict[str, Any]:
    """Ask the supervisor for its state. Raises NoSupervisor if none runs."""
    return control.ask(home.socket, {"command": "status"}, timeout_s)


def wait_healthy(
    home: Home,
    timeout_s: float,
    on_progress: Callable[[MillProgress], None] | None = None,
    parts: Collection[str] | None = None,
) -> dict[str, Any]:
    """Wait until every part (or the named ones) is healthy and return the last snapshot.

    Raises StartFailed when a part has given up, crashes repeatedly or has waited for lost data for
    `IN_VAIN_S`. Raises TimeoutError when time is up. All parts that run keep running.
    """
    deadline = time.monotonic() + timeout_s
    in_vain_since_s: dict[str, float] = {}
    crashes: dict[str, int] | None = None
    while True:
        try:
            found = snapshot(home)
        except control.NoSupervisor as error:
            raise StartFailed(f"the supervisor has ended: {error}") from error
        entries = [entry for entry in found["parts"] if parts is None or entry["part"] in parts]
        if crashes is None:
            # Do not count the crashes before this call, because they do not belong to this start.
            crashes = {entry["part"]: entry["restarts"] for entry in entries}
        # A part that waits for its turn to restart is healthy with its old settings. Wait for its
        # restart too.
        waiting = [one for one in entries if one["state"] != "healthy" or one.get("starts_anew")]
        if on_progress:
            names = ", ".join(_waiting_text(entry) for entry in waiting)
            on_progress(MillProgress(len(entries) - len(waiting), len(entries), names))
        if not waiting:
            return found
        if (ended := found.get("round_ended")) and any(one["starts_anew"] for one in waiting):
            raise StartFailed(ended)
        for entry in waiting:
            since = entry["restarts"] - crashes.get(entry["part"], 0)
            if entry["state"] == "failed" or since >= CRASHES_TO_GIVE_UP:
                raise StartFailed(_failure_text(home, entry))
        _refuse_waiting_in_vain(waiting, in_vain_since_s)
        if time.monotonic() >= deadline:
            reasons = "; ".join(f"{e['part']}: {e['reason'] or e['state']}" for e in waiting)
            raise TimeoutError(f"the mill is not healthy after {timeout_s:.0f} s: {reasons}")
        time.sleep(POLL_S)


def _refuse_waiting_in_vain(waiting: list[dict[str, Any]], since_s: dict[str, float]) -> None:
    """Record since when parts wait for lost data. Raise StartFailed if a part has waited too
    long."""
    now_s = time.monotonic()
    in_vain = {entry["part"]: entry for entry in waiting if entry["reason"].startswith(IN_VAIN)}
    for name in since_s.keys() - in_vain.keys():
        del since_s[name]
    for name, entry in in_vain.items():
        if now_s - since_s.setdefault(name, now_s) >= IN_VAIN_S:
            why = f"{name} waits for lost data, which you must restore: {entry['reason']}"
            raise StartFailed(f"{why}; see docs/troubleshooting.md")


def _waiting_text(entry: dict[str, Any]) -> str:
    """Return the name of a part and, while it starts or if it cannot work, the reason that it
    reports."""
    reason = entry["reason"]
    is_told = reason and (entry["state"] == "healthy" or _PROBLEM.match(reason))
    return f"{entry['part']} ({reason[:REASON_CHARS_MAX]})" if is_told else str(entry["part"])


def _failure_text(home: Home, entry: dict[str, Any]) -> str:
    path = home.part_log(entry["part"])
    lines = "\n".join(f"  {line[:400]}" for line in tail(path, 6))
    return f"{entry['part']} does not start: {entry['reason']}; {path} ends with\n{lines}"


def stop(
    home: Home, timeout_s: float, on_progress: Callable[[MillProgress], None] | None = None
) -> bool:
    """Stop everything that runs. Return False if nothing ran. Raises StillStopping when the time is
    up."""
    deadline = time.monotonic() + timeout_s
    was_running = is_running(home)
    if was_running:
        try:
            control.ask(home.socket, {"command": "stop"})
        except control.NoSupervisor:
            # The supervisor is starting, ending or stuck. In each case SIGTERM asks it to stop.
            if record := read_record(home.pid_file):
                record.signal(signal.SIGTERM)
    while is_running(home):
        _tell_stopping(home, on_progress)
        if time.monotonic() >= deadline:
            raise StillStopping(f"some parts have not stopped within {timeout_s:.0f} s")
        time.sleep(POLL_S)
    had_leftovers = bool(end_leftovers(home))
    for stale in (home.pid_file, home.socket, *home.run.glob("*.json")):
        stale.unlink(missing_ok=True)
    return was_running or had_leftovers


def stop_part(home: Home, part: str, timeout_s: float) -> None:
    """Stop one part until it is started again. Raises KeyError if there is no such part."""
    deadline = time.monotonic() + timeout_s
    if not control.ask(home.socket, {"command": "stop-part", "part": part})["ok"]:
        raise KeyError(part)
    while True:
        states = {entry["part"]: entry["state"] for entry in snapshot(home)["parts"]}
        if states.get(part) == "stopped":
            return
        if time.monotonic() >= deadline:
            raise StillStopping(f"{part} has not stopped within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def _tell_stopping(home: Home, on_progress: Callable[[MillProgress], None] | None) -> None:
    if on_progress is None:
        return
    try:
        entries = snapshot(home, 2.0)["parts"]
    except control.NoSupervisor:
        return
    left = [entry["part"] for entry in entries if entry["state"] != "stopped"]
    on_progress(MillProgress(len(entries) - len(left), len(entries), ", ".join(left)))


def end_leftovers(home: Home) -> list[str]:
    """Stop parts whose supervisor was killed. A new supervisor does the same at its start."""
    import asyncio

    return asyncio.run(children.end_leftovers(home)) if children.leftovers(home) else []
