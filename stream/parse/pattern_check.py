"""Asks Java about patterns that a user wrote: whether they compile, and whether they end.

The bridge returns a stack overflow as an error. No line is read.
"""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from stream.config.groups import repeats_groups
from stream.config.patterns import PatternKind, attacks, glob_hint, like_fault, literal_patterns
from stream.parse.columns import RECURSIVE_CHARACTERS_MAX
from stream.parse.fault import Fault, KeyPath

# The length of lines for trying a user's pattern. A pattern on which Java recurses never gets lines
# above RECURSIVE_CHARACTERS_MAX.
_TRIAL_CHARACTERS = 100_000
_TRIALS = ("a", "a ", "1", '"', "\\", 'k="v\\"" ', "[x] ", "/a.b?c=d&")

# The length of a text on which a usual pattern needs some thousand steps. If a pattern exceeds the
# limit of steps (`java/Steps.java`), they double with each character, or grow with the third power.
_ATTACK_CHARACTERS = 500

# The exception of our matcher (`java/Steps.java`).
_TOO_MANY_STEPS = "millrace.Steps$TooMany"

_POSSESSIVE = "possessive repeats such as [^x]*+ instead of repeated groups"


def check_input_pattern(name: str, pattern: str) -> Iterator[Fault]:
    """Check that Java accepts the pattern of an input, and that it survives long lines.

    A pattern that needs too many steps for a line is no fault; such a line does not parse.
    """
    path = ("stream", "from", name, "pattern")
    reason = _compile_fault(pattern)
    if reason is not None:
        yield Fault(path, reason, "a regular expression of Java's")
        return
    length = RECURSIVE_CHARACTERS_MAX if repeats_groups(pattern) else _TRIAL_CHARACTERS
    bounded = _jvm().millrace.BoundedPattern(pattern)
    for piece in _TRIALS:
        reason = _match_fault(bounded, piece * (length // len(piece)))
        if reason is not None and reason != _TOO_MANY_STEPS:
            yield Fault(
                path,
                f"a pattern that fails on a line of {length} characters ({reason})",
                _POSSESSIVE,
            )
            return


def check_literal_patterns(path: KeyPath, text: str) -> Iterator[Fault]:
    """Yield the faults of literal patterns in an expression that Spark has parsed."""
    for one in literal_patterns(text):
        where = f" at character {one.position}"
        if one.kind is PatternKind.LIKE:
            fault = like_fault(one)
            if fault is not None:
                yield Fault(path, fault[0] + where, fault[1])
            continue
        reason = _compile_fault(one.text)
        if reason is not None:
            expected = f"a regular expression of Java's{glob_hint(one.text)}"
            yield Fault(path, f"pattern {one.text!r}{where} ({reason})", expected)


def note_patterns(path: KeyPath, text: str) -> Iterator[Fault]:
    """Yield notes on patterns of an expression that need too many steps on a short text."""
    for one in literal_patterns(text):
        if one.kind is PatternKind.REGEX and _compile_fault(one.text) is None:
            yield from _note_attack(path, one.text, f" at character {one.position}")


def note_input_pattern(name: str, pattern: str) -> Iterator[Fault]:
    """Yield the same note on the pattern of an input."""
    yield from _note_attack(("stream", "from", name, "pattern"), pattern, "")


def _note_attack(path: KeyPath, pattern: str, where: str) -> Iterator[Fault]:
    bounded = _jvm().millrace.BoundedPattern(pattern)
    for text in attacks(pattern, _ATTACK_CHARACTERS):
        if _match_fault(bounded, text) == _TOO_MANY_STEPS:
            yield Fault(
                path,
                f"pattern {pattern!r}{where}, which tries too many ways on a text such as"
                f" {text[:20]!r}… of {len(text)} characters: such a line is not counted",
                "a pattern in which one repeat cannot take what the next one could, such as [^/]*+"
                " in place of .*",
                is_note=True,
            )
            return


def _compile_fault(pattern: str) -> str | None:
    """Return why Java refuses a pattern; None if it accepts it."""
    try:
        _jvm().java.util.regex.Pattern.compile(pattern)
    except (Py4JError, PySparkException) as error:
        return _java_reason(error)
    return None


def _match_fault(bounded: Any, text: str) -> str | None:
    """Return the error of a match: _TOO_MANY_STEPS, or Java's message; None without one."""
    try:
        bounded.isFoundIn(text)
    except (Py4JError, PySparkException) as error:
        is_long = _TOO_MANY_STEPS in str(getattr(error, "java_exception", error))
        return _TOO_MANY_STEPS if is_long else _java_reason(error)
    return None


def _jvm() -> Any:
    jvm = SparkContext._jvm
    assert jvm is not None
    return jvm


def _java_reason(error: Exception) -> str:
    """Return the first line of Java's message; PySpark wraps only some exceptions."""
    text = str(getattr(error, "java_exception", error)).split("PatternSyntaxException: ")[-1]
    return (text.splitlines() or ["no reason given"])[0]
