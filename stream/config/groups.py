"""Regular expressions as users write them: their groups, and how Java and Python spell them.

Ground of `stream`. Pure, no JVM. Patterns are Java's. The spellings of named groups that RE2,
Python, Rust and .NET have are translated, and so are names with an underscore, which Java refuses.
"""

import re
from collections.abc import Collection, Iterator
from enum import Enum, auto

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_OPENING = re.compile(r"\(\?P?<(?![=!])([^<>()]*)>|\(\?'([^'()]*)'")
_REFERENCE = re.compile(rf"\(\?P=({_NAME})\)")
_BACK_REFERENCE = re.compile(rf"\\k(?:<({_NAME})>|{{({_NAME})}}|'({_NAME})')")
# What Java knows and Python does not, or knows as something else.
_JAVA_ALONE = (r"\p", r"\P", r"\h", r"\H", r"\R", r"\X", r"\G", r"\Q", r"\e", "&&")
_JAVA_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*\Z")


class _Where(Enum):
    """What a place of a pattern belongs to."""

    PLAIN = auto()
    ESCAPE = auto()
    CLASS = auto()
    ESCAPE_IN_CLASS = auto()
    QUOTED = auto()


class PatternFault(ValueError):
    """What was found in a pattern and what was expected."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.found = found
        self.expected = expected


def group_names(pattern: str) -> list[str]:
    """The named groups of a pattern, in order; escaped and quoted text is passed over.

    Raises PatternFault for a name that no spelling allows, and for a name given twice.
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
    """A pattern as Java reads it, and what each group of the user's is called there."""
    names = group_names(pattern)
    java_names = {name: name for name in names if _JAVA_NAME.match(name)}
    for number, name in enumerate(names):
        if name not in java_names:
            java_names[name] = _unused(f"g{number}", java_names.values())
    return _translated(pattern, java_names, "(?<{}>", "\\k<{}>"), java_names


def python_pattern(pattern: str) -> str:
    """A pattern as Python reads it, to be compiled with `re.ASCII`.

    Raises PatternFault for what Python has no spelling for.
    """
    names = {name: name for name in group_names(pattern)}
    for place, _ in _places(pattern):
        for foreign in _JAVA_ALONE:
            if pattern.startswith(foreign, place):
                raise PatternFault(foreign, "a pattern that Python has a spelling for, too")
    translated = _translated(pattern, names, "(?P<{}>", "(?P={})")
    return re.sub(r"\\z", r"\\Z", translated)


def repeats_groups(pattern: str) -> bool:
    """Whether a Java pattern repeats a group otherwise than possessively: Java recurses then."""
    repeated = re.compile(r"\)(?:[*+]|\{[0-9]+,[0-9]*\}|\{[0-9]{2,}\})(?!\+)")
    return any(repeated.match(pattern, place) for place in _syntax(pattern))


def _unused(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "x"
    return name


def _translated(pattern: str, names: dict[str, str], opening: str, reference: str) -> str:
    """A pattern with its groups, and what refers to them, spelled another way."""
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
    """The places of a pattern outside of escapes, quoted text and character classes."""
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
