"""Many collectors of other hosts in one process, for rigs with more collectors than processes.

`python -m tests.harness.fleet_member` reads one JSON object from its standard input: the settings
of each collector, and how its file is written. Each collector is a real one: an `Agent` with its
own client, login, transactional id, folder and reports. The process writes the file of each
collector, too. It then reads one command per line, and writes its state as a JSON line every
STATE_S and after each command:

- `write`: append lines to each file, at the rate of the settings.
- `pause`: stop writing. From then on `written` in the state is final.
- `cut`: shut down all connections at once, as a network that fails does.
- `end`: stop the collectors cleanly, and end.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import uvloop

from collector.agent import Agent
from collector.config.settings import CollectorSettings
from collector.status import report_of
from collector.timing.clock import ForwardClock
from protocol.log import configure
from tests.harness.fleet_lines import line_of

STATE_S = 0.25


class SharedProcessClock(ForwardClock):
    """The clock of a collector that shares its process.

    The processor time of the process is that of all its collectors. And the kernel needs a
    millisecond to read it, because the process has hundreds of threads. So it is not measured.
    """

    @staticmethod
    def worked_ms() -> int:
        return 0


class FleetCollector:
    """One collector and the writer of its file."""

    def __init__(self, settings: CollectorSettings) -> None:
        instance = settings.section.instance
        assert instance is not None
        self.name = instance
        self.agent = Agent(settings, instance, SharedProcessClock())
        self.written = 0
        self._file: IO[bytes] = (Path(settings.home) / "watched" / "a.log").open("ab", 0)
        self._running: asyncio.Task[None] | None = None
        self._is_ending = False

    async def start(self) -> None:
        """Do what `collector.process` does, without a signal handler and a status server."""
        started_at_ms = self.agent.clock()
        self.agent.reporting.start(lambda now_ms: report_of(self.agent, started_at_ms, now_ms))
        if await self.agent.start():
            self._running = asyncio.create_task(self.agent.run())

    def write(self, count: int) -> None:
        """Append this number of lines, each with the time at which it is written."""
        now_ms = time.time_ns() // 1_000_000
        numbers = range(self.written, self.written + count)
        self._file.write(b"".join(line_of(self.name, one, now_ms) for one in numbers))
        self.written += count

    @property
    def has_ended(self) -> bool:
        """True if the collector has ended, although nothing has asked it to."""
        is_done = self._running is not None and self._running.done()
        return is_done and not self._is_ending

    async def end(self) -> None:
        """Stop the collector. Raises what its run has raised."""
        self._is_ending = True
        self.agent.stop()
        if self._running is not None:
            await self._running
        await self.agent.finish()
        await self.agent.reporting.stop()
        await self.agent.close()
        self._file.close()


class FleetMember:
    """The collectors of this process."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.collectors = [
            FleetCollector(CollectorSettings.model_validate(one)) for one in order["settings"]
        ]
        self._lines_per_s: float = order["lines_per_s"]
        self._burst_s: float = order["burst_s"]
        self._ports: set[int] = set(order["ports"])
        self._is_writing = False
        self._failures: list[str] = []

    async def run(self) -> None:
        """Run until the command `end`, or until the standard input ends."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        commands: asyncio.Queue[str] = asyncio.Queue()
        threading.Thread(target=_read, args=(loop, commands), daemon=True).start()
        background = [
            asyncio.create_task(self._tell_often()),
            asyncio.create_task(self._write()),
            *(asyncio.create_task(one.start()) for one in self.collectors),
        ]
        for task in background:
            task.add_done_callback(self._done)
        while (command := await commands.get()) != "end":
            if command == "cut":
                cut_connections(self._ports)
            else:
                self._is_writing = command == "write"
            self._tell(command)
        for task in background:
            task.cancel()
        ends = [one.end() for one in self.collectors]
        for found in await asyncio.gather(*ends, return_exceptions=True):
            if found is not None:
                self._failures.append(repr(found))
        self._tell("end")

    async def _write(self) -> None:
        """Write the files one after the other, so that the bursts are spread over `burst_s`."""
        pause_s = self._burst_s / len(self.collectors)
        per_burst = round(self._lines_per_s * self._burst_s)
        due_s = time.monotonic()
        while True:
            for one in self.collectors:
                due_s = max(due_s + pause_s, time.monotonic() - self._burst_s)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                if self._is_writing:
                    one.write(per_burst)

    async def _tell_often(self) -> None:
        while True:
            self._tell("")
            await asyncio.sleep(STATE_S)

    def _tell(self, command: str) -> None:
        agents = [one.agent for one in self.collectors]
        commits = [one.committer.committed_at_ms or 0 for one in agents]
        counters = [one.registry.counters for one in agents]
        ended = [one.name for one in self.collectors if one.has_ended]
        state = {
            "command": command,
            "ready": sum(one.is_ready for one in agents),
            "oldest_commit_ms": min(commits),
            "aborted": sum(one["transactions_aborted"] for one in counters),
            "committed": sum(one["transactions_committed"] for one in counters),
            "started_over": sum(one["started_over"] for one in counters),
            "unready": [one.name for one in self.collectors if not one.agent.is_ready],
            "written": {one.name: one.written for one in self.collectors},
            "failures": [*self._failures, *(f"{name} has ended" for name in ended)],
        }
        sys.stdout.write(json.dumps(state) + "\n")
        sys.stdout.flush()

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(repr(error))

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failures.append(str(context.get("exception") or context.get("message")))
        loop.default_exception_handler(context)


def cut_connections(ports: set[int]) -> None:
    """Shut down every connection of this process to one of these ports."""
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as link:
                if link.getpeername()[1] in ports:
                    link.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError, TypeError):
            continue  # The descriptor is no socket, is not connected, or was closed.


def _read(loop: asyncio.AbstractEventLoop, commands: asyncio.Queue[str]) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(commands.put_nowait, line.strip())
    loop.call_soon_threadsafe(commands.put_nowait, "end")


def main() -> None:
    """Read the settings and run."""
    configure("fleet")
    order = json.loads(sys.stdin.readline())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(FleetMember(order).run())


if __name__ == "__main__":
    main()
