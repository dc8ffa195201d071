"""The faults of a configuration, and their texts: all faults at once, one line for each.

This module has only data classes. A fault names its position, the key, what was found and what was
expected, so that the user can correct it without looking anything up.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""The path of a value in the document: keys, and positions in lists counted from 0."""

FOUND_CHARACTERS_MAX = 80


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One fault. Lines and columns are numbered from 1; they are 0 if the value does not come from
    a file."""

    source: str
    line: int
    column: int
    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        return f"{where}: {self.key}: found {self.found}, expected {self.expected}"


class ConfigFaults(Exception):
    """The error for a configuration that cannot be used. `faults` has everything that is wrong."""

    def __init__(self, faults: Iterable[ConfigFault]) -> None:
        self.faults = sorted(set(faults), key=lambda f: (f.source, f.line, f.column, f.key))
        super().__init__("\n".join(str(fault) for fault in self.faults))


def key_text(path: Path) -> str:
    """Format a path as people write it: `stream.metrics[2].where`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text or "(the file)"


def found_text(value: object) -> str:
    """Format a value for a fault: short, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = repr(value)
    if len(text) > FOUND_CHARACTERS_MAX:
        text = text[:FOUND_CHARACTERS_MAX] + "…"
    return text


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return the end of a sentence with the known word that is closest to a mistyped one.

    Return an empty text if no word is close.
    """
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
