"""Limits the size of log files.

A part writes directly into its own log file, opened for appending. So no output is lost when the
supervisor dies. A file beyond the limit is copied and then truncated to 0 in place. The few lines
written between the two steps are lost.
"""

import os
import re
import shutil
from pathlib import Path

WORDS_CHARACTERS_MAX = 500
LOG_BYTES_MAX = 16 * 1024 * 1024
TAIL_BYTES_MAX = 64 * 1024
OLD_FILES = 3


_HARMLESS = frozenset({"DEBUG", "INFO", "WARN", "WARNING"})
"""The levels of our parts' log lines that report no error."""

_OF_THE_JVM = ("Warning: ", "WARNING: ")
"""The beginnings of warnings that a JVM prints before its log is set up."""

_FRAME = re.compile(r"\s+(at [\w.$/<>]+\(.*\)|\.\.\. \d+ more)\s*\Z")


def open_log(path: Path) -> int:
    """Open a descriptor for a child's output; each write appends to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)


def rotate(path: Path, bytes_max: int = LOG_BYTES_MAX, old_files: int = OLD_FILES) -> bool:
    """Copy a log that is too large to `.1` and truncate it, after the numbers of older logs were
    increased by one.

    Return True if the log was rotated. Raises OSError if there is no space for the copy. In this
    case nothing has changed.
    """
    try:
        if path.stat().st_size <= bytes_max:
            return False
    except OSError:
        return False
    copy = numbered(path, 0)
    try:
        shutil.copyfile(path, copy)
    except OSError:
        copy.unlink(missing_ok=True)
        raise
    for number in range(old_files - 1, -1, -1):
        older = numbered(path, number)
        if older.exists():
            older.replace(numbered(path, number + 1))
    os.truncate(path, 0)
    return True


def numbered(path: Path, number: int) -> Path:
    """Return the path of an older log. Number 1 is the newest one, and 0 is a copy in progress."""
    return path.with_name(f"{path.name}.{number}")


def tail(path: Path, lines: int, bytes_max: int = TAIL_BYTES_MAX) -> list[str]:
    """Return the last lines of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - bytes_max))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def end_of(said: str, lines: int) -> str:
    """Return the last lines of a process's output, without the frames of Java's stack traces.

    Otherwise the last lines would contain only frames, and not the message of the error.
    """
    told = [line for line in said.splitlines() if line.strip() and not _FRAME.match(line)]
    return "\n".join(told[-lines:])


def last_words(lines: list[str]) -> str | None:
    """Return the text of the last error in a log, without time and part; if there is none, the last
    line.

    Return None if that last line is a record of one of our parts that reports no error, because it
    does not explain why the part ended.
    """
    for line in reversed(lines):
        pieces = line.split(" ", 3)
        if len(pieces) == 4 and pieces[1] in ("ERROR", "CRITICAL"):
            said, _, _ = pieces[3].partition(" traceback=")
            return said[:WORDS_CHARACTERS_MAX]
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if _HARMLESS & set(said.split(" ", 2)[1:2]) or said.startswith(_OF_THE_JVM):
        return None
    return said[:WORDS_CHARACTERS_MAX] or None
