"""A machine in its own network namespace: a collector that has joined, and the writer of its log.

Tests use it to let lines of many machines count while collectors and links fail.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from tests.e2e.joined_host import Host
from tests.e2e.mill import Result
from tests.harness.namespaces import Namespaces

RATE = 1_000
"""Lines per second of each machine, at most."""
TICK_S = 0.05


class Rotation(Enum):
    """How a log is rotated. No file is deleted, so every line can be read."""

    COUNTED = auto()
    """`a.log` becomes `a.log.N`, where N is the number of the rotation."""
    SHIFTED = auto()
    """`a.log` becomes `a.log.1`, `a.log.1` becomes `a.log.2`, and so on."""
    COMPRESSED = auto()
    """As `COUNTED`, and the file that was rotated before becomes `a.log.N.gz`."""


@dataclass(frozen=True, slots=True)
class Log:
    """How a log is written.

    `limit` is the number of lines after which the writer waits; None for no limit.
    """

    limit: int | None = None
    lines_of_a_file: int = 20_000
    rotation: Rotation = Rotation.COUNTED


PLAIN_LOG = Log()


class LogWriter:
    """Writes numbered lines of one machine, and rotates its log. Raise `limit` while the writer
    runs to let it continue."""

    def __init__(self, folder: Path, number: int, log: Log = PLAIN_LOG) -> None:
        self.number = number
        self.count = 0
        self.limit = log.limit
        self.rotations = 0
        # A record's key is the name of its file. With other names the lines of the machines are in
        # all partitions.
        self._path = folder / f"access-{number}.log"
        self._log = log
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"log of machine {number}")

    def line(self, count: int) -> bytes:
        """Return the line with a number. The number is also in the column `bytes`, so the sum of
        the column shows a lost or a doubled line."""
        return (
            f"10.0.0.{self.number} - - [28/Nov/2026:09:00:00 +0000] "
            f'"GET /{count % 7} HTTP/1.1" 200 {count} "-" "line/{count}"'
        ).encode()

    def _write(self) -> None:
        last_s = time.monotonic()
        while not self._is_over.wait(TICK_S):
            now_s = time.monotonic()
            due = self.count + int((now_s - last_s) * RATE)
            last_s = now_s
            if self.limit is not None:
                due = min(due, self.limit)
            with self._path.open("ab") as file:
                file.writelines(self.line(one) + b"\n" for one in range(self.count, due))
            self.count = due
            if due >= (self.rotations + 1) * self._log.lines_of_a_file:
                self.rotations += 1
                self._rotate()

    def _rotate(self) -> None:
        if self._log.rotation is Rotation.SHIFTED:
            for one in range(self.rotations - 1, 0, -1):
                self._rotated(one).rename(self._rotated(one + 1))
            self._path.rename(self._rotated(1))
            return
        self._path.rename(self._rotated(self.rotations))
        if self._log.rotation is Rotation.COMPRESSED and self.rotations > 1:
            before = self._rotated(self.rotations - 1)
            with before.open("rb") as plain, gzip.open(f"{before}.gz", "wb", 1) as packed:
                shutil.copyfileobj(plain, packed)
            before.unlink()

    def _rotated(self, number: int) -> Path:
        return Path(f"{self._path}.{number}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop writing. Do nothing if the writer has stopped already, or never started."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()


class Machine:
    """Another machine: its network, its collector and the writer of its log."""

    def __init__(self, spaces: Namespaces, folder: Path, number: int, log: Log = PLAIN_LOG) -> None:
        """`number` is the number of the machine's network namespace."""
        self.number = number
        self.name = f"web-{number:02}"
        self.host = Host(folder / self.name)
        self._spaces = spaces
        self._process: subprocess.Popen[bytes] | None = None
        logs = self.host.folder / "watched" / "access"
        logs.mkdir(parents=True)
        self.writer = LogWriter(logs, number, log)

    def joins(self, run: Callable[..., Result], folder: Path) -> None:
        """Enrol the machine, and join there. `run` runs a command on the mill's machine."""
        made = run("enrol", "collector", self.name, "--group", "web", "--out", str(folder))
        assert made.code == 0, made.err
        with self._spaces.inside(self.number):
            joined = self.host.run("join", str(folder / f"{self.name}.join"))
        assert joined.returncode == 0, joined.stderr
        ports = f"ports: {{collector: {self.host.port}}}\n"
        self.host.config.write_text(self.host.config.read_text() + ports)

    def start(self) -> None:
        """Start the collector."""
        with self._spaces.inside(self.number):
            self._process = self.host.begin()

    def kill(self) -> None:
        """Send SIGKILL to the collector, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cut_off(self) -> AbstractContextManager[None]:
        """Pull the cable of the machine, without an error at either end."""
        return self._spaces.unplugged(self.number)
