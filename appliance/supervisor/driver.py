"""The supervisor's process: it performs the core's effects on one event loop.

The process locks `data/supervisor.lock` as long as it runs, so there is never a second supervisor.
It answers the command line on `data/supervisor.sock`, and stops the mill in order on SIGTERM or
SIGINT. If the process is killed, the kernel ends its children.
"""

import asyncio
import fcntl
import json
import logging
import os
import random
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from appliance.config.faults import ConfigFaults
from appliance.errors import Failure
from appliance.machine.processes import record_of
from appliance.mill.home import Home
from appliance.mill.parts import Part
from appliance.supervisor import children, control
from appliance.supervisor.copies import readiness
from appliance.supervisor.core import Supervisor
from appliance.supervisor.effects import (
    LIVE,
    AllStopped,
    AskReplicas,
    Effect,
    Note,
    PartPhase,
    ProbePart,
    Start,
    Terminate,
)
from appliance.supervisor.following import ConfigFollower
from appliance.supervisor.logs import last_words, rotate, tail
from appliance.supervisor.part_state import PartEntry
from appliance.supervisor.pausing import PauseControl
from appliance.supervisor.probes import probe
from protocol.log import fields
from protocol.settling import LOOK_EVERY_S

EXIT_CANNOT_START = 126
ROTATE_EVERY_S = 10.0
IDLE_WAIT_S = 3_600.0
WORDS_LINES_MAX = 50
LOOKED_AT_S = 0.5
"""The time in seconds for which `lifecycle.is_running` may lock the file. It needs far less
time."""
LOCK_PAUSE_S = 0.01

logger = logging.getLogger(__name__)


class MillAlreadyRunning(Exception):
    """Raised when another supervisor runs this mill."""


def take_lock(home: Home) -> int:
    """Take the lock that only one supervisor of a mill can have.

    The kernel frees it when the process ends.
    """
    home.data.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                said = f"another supervisor runs the mill in {home.folder}"
                raise MillAlreadyRunning(said) from error
            time.sleep(LOCK_PAUSE_S)
        else:
            return descriptor


