"""Regular expressions of users: their groups, and the notations of Java and Python.

This module is pure and needs no JVM. Patterns have the syntax of Java. This module translates the
notations of RE2, Python, Rust and .NET for named groups into Java's. It also renames groups with an
underscore in their name, because Java refuses these.
"""

import re
from collections.abc import Collection, Iterator
from enum import Enum, auto

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_OPENING = re.compile(r"\(\?P?<(?![=!])([^<>()]*)>|\(\?'([^'()]*)'")
_REFERENCE = re.compile(rf"\(\?P=({_NAME})\)")
_BACK_REFERENCE = re.compile(rf"\\k(?:<({_NAME})>|{{({_NAME})}}|'({_NAME})')")
# Syntax that Python lacks, or that means something else in Python.
_JAVA_ALONE = (r"\p", r"\P", r"\h", r"\H", r"\R", r"\X", r"\G", r"\Q", r"\e", "&&")
_JAVA_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*\Z")


class _Where(Enum):
    """The kind of text at a position in a pattern."""

    PLAIN = auto()
    ESCAPE = auto()
    CLASS = auto()
    ESCAPE_IN_CLASS = auto()
    QUOTED = auto()


class PatternFault(ValueError):
    """The error for a fault of a pattern: what was found, and what was expected."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.found = found
        self.expected = expected


def group_names(pattern: str) -> list[str]:
    """Return the names of a pattern's groups, in order. Escaped and quoted text is ignored.

    Raises PatternFault for a name that no notation allows, and for a name given twice.
    """
    names: list[str] = []
    for place in _syntax(pattern):
        match = _OPENING.match(pattern, place)
        if match is None:
            continue
        name = match[1] if match[1] is not None else match[2]
        if not re.fullmatch(_NAME, name):
            raise PatternFault(
                f"group name {name!r}", "letters, digits and _, not a digit first: (?<name>…)"
            )
        if name in names:
            raise PatternFault(f"group {name!r} twice", "each name once")
        names.append(name)
    return names


def java_pattern(pattern: str) -> tuple[str, dict[str, str]]:
    """Return a pattern in Java's notation, and Java's name for each of the user's groups."""
    names = group_names(pattern)
    java_names = {name: name for name in names if _JAVA_NAME.match(name)}
    for number, name in enumerate(names):
        if name not in java_names:
            java_names[name] = _unused(f"g{number}", java_names.values())
    return _translated(pattern, java_names, "(?<{}>", "\\k<{}>"), java_names


def python_pattern(pattern: str) -> str:
    """Return a pattern in Python's notation, to be compiled with the flag `re.ASCII`.

    Raises PatternFault for syntax that Python lacks.
    """
    names = {name: name for name in group_names(pattern)}
    for place, _ in _places(pattern):
        for foreign in _JAVA_ALONE:
            if pattern.startswith(foreign, place):
                raise PatternFault(foreign, "syntax that Python supports too")
    translated = _translated(pattern, names, "(?P<{}>", "(?P={})")
    return re.sub(r"\\z", r"\\Z", translated)


def repeats_groups(pattern: str) -> bool:
    """Tell whether a Java pattern repeats a group by a repeat that is not possessive.

    Java matches such a repeat by recursion, which uses stack for every repetition.
    """
    repeated = re.compile(r"\)(?:[*+]|\{[0-9]+,[0-9]*\}|\{[0-9]{2,}\})(?!\+)")
    return any(repeated.match(pattern, place) for place in _syntax(pattern))


def _unused(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "x"
    return name


def _translated(pattern: str, names: dict[str, str], opening: str, reference: str) -> str:
    """Return a pattern with its groups, and the references to them, in another notation."""
    made: list[str] = []
    copied = 0
    for place, where in _places(pattern):
        if where not in (_Where.PLAIN, _Where.ESCAPE):
            continue
        match = (
            _OPENING.match(pattern, place)
            or _REFERENCE.match(pattern, place)
            or _BACK_REFERENCE.match(pattern, place)
        )
        if match is None:
            continue
        name = next(group for group in match.groups() if group is not None)
        spelling = opening if match.re is _OPENING else reference
        made += [pattern[copied:place], spelling.format(names.get(name, name))]
        copied = match.end()
    return "".join(made) + pattern[copied:]


def _syntax(pattern: str) -> Iterator[int]:
    """Yield the positions outside of escapes, quoted text and character classes."""
    return (place for place, where in _places(pattern) if where is _Where.PLAIN)


def _places(pattern: str) -> Iterator[tuple[int, _Where]]:
    position = in_class = 0
    while position < len(pattern):
        here = pattern[position]
        if pattern.startswith("\\Q", position):
            yield position, _Where.QUOTED
            end = pattern.find("\\E", position + 2)
            position = len(pattern) if end < 0 else end + 2
            continue
        if here == "\\":
            yield position, _Where.ESCAPE_IN_CLASS if in_class else _Where.ESCAPE
            position += 2
            continue
        if here == "[":
            in_class += 1
        elif here == "]" and in_class:
            in_class -= 1
        else:
            yield position, _Where.CLASS if in_class else _Where.PLAIN
        position += 1
