"""The bench's output: JSON lines on standard output, everything for people on standard error.

At the end rich draws a table on a terminal. In a pipe the table is plain aligned text.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TextIO

from bench.figures import Spread, text_of
from bench.machine import description
from bench.measurement import Measurement

HEADS = ("part", "case", "figure", "min", "median", "max", "beside", "ratio", "goal", "")
NOISY = "noisy"


def write_line(measurement: Measurement, out: TextIO) -> None:
    """Print one measurement as a JSON line."""
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    out.write(json.dumps(measurement.to_json(description(), at), ensure_ascii=False) + "\n")
    out.flush()


def note(text: str) -> None:
    """Print a note for the person who runs the bench."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


def rows(measurements: Sequence[Measurement]) -> Iterator[tuple[str, ...]]:
    """Return the table's rows, one per figure. A part and a case are named only in their first
    row."""
    part = ""
    for measurement in measurements:
        shown_part = "" if measurement.part == part else measurement.part
        part = measurement.part
        shown_case = measurement.case
        ratios = measurement.ratios
        for name, one in measurement.figures.items():
            yield (
                shown_part,
                shown_case,
                name,
                *(text_of(value) for value in (one.minimum, one.median, one.maximum)),
                measurement.peer.name if measurement.peer and name in ratios else "",
                _ratio_text(ratios.get(name)),
                _goal_text(measurement, name),
                _noise_text(measurement),
            )
            shown_part = shown_case = ""


def _ratio_text(ratio: Spread | None) -> str:
    return "" if ratio is None else f"{text_of(ratio.median)}×"


def _goal_text(measurement: Measurement, name: str) -> str:
    return ", ".join(
        f"{goal.text}{'×' if goal.of == 'ratio' else ''} {'met' if is_met else 'MISSED'}"
        for goal, _, is_met in measurement.judged()
        if goal.figure == name
    )


def _noise_text(measurement: Measurement) -> str:
    noisy, runs = measurement.noisy_runs, len(measurement.all_runs)
    return f"{NOISY} {noisy}/{runs}" if noisy else ""


def table(measurements: Sequence[Measurement], out: TextIO) -> None:
    """Print a table of all figures."""
    found = list(rows(measurements))
    if not found:
        return
    if out.isatty():
        _rich_table(found, out)
        return
    widths = [max(len(row[at]) for row in (HEADS, *found)) for at in range(len(HEADS))]
    for row in (HEADS, *found):
        cells = [
            text.rjust(width) if 3 <= at <= 5 or at == 7 else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.write("  ".join(cells).rstrip() + "\n")


def _rich_table(found: Sequence[tuple[str, ...]], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)
    for at, head in enumerate(HEADS):
        drawn.add_column(head, justify="right" if 3 <= at <= 5 or at == 7 else "left")
    for row in found:
        style = "yellow" if row[-1] else ""
        drawn.add_row(*(Text(cell, style=style) for cell in row))
    Console(file=out).print(drawn)
