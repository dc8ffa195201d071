"""Checks patterns that a user wrote, in Java: whether they compile, and how long they can take.

The patterns are tried on texts made for this check, not on lines of the topics. A stack overflow in
the JVM comes back as an error of the call.
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

# The length of the texts on which a user's pattern is tried. A pattern that Java matches by
# recursion is tried on shorter texts, because it never gets a line above RECURSIVE_CHARACTERS_MAX.
_TRIAL_CHARACTERS = 100_000
_TRIALS = ("a", "a ", "1", '"', "\\", 'k="v\\"" ', "[x] ", "/a.b?c=d&")

# The length of a text on which a usual pattern needs some thousand steps. A pattern that exceeds
# the limit of steps (`java/Steps.java`) on such a text needs twice as many for each additional
# character, or its steps grow with the third power of the length.
_ATTACK_CHARACTERS = 500

# The Java exception that our matcher raises when it exceeds its limit of steps.
_TOO_MANY_STEPS = "millrace.Steps$TooMany"

_POSSESSIVE = "possessive repeats such as [^x]*+ instead of repeated groups"


def check_input_pattern(name: str, pattern: str) -> Iterator[Fault]:
    """Check that Java accepts the pattern of an input, and that it survives long lines.

    Too many steps on a text are not a fault here, because only the affected line is not counted.
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
    """Yield a note if the pattern of an input needs too many steps on a short text."""
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
    """Match a text; return _TOO_MANY_STEPS, or Java's message, or None if there was no error."""
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
    """Return the first line of Java's message, whether or not PySpark has wrapped the exception."""
    text = str(getattr(error, "java_exception", error)).split("PatternSyntaxException: ")[-1]
    return (text.splitlines() or ["no reason given"])[0]
