"""Numbered access-log lines: a writer with a fixed rate, and the expected counts.

The number of a line determines its whole text. So a test finds the number in a record and can check
the whole record.

    with LoadWriter(folder, rate=5_000) as load: ...
    load.finish()                # completes the last line and returns the next number

To run it as a separate process: `python -m tests.harness.load FOLDER RATE BASE_S SEED`. It
writes until its standard input ends. Then it prints the number after the last line.
"""

import random
import re
import select
import subprocess
import sys
import time
from array import array
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tests.harness import ROOT

FILES = ("a.log", "b.log", "c.log", "d.log")
TICK_S = 0.02
OLD_EVERY = 50
"""One line in fifty is a year old."""
YEAR_S = 365 * 86_400
LINES_PER_SECOND_OF_LOG = 5_000
STATUSES = ("200", "200", "200", "304", "404", "200", "500")
PATHS = 40
ADDRESSES = 200

_NUMBER = re.compile(rb'"load/(\d+)"')


@dataclass(frozen=True, slots=True)
class Line:
    """The fields of one line."""

    at_s: int
    address: str
    path: str
    status: str
    size: int


def line_of(number: int, base_s: int) -> Line:
    """Return the line with a number. `base_s` is the time of line 0, in epoch seconds."""
    at_s = base_s + number // LINES_PER_SECOND_OF_LOG
    if number % OLD_EVERY == 0:
        at_s -= YEAR_S + number % 3_600
    return Line(
        at_s,
        f"192.0.2.{number % ADDRESSES}",
        f"/page/{number * 7 % PATHS}",
        STATUSES[number % len(STATUSES)],
        number * 31 % 99_991,
    )


_clock_texts: dict[int, str] = {}


def _clock(at_s: int) -> str:
    text = _clock_texts.get(at_s)
    if text is None:
        moment = datetime.fromtimestamp(at_s, UTC)
        text = _clock_texts[at_s] = moment.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return text


def text_of(number: int, base_s: int) -> bytes:
    """Return the line's bytes without the line end."""
    line = line_of(number, base_s)
    return (
        f"{line.address} - - [{_clock(line.at_s)}] "
        f'"GET {line.path} HTTP/1.1" {line.status} {line.size} "-" "load/{number}"'
    ).encode()


def number_in(text: bytes, base_s: int) -> int:
    """Return the number of a line. Fail unless the text is exactly the line with that number."""
    found = _NUMBER.search(text)
    number = int(found[1]) if found else -1
    assert number >= 0 and text == text_of(number, base_s), f"no line of the load: {text!r}"
    return number


def write(folder: Path, rate: int, base_s: int, seed: int) -> int:
    """Append lines until standard input ends. Return the number after the last."""
    chance = random.Random(seed)
    files = [(folder / name).open("ab", buffering=0) for name in FILES]
    begin, number = time.monotonic(), 0
    while True:
        stops = bool(select.select([sys.stdin], [], [], TICK_S)[0])
        due = int((time.monotonic() - begin) * rate)
        while number < due:
            end = min(number + chance.randint(1, 200), due)
            data = b"".join(text_of(n, base_s) + b"\n" for n in range(number, end))
            _write_in_pieces(chance.choice(files), data, chance)
            number = end
        if stops:
            return number


def _write_in_pieces(file: BinaryIO, data: bytes, chance: random.Random) -> None:
    """Write the data in two parts, so that a reader can find half a line."""
    cut = chance.randrange(len(data))
    file.write(data[:cut])
    file.write(data[cut:])


class LoadWriter:
    """The writer, run as a separate process."""

    def __init__(self, folder: Path, rate: int, base_s: int, seed: int = 5) -> None:
        self.folder = folder
        self.end = 0
        arguments = [str(folder), str(rate), str(base_s), str(seed)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.load", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def finish(self) -> int:
        """Let the writer complete its last line. Return the number after it."""
        assert self._process.poll() is None, "the writer died"
        out, _ = self._process.communicate(timeout=60)
        self.end = int(out)
        return self.end

    def __enter__(self) -> "LoadWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def written_numbers(folder: Path, base_s: int) -> dict[str, "array[int]"]:
    """Return the numbers in each file, in order."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found[path.name] = array("q", (number_in(line[:-1], base_s) for line in file))
    return found


Cell = tuple[str, int, int, str]
"""metric, window in seconds (0: over all time), start of the window, key."""


@dataclass(slots=True)
class Expected:
    """The cells that the stream must compute from records. `add` counts a record."""

    base_s: int
    sizes_s: tuple[int, ...]
    cells: dict[Cell, Decimal] = field(default_factory=dict)
    addresses: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    _slices: dict[tuple[int, str, str, str], list[int]] = field(default_factory=dict)

    def add(self, number: int, file: str) -> None:
        """Count one record."""
        line = line_of(number, self.base_s)
        start_s = line.at_s - line.at_s % 10
        entry = self._slices.setdefault((start_s, line.status, line.path, file), [0, 0, 0])
        entry[0] += 1
        entry[1] += line.size
        entry[2] = max(entry[2], line.size)
        for size_s in self.sizes_s:
            window = (size_s, line.at_s - line.at_s % size_s if size_s else 0)
            self.addresses.setdefault(window, set()).add(line.address)

    def finish(self) -> dict[Cell, Decimal]:
        """Return the cells of all metrics in METRICS except `visitors`, whose counts are
        estimates."""
        shares: dict[tuple[int, int], list[int]] = {}
        totals: dict[Cell, int] = {}

        def plus(metric: str, window: tuple[int, int], key: str, value: int) -> None:
            cell = (metric, *window, key)
            totals[cell] = totals.get(cell, 0) + value

        for (at_s, status, path, file), (count, size_sum, largest) in self._slices.items():
            for size_s in self.sizes_s:
                window = (size_s, at_s - at_s % size_s if size_s else 0)
                plus("requests_by_status", window, status, count)
                plus("top_paths", window, path, count)
                plus("lines_by_file", window, file, count)
                plus("bytes_by_status", window, status, size_sum)
                cell = ("largest", *window, status)
                totals[cell] = max(totals.get(cell, 0), largest)
                part = shares.setdefault(window, [0, 0])
                part[0] += count * (status == "500")
                part[1] += count
        self.cells = {cell: Decimal(value) for cell, value in totals.items()}
        for window, (failed, count) in shares.items():
            # The stream keeps 18 decimal places of a share of fewer than a million lines, and
            # rounds a tie away from zero.
            share = (Decimal(failed) / Decimal(count)).quantize(
                Decimal("1e-18"), rounding=ROUND_HALF_UP
            )
            self.cells["failures", *window, "*"] = share
        return self.cells


METRICS = """
    - {name: requests_by_status, from: access, key: status, measure: count}
    - {name: top_paths, from: access, key: path, measure: count, top: 10}
    - {name: bytes_by_status, from: access, key: status, measure: sum, value: bytes}
    - {name: largest, from: access, key: status, measure: max, value: bytes}
    - {name: failures, from: access, measure: share, value: 'status >= 500'}
    - {name: visitors, from: access, measure: unique, value: remote_addr}
    - {name: lines_by_file, from: access, key: file, measure: count}
"""


if __name__ == "__main__":
    folder, rate, base_s, seed = sys.argv[1:]
    print(write(Path(folder), int(rate), int(base_s), int(seed)))