class Driver:
    """One run of the mill, from the first start to the last stop."""

    def __init__(
        self,
        home: Home,
        parts: Sequence[Part],
        *,
        version: str,
        following: ConfigFollower,
        commands: dict[str, list[str]] | None = None,
        leftover_stop_s: float = children.LEFTOVER_STOP_S,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """`beside` runs beside the parts as long as the mill runs."""
        self.home = home
        self.core = Supervisor(parts, random.Random())
        self.version = version
        self.following = following
        self.started_at_ms = round(time.time() * 1000)
        self._commands = commands or {}
        self._leftover_stop_s = leftover_stop_s
        self._beside = tuple(beside)
        self._processes: dict[str, Process] = {}
        self._pausing = PauseControl(self._processes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._effects: asyncio.Queue[Effect] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Run until everything has been stopped. The caller has taken the lock."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, number.name)
        listener = control.bind(self.home.socket)
        self.home.run.mkdir(parents=True, exist_ok=True)
        if record := record_of(os.getpid()):
            record.write(self.home.pid_file)
        server = await asyncio.start_unix_server(self._converse, sock=listener)
        beside = [
            asyncio.create_task(self._keep_logs_small()),
            asyncio.create_task(self._follow_the_configuration()),
            *(asyncio.create_task(work()) for work in self._beside),
        ]
        try:
            await children.end_leftovers(self.home, self._leftover_stop_s)
            performing = asyncio.create_task(self._perform_in_order())
            performing.add_done_callback(self._finished)
            self._enqueue(self.core.tick(self._now_ms()))
            await self._watch_the_clock()
            performing.cancel()
        finally:
            for task in beside:
                task.cancel()
            server.close()
            self.home.socket.unlink(missing_ok=True)
            self.home.pid_file.unlink(missing_ok=True)
        logger.info("the mill is stopped")

    async def _watch_the_clock(self) -> None:
        while not self._over.is_set():
            deadline_ms = self.core.next_deadline_ms
            wait_s = IDLE_WAIT_S
            if deadline_ms is not None:
                wait_s = max(0.0, (deadline_ms - self._now_ms()) / 1000)
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                self._enqueue(self.core.tick(self._now_ms()))

    @staticmethod
    def _now_ms() -> int:
        return round(time.monotonic() * 1000)

    def _enqueue(self, effects: list[Effect]) -> None:
        """Queue effects after those that were decided before."""
        for effect in effects:
            self._effects.put_nowait(effect)
        self._changed.set()

    async def _perform_in_order(self) -> None:
        while True:
            match await self._effects.get():
                case Start(name):
                    await self._start(name)
                case ProbePart(name):
                    self._spawn(self._ask(name))
                case AskReplicas(names, number):
                    self._spawn(self._look(names, number))
                case Terminate(name, force):
                    self._terminate(name, force)
                case Note(name, text, is_warning):
                    level = logging.WARNING if is_warning else logging.INFO
                    logger.log(level, text, extra=fields(part=name))
                case AllStopped():
                    self._over.set()
                    self._changed.set()

    async def _start(self, name: str) -> None:
        try:
            process = await children.start(self.home, name, self._commands.get(name))
        except OSError as error:
            logger.warning("a part cannot be started", extra=fields(part=name, error=error))
            self._enqueue(self.core.on_exit(name, EXIT_CANNOT_START, self._now_ms()))
            return
        self._processes[name] = process
        self._spawn(self._await_exit(name, process))
        self._enqueue(self.core.on_started(name, process.pid, self._now_ms()))

    async def _await_exit(self, name: str, process: Process) -> None:
        code = await process.wait()
        # End the processes that the part has left behind before its successor starts.
        children.end_group(process.pid, signal.SIGKILL)
        if self._processes.get(name) is process:
            del self._processes[name]
            self.home.part_record(name).unlink(missing_ok=True)
        self._enqueue(self.core.on_exit(name, code, self._now_ms()))

    async def _ask(self, name: str) -> None:
        process = self._processes.get(name)
        entry = self.core.parts.get(name)
        if entry is None:
            return
        answer, reason = await probe(entry.part, self.home)
        if process is None or self._processes.get(name) is not process:
            # The answer came from a process that has ended, or from another program on the same
            # port.
            return
        self._enqueue(self.core.on_probe(name, answer, reason, self._now_ms()))

    async def _look(self, names: tuple[str, ...], number: int) -> None:
        parts = [self.core.parts[name].part for name in names if name in self.core.parts]
        addresses = {part.name: (part.host, part.port) for part in parts}
        ready = await asyncio.to_thread(readiness, addresses)
        self._enqueue(self.core.on_copies(number, ready, self._now_ms()))

    def _terminate(self, name: str, force: bool) -> None:
        process = self._processes.get(name)
        if process is None:
            return
        if force:
            children.end_group(process.pid, signal.SIGKILL)
        else:
            try:
                process.terminate()
            except ProcessLookupError:
                return

    def _stop(self, signal_name: str) -> None:
        logger.info("stopping the mill", extra=fields(signal=signal_name))
        self._enqueue(self.core.stop(self._now_ms()))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # After a failed task the state of the supervisor is unreliable. When this process ends,
            # the kernel ends the parts cleanly, and the next `up` starts everything again.
            logger.critical("the supervisor failed and ends", exc_info=error)
            os.kill(os.getpid(), signal.SIGKILL)

    async def _keep_logs_small(self) -> None:
        too_large: set[str] = set()
        while True:
            await asyncio.sleep(ROTATE_EVERY_S)
            for path in self.home.logs.glob("*.log"):
                try:
                    if await asyncio.to_thread(rotate, path):
                        logger.info(
                            "a log has reached its limit and was rotated",
                            extra=fields(file=path.name),
                        )
                    too_large.discard(path.name)
                except OSError as error:
                    # Warn only once, because the next attempt can succeed when the disk has space
                    # again.
                    if path.name not in too_large:
                        logger.warning(
                            "a log could not be rotated, so it grows until a later try succeeds",
                            extra=fields(file=path.name, why=error),
                        )
                    too_large.add(path.name)

    async def _follow_the_configuration(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self.following.must_be_read(time.monotonic()):
                await asyncio.to_thread(self.following.read)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request of the command line."""
        try:
            async with asyncio.timeout(control.TIMEOUT_S):
                request = json.loads(await reader.readuntil(b"\n"))
                answer = await self._answer(request)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            logger.debug("a command closed its connection before the answer was sent")
        finally:
            writer.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a request and return its answer."""
        command, name = request.get("command"), request.get("part")
        if command == "status":
            return self.snapshot()
        if command == "look":
            await asyncio.to_thread(self.following.read)
            return self.snapshot()
        if command == "apply":
            return await self._apply(request.get("sha256"))
        if command in ("pause", "resume"):
            return await self._pausing.answer(request)
        if command == "stop":
            self._enqueue(self.core.stop(self._now_ms()))
            return {"ok": True}
        if command == "restart" and name in self.core.parts:
            self._enqueue(self.core.restart(str(name), self._now_ms()))
            return {"ok": True}
        if command == "restart-in-turns":
            return self._restart_in_turns(request.get("parts") or [])
        if command == "stop-part" and name in self.core.parts:
            self._enqueue(self.core.stop_part(str(name), self._now_ms()))
            return {"ok": True}
        return {"ok": False, "error": f"not understood: {request!r}"}

    def _restart_in_turns(self, names: list[str]) -> dict[str, Any]:
        """Restart brokers one after the other; all of them if none is named."""
        brokers = [name for name, one in self.core.parts.items() if one.part.takes_turns]
        unknown = [name for name in names if name not in brokers]
        if unknown or not brokers:
            return {"ok": False, "unknown": unknown, "brokers": brokers}
        self._enqueue(self.core.restart_in_turns(names or brokers, self._now_ms()))
        return {"ok": True, "brokers": brokers}

    async def _apply(self, sha256: str | None) -> dict[str, Any]:
        """Apply the edited file, and restart the parts that it concerns."""
        try:
            found = await asyncio.to_thread(self.following.take_over, sha256)
        except (ConfigFaults, Failure, OSError) as error:
            return {"ok": False, "error": str(error)}
        self._enqueue(self.core.replace(found.parts, found.changed, self._now_ms()))
        return {"ok": True}

    def _words(self, entry: PartEntry) -> str | None:
        """Return the last message in the log of a part that has failed or restarted; None for other
        parts."""
        if entry.state is not PartPhase.FAILED and (
            entry.state is PartPhase.HEALTHY or not entry.restarts
        ):
            return None
        return last_words(tail(self.home.part_log(entry.part.name), WORDS_LINES_MAX))

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the mill and its parts, for `status`."""
        now_ms = self._now_ms()
        return {
            "ok": True,
            "pid": os.getpid(),
            "version": self.version,
            "config_digest": self.following.digest,
            "config_problem": self.following.problem,
            "config_notice": self.following.notice,
            "started_at_ms": self.started_at_ms,
            "stopping": self.core.is_stopping,
            "round_ended": self.core.round_ended,
            "parts": [
                {
                    "part": entry.part.name,
                    "state": str(entry.state),
                    "pid": entry.pid,
                    "address": entry.part.address,
                    "restarts": entry.restarts,
                    "uptime_ms": now_ms - entry.started_at_ms if entry.state in LIVE else None,
                    "last_exit_code": entry.last_exit_code,
                    "reason": self.core.reason_of(entry),
                    "starts_anew": entry.awaits_its_turn,
                    "words": self._words(entry),
                }
                for entry in self.core.parts.values()
            ],
        }
