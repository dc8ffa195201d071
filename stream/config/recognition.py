"""Tells whether lines have a format, without a JVM.

This module is pure. Each reader (built-in format) has its own test, which gives the same answer as
the SQL that reads its lines. Patterns are evaluated with Python's `re`.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from stream.config.groups import python_pattern
from stream.config.headers import header_names
from stream.config.line_patterns import COMBINED, COMMON, SYSLOG, w3c_pattern

_CONTROL_SEQUENCE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")
# A pair begins only at the beginning of a word. Otherwise a long word would be searched again from
# each of its letters, which takes quadratic time.
_PAIR = re.compile(r'(?<![^\s="])[^\s="]++=(?:"(?:[^"\\]|\\.)*+"|[^\s"]*+)')
_NGINX_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\x([0-9A-Fa-f]{2})")
# The longest field of a CEF header is the class id, with 1,023 characters.
_CEF = re.compile(r"(?:^| )CEF:\d++(?:\|(?:[^|\\]|\\.){0,1023}+){6}", re.DOTALL)

Verdict = bool | None


class Recognised(Protocol):
    """The keys of a format that are needed to recognise its lines."""

    @property
    def reader(self) -> str: ...
    @property
    def pattern(self) -> str | None: ...
    @property
    def signs(self) -> str | None: ...
    @property
    def header(self) -> tuple[str, ...] | None: ...
    @property
    def comment(self) -> str | None: ...
    @property
    def delimiter(self) -> str | None: ...
    @property
    def quote(self) -> str | None: ...


def plain_text(line: str) -> str:
    """Return a line without line end, byte order mark and colours, as `java/Plain.java` does."""
    return _CONTROL_SEQUENCE.sub("", line.removeprefix("\ufeff")).rstrip("\r\n")


class LineTest:
    """The test of one format.

    A verdict is None for a line that does not count: an empty line, a header or a comment.
    """

    def __init__(self, signs: str | None, judge: Callable[[Sequence[str]], list[Verdict]]) -> None:
        self._signs = None if signs is None else re.compile(python_pattern(signs), re.ASCII)
        self._judge = judge

    def verdicts(self, lines: Sequence[str]) -> Iterator[Verdict]:
        """Yield the verdicts on plain lines, in order."""
        for line, verdict in zip(lines, self._judge(lines), strict=True):
            if not line.strip():
                yield None
            elif verdict and self._signs is not None:
                yield self._signs.search(line) is not None
            else:
                yield verdict


def line_test(given: Recognised) -> LineTest:
    """Return the test of a format."""
    judges: dict[str, Callable[[Sequence[str]], list[Verdict]]] = {
        "combined": _by_pattern(COMBINED),
        "common": _by_pattern(COMMON),
        "syslog": _by_pattern(SYSLOG),
        "json": _each(_is_json),
        "logfmt": _each(_is_logfmt),
        "cef": _each(lambda line: _CEF.search(line) is not None),
        "regex": _by_pattern(given.pattern or r"(?!)"),
        "csv": lambda lines: _of_csv(given, lines),
        "w3c": lambda lines: _of_w3c(given, lines),
        "raw": _each(lambda line: True),
    }
    return LineTest(given.signs, judges[given.reader])


def _each(judge: Callable[[str], bool]) -> Callable[[Sequence[str]], list[Verdict]]:
    return lambda lines: [judge(line) for line in lines]


def _by_pattern(pattern: str) -> Callable[[Sequence[str]], list[Verdict]]:
    compiled = re.compile(python_pattern(pattern), re.ASCII)
    return _each(lambda line: compiled.search(line) is not None)


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(_NGINX_ESCAPE.sub(r"\1\\u00\2", line), strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _is_logfmt(line: str) -> bool:
    """Tell whether a line is mostly pairs, because a sentence can contain a single pair."""
    pairs = _PAIR.findall(line)
    return len(pairs) > 1 and 2 * sum(map(len, pairs)) > len(line)


def _fields(given: Recognised, line: str) -> list[str] | None:
    delimiter = given.delimiter or ","
    if given.quote == "none":
        return line.split(delimiter)
    try:
        rows = csv.reader([line], delimiter=delimiter, quotechar=given.quote or '"', strict=True)
        return next(rows, [])
    except csv.Error:
        return None


def _of_csv(given: Recognised, lines: Sequence[str]) -> list[Verdict]:
    """Accept rows that have as many fields as a header.

    Without a header, accept rows with the most common number of fields above one.
    """
    headers = [header_names(header, _Keys(given)) for header in given.header or ()]
    sizes = {len(names) for names in headers}
    rows = [_fields(given, line) for line in lines]
    if not sizes:
        common = Counter(len(row) for row in rows if row is not None and len(row) > 1)
        sizes = {size for size, _ in common.most_common(1)}
    return [
        None if _is_left_out(given, line, row, headers) else row is not None and len(row) in sizes
        for line, row in zip(lines, rows, strict=True)
    ]


def _is_left_out(
    given: Recognised, line: str, row: list[str] | None, headers: Sequence[Sequence[str]]
) -> bool:
    if given.comment is not None and line.startswith(given.comment):
        return True
    names = [field.strip() for field in row or ()]
    return len(names) > 1 and any(names == list(header)[: len(names)] for header in headers)


def _of_w3c(given: Recognised, lines: Sequence[str]) -> list[Verdict]:
    """Accept rows that fit exactly one header; refuse unknown headers. Comments do not count."""
    headers = [header_names(header, _Keys(given)) for header in given.header or ()]
    patterns = [re.compile(python_pattern(w3c_pattern(names, ())), re.ASCII) for names in headers]
    verdicts: list[Verdict] = []
    for line in lines:
        if line.startswith("#Fields:"):
            is_known = line.removeprefix("#Fields:").split() in headers
            verdicts.append(None if is_known else False)
        elif line.startswith("#"):
            verdicts.append(None)
        else:
            verdicts.append(sum(pattern.search(line) is not None for pattern in patterns) == 1)
    return verdicts


class _Keys:
    """The keys of a format, in the form that `header_names` reads."""

    def __init__(self, given: Recognised) -> None:
        self.line_reader = given.reader
        self.delimiter = given.delimiter
        self.quote = given.quote
