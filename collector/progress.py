"""How far a one-shot run is: JSON lines for a program, a bar for a person.

Floor: beside `status`. Writes to the stream it is given and nothing else. Each event is one object:
`{"event":"progress","files":…,"files_done":…,"bytes_total":…,"bytes_done":…,"lines":…,
"rate_lines_s":…,"rate_bytes_s":…,"eta_s":…}`, the last one with event `done` and `incomplete`, the
files that could not be read to their end.
"""

import json
from dataclasses import asdict, dataclass
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a one-shot run stands; rates over the whole run so far."""

    files: int
    files_done: int
    bytes_total: int
    bytes_done: int
    lines: int
    elapsed_s: float

    def event(self, name: str) -> dict[str, object]:
        """The standing as an event."""
        elapsed_s = max(self.elapsed_s, 0.001)
        rate = self.bytes_done / elapsed_s
        left = self.bytes_total - self.bytes_done
        found = asdict(self)
        found["elapsed_s"] = round(self.elapsed_s, 3)
        return {
            "event": name,
            **found,
            "rate_lines_s": round(self.lines / elapsed_s, 1),
            "rate_bytes_s": round(rate, 1),
            "eta_s": round(left / rate, 1) if rate else None,
        }


class Reporter(Protocol):
    """Shows a run's progress."""

    def show(self, standing: Standing) -> None:
        """A step further."""

    def done(self, standing: Standing, incomplete: list[str]) -> None:
        """The end."""


class JsonReporter:
    """One JSON object a line."""

    def __init__(self, out: TextIO):
        self._out = out

    def show(self, standing: Standing) -> None:
        """A step further."""
        self._write(standing.event("progress"))

    def done(self, standing: Standing, incomplete: list[str]) -> None:
        """The end."""
        self._write(standing.event("done") | {"incomplete": incomplete})

    def _write(self, event: dict[str, object]) -> None:
        self._out.write(json.dumps(event, separators=(",", ":")) + "\n")
        self._out.flush()


class BarReporter:
    """A bar with bytes, rate and time left."""

    def __init__(self, out: TextIO):
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TextColumn("{task.fields[lines]:,} lines"),
            TimeRemainingColumn(),
            console=Console(file=out),
        )
        self._task = self._progress.add_task("reading", total=None, lines=0)
        self._progress.start()

    def show(self, standing: Standing) -> None:
        """A step further."""
        self._progress.update(
            self._task,
            description=f"{standing.files_done}/{standing.files} files",
            total=standing.bytes_total,
            completed=standing.bytes_done,
            lines=standing.lines,
        )

    def done(self, standing: Standing, incomplete: list[str]) -> None:
        """The end."""
        self.show(standing)
        self._progress.stop()
        for text in incomplete:
            self._progress.console.print(f"not complete: {text}", markup=False, highlight=False)


def reporter(out: TextIO) -> Reporter:
    """A bar on a terminal, JSON lines elsewhere."""
    return BarReporter(out) if out.isatty() else JsonReporter(out)
