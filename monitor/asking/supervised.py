"""The supervisor's report on the parts, and the memory they use.

In containers there is no supervisor, so this report is missing.
"""

import json
from pathlib import Path

import psutil

from monitor.state.reading import SupervisedPart, SupervisorAnswer
from protocol.control import NoSupervisor, ask

TIMEOUT_S = 1.5


def ask_supervisor(path: Path) -> SupervisorAnswer | None:
    """Return the supervisor's report; None if the supervisor does not answer, for example while the
    mill stops.
    """
    try:
        found = ask(path, {"command": "status"}, TIMEOUT_S)
    except (NoSupervisor, OSError, json.JSONDecodeError):
        return None
    return SupervisorAnswer(
        problem=found.get("config_problem"),
        notice=found.get("config_notice"),
        round_ended=found.get("round_ended") or None,
        parts={
            str(one["part"]): SupervisedPart(
                state=str(one["state"]),
                reason=str(one.get("reason") or ""),
                words=one.get("words"),
                restarts=int(one.get("restarts") or 0),
                uptime_ms=one.get("uptime_ms"),
                pid=one.get("pid"),
                memory_bytes=_memory_of(one.get("pid")),
                awaits_its_turn=one.get("starts_anew") is True,
            )
            for one in found.get("parts", ())
        },
    )


def _memory_of(pid: int | None) -> int | None:
    """Return the resident bytes of a part and of the processes it started."""
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None
