"""The output of commands: data on standard output, everything else on standard error.

Rows are printed as a table on a terminal, and as plain aligned text in a pipe. On request, data is
printed as JSON in one envelope. Text from outside is never parsed as markup, and control characters
in it are never printed to the terminal.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from protocol.log import escape

if TYPE_CHECKING:
    from rich.table import Table


class Exit(IntEnum):
    """The exit codes, which are the same for every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONDITION = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    TIMEOUT = 124
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class CommandError(Exception):
    """Raised when a command cannot do what it was asked to do. The text says why and what to do."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


def out(text: str = "") -> None:
    """Print one line of data."""
    sys.stdout.write(text + "\n")


def say(text: str = "") -> None:
    """Print one line for the person at the terminal."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def is_terminal() -> bool:
    """Return whether data goes to a terminal."""
    return sys.stdout.isatty()


def print_json(schema: str, data: Any, errors: Sequence[str] = (), **more: Any) -> None:
    """Print data in the JSON envelope that every command uses. `more` has additional keys of the
    envelope."""
    now_ms = round(time.time() * 1000)
    envelope = {
        "schema": schema,
        "ts": utc_text(now_ms),
        "ts_ms": now_ms,
        "data": data,
        "errors": list(errors),
        **more,
    }
    out(json.dumps(envelope, ensure_ascii=False))
    sys.stdout.flush()


def tell(words: str, schema: str, data: Any, as_json: bool) -> None:
    """Print the result of a command: a sentence, or with `as_json` the data in the envelope."""
    if as_json:
        print_json(schema, data)
    else:
        say(words)


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()
) -> None:
    """Print rows under heads; columns in `right` are aligned to the right."""
    clean = [[escape(cell) for cell in row] for row in rows]
    if is_terminal() and not os.environ.get("NO_COLOR"):
        from rich.console import Console

        Console().print(rich_table(heads, clean, right))
        return
    out(plain_table(heads, clean, right))


PADDED_MAX = 60
PADDED_MAX_OF_LONG = 160
"""The largest width of a column in which most cells are long, such as paths."""


def plain_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> str:
    """Return aligned text with two blanks between columns. No cell is shortened.

    A cell that is wider than its column shifts only the following cells of its own line.
    """
    lines = [heads, *rows]
    widths = [
        _width(len(heads[column]), [len(row[column]) for row in rows])
        for column in range(len(heads))
    ]
    text = []
    for line in lines:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def _width(head: int, cells: Sequence[int]) -> int:
    """Return the width of a column for cells of these lengths."""
    long = sum(1 for cell in cells if cell > PADDED_MAX)
    limit = PADDED_MAX_OF_LONG if long > len(cells) / 2 else PADDED_MAX
    return max([head, *(cell for cell in cells if cell <= limit)])


_STYLES = {
    "healthy": "green",
    "ok": "green",
    "failed": "bold red",
    "unhealthy": "red",
    "backing off": "yellow",
    "starting": "yellow",
    "warning": "yellow",
}


def rich_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[int] = frozenset(),
    *,
    folds: bool = True,
) -> "Table":
    """Return cells as a table for a terminal, without control characters.

    A cell that is too long continues on the next line or, with `folds=False`, is shortened with an
    ellipsis.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, head in enumerate(heads):
        table.add_column(
            head,
            justify="right" if column in right else "left",
            overflow="fold" if folds else "ellipsis",
            no_wrap=not folds,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return table


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 file, 2 files."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def utc_text(moment_ms: int) -> str:
    """Format a time as RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def duration_text(duration_ms: float | None) -> str:
    """Format a duration in its two largest units."""
    if duration_ms is None:
        return "-"
    seconds = int(duration_ms // 1000)
    for size, large, small_size, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m")):
        if seconds >= size:
            return f"{seconds // size}{large} {seconds % size // small_size}{small}"
    return f"{seconds // 60}m {seconds % 60}s" if seconds >= 60 else f"{seconds}s"


def size_text(size_bytes: int | None) -> str:
    """Format a size in bytes, KiB, MiB or GiB. Only a size of 0 is shown as 0."""
    if size_bytes is None:
        return "-"
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.1f} GiB"
    if size_bytes >= 1 << 20:
        return f"{size_bytes / (1 << 20):.0f} MiB"
    if size_bytes >= 1 << 10:
        return f"{size_bytes / (1 << 10):.0f} KiB"
    return "0 MiB" if size_bytes == 0 else f"{size_bytes} bytes"
