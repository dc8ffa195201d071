"""Any number of lines of the shipped formats, each with its expected columns.

The lines of `tests/fixtures/formats` are repeated with one changed number or word. A changed number
is the whole value of a column and keeps its number of digits. A changed word is part of a message.
The number or word occurs only once in the line, so the columns of the new line are known without a
parser.
"""

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from stream.config.format_files import shipped_names

Row = dict[str, str | None]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"
# `tsv` has no columns unless the user declares a header.
NAMES = tuple(name for name in shipped_names() if name != "tsv")
"""The shipped formats that have columns."""

# The columns that an input declares for formats that have no fixed columns.
TEXTS = {name: f"{name} string" for name in ("level", "message", "msg", "src", "dst")}
INPUTS: dict[str, dict[str, Any]] = {
    "json": {"time": ["@timestamp", "timestamp", "time", "ts", "eventTime"], "columns": TEXTS},
    "logfmt": {"time": ["ts", "time"], "columns": TEXTS},
    "cef": {"time": "rt", "columns": TEXTS},
}
"""The keys of an input of each format that needs more than its name."""

VALUES = 50
"""The number of values of each changed place, so few that keys repeat."""

_MESSAGES = ("message", "msg", "log", "name")
_NUMBER = re.compile(r"[1-9][0-9]{1,8}\Z")
_WORD = re.compile(r"(?<![^ ])[a-z]{4,12}(?![^ ])")


@cache
def samples(name: str) -> list[tuple[str, Row]]:
    """Return the lines of a format in the fixtures, with their columns."""
    rows = (FIXTURES / f"{name}.jsonl").read_text().removesuffix("\n").split("\n")
    return [(line, row) for line, row in map(json.loads, rows)]


@cache
def counted_columns(name: str) -> list[str]:
    """Return up to two columns for use as keys: those with the most different values, among the
    columns that every line has."""
    values: dict[str, set[str | None]] = {}
    for _, row in generated(name, 1_000, seed=1):
        for column, value in row.items():
            values.setdefault(column, set()).add(value)
    rows = [row for _, row in samples(name)]
    usable = [one for one in values if one != "time" and all(one in row for row in rows)]
    return sorted(usable, key=lambda column: (-len(values[column]), column))[:2]


def generated(name: str, count: int, seed: int) -> Iterator[tuple[str, Row]]:
    """Yield this number of lines of a format, with their columns."""
    chance = random.Random(f"{name}:{seed}")
    given = [(line, row, changeable(line, row)) for line, row in samples(name)]
    for _ in range(count):
        line, row, places = chance.choice(given)
        if places:
            column, old = chance.choice(places)
            new = _another(old, chance.randrange(VALUES))
            line = line.replace(old, new)
            row = {**row, column: (row[column] or "").replace(old, new)}
        yield line, row


def changeable(line: str, row: Row) -> list[tuple[str, str]]:
    """Return the texts of a line that can be changed, each with the only column that contains
    it."""
    found = []
    for column, value in row.items():
        texts = _WORD.findall(value or "") if column in _MESSAGES else []
        if _NUMBER.match(value or "") and len(re.findall(_alone(value or ""), line)) == 1:
            texts.append(value or "")
        for text in texts:
            holders = [one for one, other in row.items() if other and text in other]
            if line.count(text) == 1 and holders == [column] and (value or "").count(text) == 1:
                found.append((column, text))
    return found


def _another(text: str, number: int) -> str:
    """Return a number with as many digits, or another word."""
    if text.isdigit():
        least: int = 10 ** (len(text) - 1)
        return str(least + number % (9 * least))
    return text[:-2] + chr(ord("a") + number % 7) + chr(ord("a") + number // 7)


def _alone(number: str) -> str:
    return rf"(?<![\w.:/-]){re.escape(number)}(?![\w.:/-])"
