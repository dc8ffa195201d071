"""Pauses parts for a short time, so that the files on the disk are in a consistent state.

SIGSTOP stops all threads of a part's process group at once. So the disk has the same content as
after a `kill -9` of all parts at that moment. A pause ends after a time limit, unless a request
ends it before.
"""

import asyncio
import logging
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from appliance.supervisor.children import end_group
from protocol.log import fields

PAUSE_MS_MAX = 5_000
"""The longest pause in milliseconds. Client sessions and probes tolerate it."""

STOP_MS_MAX = 2_000
"""The milliseconds that threads may take to stop.

A thread that waits for the disk stops only after the disk's answer.
"""

POLL_S = 0.002

logger = logging.getLogger(__name__)


class PauseControl:
    """The current pause; there is at most one."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        """`processes` maps the name of each part to its process; the driver keeps it up to date."""
        self._processes = processes
        self._paused: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._end: asyncio.TimerHandle | None = None

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request to pause or to resume."""
        if request.get("command") == "resume":
            return self._resume()
        match request:
            case {"parts": list(names), "for_ms": int(for_ms)} if 0 < for_ms <= PAUSE_MS_MAX:
                return await self._pause(tuple(str(name) for name in names), for_ms)
        return {"ok": False, "error": f"expected parts, and for_ms up to {PAUSE_MS_MAX}"}

    async def _pause(self, names: tuple[str, ...], for_ms: int) -> dict[str, Any]:
        if self._end is not None:
            return {"ok": False, "error": "the mill is paused already"}
        self._names = names
        self._paused = self._pids()
        self._end = asyncio.get_running_loop().call_later(for_ms / 1000, self._run_on)
        for pid in self._paused.values():
            end_group(pid, signal.SIGSTOP)
        deadline = time.monotonic() + min(STOP_MS_MAX, for_ms) / 1000
        groups = frozenset(self._paused.values())
        while not await asyncio.to_thread(stand_still, groups):
            if time.monotonic() >= deadline:
                self._run_on()
                return {"ok": False, "error": f"a part did not stop within {STOP_MS_MAX} ms"}
            await asyncio.sleep(POLL_S)
        return {"ok": True}

    def _resume(self) -> dict[str, Any]:
        """End the pause.

        `held` in the answer says whether the same processes were paused from the start to the end
        of the pause.
        """
        held = self._end is not None and self._paused == self._pids()
        self._run_on()
        return {"ok": True, "held": held}

    def _pids(self) -> dict[str, int]:
        return {name: self._processes[name].pid for name in self._names if name in self._processes}

    def _run_on(self) -> None:
        """Resume all paused processes. Processes that have ended are ignored."""
        if self._end is None:
            return
        self._end.cancel()
        self._end = None
        for pid in self._paused.values():
            end_group(pid, signal.SIGCONT)
        logger.info("parts were paused for a backup", extra=fields(parts=", ".join(self._paused)))


def stand_still(groups: Iterable[int]) -> bool:
    """Return whether every thread of these process groups is stopped or has ended."""
    wanted = set(groups)
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if int(_fields(process / "stat")[2]) not in wanted:
                continue
            for thread in (process / "task").iterdir():
                if _fields(thread / "stat")[0] not in ("T", "t", "Z", "X"):
                    return False
        except OSError:
            # The process ended while it was examined.
            continue
    return True


def _fields(stat: Path) -> list[str]:
    """Return the fields after the name in parentheses: state, parent, group and so on.

    The name can contain any characters.
    """
    return stat.read_text().rpartition(")")[2].split()
