"""A host that only collects, for tests of `join` and `collector run`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.mill.home import CODE
from protocol.status import fetch_status
from tests.harness.ports import free_ports

ENVIRONMENT = {key: one for key, one in os.environ.items() if not key.startswith("MILLRACE_")}


class Host:
    """Another host: a folder in which only `join` and `collector run` are used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "configs" / "millrace.yaml"
        self.log = folder.with_suffix(".log")
        self.port = free_ports(1)
        self.environ = {**ENVIRONMENT, "MILLRACE_HOME": str(folder)}
        self.prefix: tuple[str, ...] = ()
        """The prefix with which each command of the host is run."""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, sys.executable, "-m", "appliance", *words]
        return subprocess.run(
            command, cwd=CODE, env=self.environ, capture_output=True, text=True, timeout=120
        )

    def begin(self) -> subprocess.Popen[bytes]:
        """Start `collector run` without waiting, with its output in the log."""
        command = [*self.prefix, sys.executable, "-m", "appliance", "collector", "run"]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=CODE, env=self.environ, stdout=log, stderr=log)

    @contextmanager
    def collector(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the collector, and kill it at the end."""
        process = self.begin()
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def secret(self, name: str) -> Path:
        """Return a file with a secret, or the record of the cluster."""
        return self.folder / "data" / "secrets" / "collector" / name

    def problems(self) -> object:
        """Return what the collector's status names as problems."""
        return fetch_status("127.0.0.1", self.port, 5).problems

    def write(self, lines: range) -> None:
        """Append numbered lines to a watched file."""
        with (self.folder / "watched" / "access" / "a.log").open("a") as file:
            file.writelines(f"line {number}\n" for number in lines)
