"""Processes with many group members each, and all records that these members read."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.group_log import Given


class Members:
    """Processes of `tests.harness.group_member`, each with a file of notes."""

    def __init__(self, broker: BrokerProcess, folder: Path, group: str, topic: str) -> None:
        self._start = [broker.bootstrap, group, topic]
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.files: list[Path] = []

    def add(self, family: str, count: int = 1, assignor: str = "range") -> None:
        out = self._folder / f"member-{len(self.files)}.jsonl"
        bootstrap, group, topic = self._start
        arguments = [family, bootstrap, group, topic, str(out), "--assignor", assignor]
        with out.with_suffix(".log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.harness.group_member", *arguments,
                     "--count", str(count)],
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                )
            )  # fmt: skip
        self.files.append(out)

    def read(self) -> set[tuple[int, int]]:
        """Return the partition and offset of every record that any member has read."""
        found: set[tuple[int, int]] = set()
        for line in self._lines():
            for partition, *spans in line.get("read", ()):
                for first, last in spans:
                    found.update((partition, offset) for offset in range(first, last + 1))
        return found

    def given(self) -> list[Given]:
        """Return every assignment that any member got."""
        return [
            Given(line["id"], line["generation"], frozenset(line["given"]))
            for line in self._lines()
            if "given" in line
        ]

    def errors(self) -> list[str]:
        return [line["error"] for line in self._lines() if "error" in line]

    def said(self) -> list[str]:
        """Return the lines that the clients logged. They log only warnings."""
        logs = [file.with_suffix(".log").read_text() for file in self.files]
        return [line for text in logs for line in text.splitlines()]

    def _lines(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            if file.exists():
                # A process that is killed may leave its last line unfinished.
                for line in file.read_text().split("\n")[:-1]:
                    yield json.loads(line)

    def end(self, index: int, number: signal.Signals) -> None:
        self.processes[index].send_signal(number)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
