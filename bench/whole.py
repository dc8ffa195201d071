"""A whole mill for the bench, with the shipped configuration, its own folder and its own ports.

One setting differs: MySQL keeps all windows, because the lines of a backlog are old.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appliance.launch.servers import find_program
from appliance.machine.processes import read_record
from appliance.supervisor.control import NoSupervisor
from bench.machine import pss_mib, tree
from bench.session import Bench, Unavailable
from tests.e2e.mill import SHIPPED, TempMill
from tests.e2e.reading import Reading

POLL_S = 0.1
SUPERVISOR = "supervisor"
SHIPPED_KEEP = "mysql: {1m: 90d}"


class WholeMill:
    """One mill, which can be started and stopped repeatedly."""

    def __init__(self, folder: Path) -> None:
        for program in (("redis-server",), ("mariadbd", "mysqld"), ("java",)):
            if find_program(*program) is None:
                raise Unavailable(f"{program[0]} is not installed; make setup installs it")
        self.mill = TempMill(folder)
        # The shipped setting drops minutes after 90 days. The lines of a backlog are older, so keep
        # all.
        text = SHIPPED.read_text()
        assert SHIPPED_KEEP in text
        self.mill.write_config(text.replace(SHIPPED_KEEP, "mysql: forever"))
        self.reading = Reading(self.mill)
        self.is_up = False

    @property
    def watched(self) -> Path:
        """The folder for access logs."""
        return self.mill.home.folder / "watched" / "access"

    def up(self) -> dict[str, float]:
        """Start everything. Return the seconds in all, and of each part from its start until it is
        healthy."""
        seen: dict[str, float] = {}
        began_s = time.perf_counter()
        with ThreadPoolExecutor(1) as worker:
            starting = worker.submit(self.mill.up)
            while not starting.done():
                self._note_healthy(seen)
                time.sleep(POLL_S)
            starting.result()
        seconds = time.perf_counter() - began_s
        self._note_healthy(seen)
        self.is_up = True
        return {"up_s": seconds, **{f"{part}_s": seen[part] for part in sorted(seen)}}

    def _note_healthy(self, seen: dict[str, float]) -> None:
        try:
            parts = self.reading.parts()
        except (NoSupervisor, OSError):
            return
        for name, row in parts.items():
            if name not in seen and row["state"] == "healthy":
                seen[name] = row["uptime_ms"] / 1000

    def down(self) -> float:
        """Stop everything; return the seconds it took."""
        began_s = time.perf_counter()
        self.mill.end()
        self.is_up = False
        return time.perf_counter() - began_s

    def pids(self) -> dict[str, int]:
        """Return the process ids of all parts and of the supervisor."""
        home = self.mill.home
        files = {SUPERVISOR: home.pid_file, **{p.stem: p for p in home.run.glob("*.json")}}
        records = {name: read_record(path) for name, path in files.items()}
        return {name: record.pid for name, record in records.items() if record is not None}

    def roots(self) -> list[int]:
        """Return the process ids whose processes, with all their descendants, are not other
        load."""
        return list(self.pids().values())

    def memory(self) -> dict[str, float]:
        """Return the PSS of each part with its descendants, and of the supervisor without the
        parts."""
        found = {
            f"{name}_pss_mib": pss_mib([pid] if name == SUPERVISOR else tree(pid))
            for name, pid in sorted(self.pids().items())
        }
        return {"mill_pss_mib": sum(found.values()), **found}

    def wait(
        self, condition: Callable[[], bool], deadline_s: float, every_s: float, what: str
    ) -> None:
        """Poll until the condition is true. Raises TimeoutError after the deadline."""
        end_s = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end_s:
                raise TimeoutError(f"this did not happen within {deadline_s:.0f} s: {what}")
            time.sleep(every_s)


def whole_mill(bench: Bench) -> WholeMill:
    """Return the mill that the parts of one bench share. It is possibly not started yet. It ends
    with the bench."""
    if bench.mill is None:
        bench.mill = WholeMill(bench.new_folder("mill") / "home")
        bench.stack.callback(bench.mill.down)
    assert isinstance(bench.mill, WholeMill)
    return bench.mill


def started_mill(bench: Bench) -> WholeMill:
    """Return the shared mill, started."""
    mill = whole_mill(bench)
    if not mill.is_up:
        mill.up()
    return mill


def peaks(samples: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the largest value of each figure."""
    found: dict[str, float] = {}
    for sample in samples:
        for name, value in sample.items():
            found[name] = max(value, found.get(name, value))
    return found
