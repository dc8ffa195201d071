"""Report the progress of a one-shot run: JSON lines for a program, a bar for a person.

The module writes only to the given stream. Each event is one object:
`{"event":"progress","files":…,"files_done":…,"bytes_total":…,"bytes_done":…,"lines":…,
"rate_lines_s":…,"rate_bytes_s":…,"eta_s":…}`. The last event has the name `done`. Its key
`incomplete` lists the files that could not be read to their end.
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
class RunProgress:
    """The progress of a one-shot run. Rates are averages over the whole run."""

    files: int
    files_done: int
    bytes_total: int
    bytes_done: int
    lines: int
    elapsed_s: float

    def event(self, name: str) -> dict[str, object]:
        """Return the progress as an event."""
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
    """An object that shows the progress of a run."""

    def show(self, run: RunProgress) -> None:
        """Show the current progress."""

    def done(self, run: RunProgress, incomplete: list[str]) -> None:
        """Show the end of the run."""


class JsonReporter:
    """Writes each event as one JSON object per line."""

    def __init__(self, out: TextIO):
        self._out = out

    def show(self, run: RunProgress) -> None:
        """Write the current progress."""
        self._write(run.event("progress"))

    def done(self, run: RunProgress, incomplete: list[str]) -> None:
        """Write the end of the run."""
        self._write(run.event("done") | {"incomplete": incomplete})

    def _write(self, event: dict[str, object]) -> None:
        self._out.write(json.dumps(event, separators=(",", ":")) + "\n")
        self._out.flush()


class BarReporter:
    """Shows a bar with bytes, rate and remaining time."""

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

    def show(self, run: RunProgress) -> None:
        """Update the bar."""
        self._progress.update(
            self._task,
            description=f"{run.files_done}/{run.files} files",
            total=run.bytes_total,
            completed=run.bytes_done,
            lines=run.lines,
        )

    def done(self, run: RunProgress, incomplete: list[str]) -> None:
        """Complete the bar, and list the incomplete files."""
        self.show(run)
        self._progress.stop()
        for text in incomplete:
            self._progress.console.print(f"not read whole: {text}", markup=False, highlight=False)


def reporter(out: TextIO) -> Reporter:
    """Return a bar for a terminal, and JSON lines for any other output."""
    return BarReporter(out) if out.isatty() else JsonReporter(out)
