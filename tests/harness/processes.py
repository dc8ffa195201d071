"""Server processes of tests: start, stop, kill, and read the log.

`Server` closes what it started even if the start is interrupted. `ServerProcess` is a server of one
process. `PartProcess` is a part of the mill, which reads its settings from a descriptor.
"""

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from protocol.status import PartStatus, fetch_status
from tests.harness import ROOT
from tests.harness.ports import free_port
from tests.harness.wait import wait_until


class Server(ABC):
    """A context in which something runs that a test has started."""

    @abstractmethod
    def start(self) -> Self:
        """Start the server and wait until it serves."""

    @abstractmethod
    def close(self) -> None:
        """End the server at once, however far it has started."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            # Without this, an interrupt before the `with` body begins would leave processes
            # running.
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ServerProcess(Server):
    """A server of one process. `kill9` and `start` may alternate and keep the data."""

    STOP_DEADLINE_S = 20.0

    def __init__(self, name: str, log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    def stop(self) -> int:
        """Send SIGTERM. Return the exit code."""
        return self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self._end(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal without waiting. Call `wait` to wait."""
        self._running().send_signal(number)

    def wait(self, deadline_s: float | None = None) -> int:
        """Wait until the process ends although this object sent no signal. Return the exit code,
        which is negative if a signal ended the process."""
        code = self._running().wait(deadline_s or self.STOP_DEADLINE_S)
        self.process = None
        return code

    def log_text(self) -> str:
        """Return the log of all processes of this server so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def close(self) -> None:
        self.kill9()

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self.process is not None, f"the {self.name} is not running"
        return self.process

    def _check_alive(self) -> None:
        """Raise if the process has ended. SystemExit ends a `wait_until`."""
        code = self._running().poll()
        if code is not None:
            self.process = None
            raise SystemExit(f"{self.name} ended with {code}; its log:\n{self.log_text()}")

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            return process.wait(self.STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.name} did not stop; its log:\n{self.log_text()}") from None


class PartProcess(ServerProcess):
    """A process of one part of the mill, with a status port of its own."""

    START_DEADLINE_S = 30.0

    def __init__(self, name: str, log_file: Path) -> None:
        """Describe the part. `name` is the part's package, too."""
        super().__init__(name, log_file)
        self.host = "127.0.0.1"
        self.status_port = free_port()
        self.command: Sequence[str] = (sys.executable, "-m", name)
        self.environment: Mapping[str, str] = {}
        self.code = ROOT
        """The folder of the part's code. Another version of the part has another folder."""
        self.started_s = 0.0
        """The seconds that the part took to become ready at its last start."""

    @abstractmethod
    def settings_object(self) -> dict[str, Any]:
        """Return the object that the process reads from its settings descriptor."""

    def launcher(self) -> Sequence[str]:
        """Return the command that runs the part's own one. The default is none."""
        return ()

    def launch(
        self, *arguments: str, stdin: int = subprocess.DEVNULL, stdout: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """Return a new process with these settings. The caller ends it."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            return launch(
                (*self.launcher(), *self.command),
                json.dumps(self.settings_object()).encode(),
                *arguments,
                cwd=self.code,
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
                env=os.environ | self.environment,
            )

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start the process and return without waiting for anything."""
        assert self.process is None, f"the {self.name} is running already"
        self.process = self.launch()
        return self.process

    def start(self, deadline_s: float | None = None) -> Self:
        """Start the process and wait until it is ready."""
        begin = time.monotonic()
        self.spawn()
        self.wait_until_ready(deadline_s)
        self.started_s = time.monotonic() - begin
        return self

    def wait_until_ready(self, deadline_s: float | None = None) -> None:
        """Wait until the part reports itself ready."""
        try:
            wait_until(self._is_ready, deadline_s or self.START_DEADLINE_S, f"{self.name} ready")
        except AssertionError as error:
            error.add_note(f"its log:\n{self.log_text()}")
            raise

    def _is_ready(self) -> bool:
        self._check_alive()
        return self.status().ready

    def status(self) -> PartStatus:
        """Return the part's response to `/status`."""
        return fetch_status(self.host, self.status_port, 5.0)

    def details(self) -> dict[str, Any]:
        """Return the details of the part's status."""
        return dict(self.status().details)


def launch(
    command: Sequence[str], settings: bytes, *arguments: str, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a process that reads these settings from a descriptor, as from the appliance."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [*command, "--settings-fd", str(reader), *arguments], pass_fds=[reader], **options
        )
    finally:
        os.close(reader)
    with os.fdopen(writer, "wb") as given:
        given.write(settings)
    return process
