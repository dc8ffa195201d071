"""Joins lines into events by the rules of the collector, and finds the rule that a log needs.

This module is pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.config.multiline import PRESETS, By, EventRules
from collector.config.multiline_section import MultilineSection

Rule = str | Mapping[str, object]
"""The value of `multiline` of an input: the name of a preset, or its keys."""

TRACE_SIGNS = {
    "java": re.compile(r"^(?:\s+at [\w$.<>/]+\(|Caused by: |\s+\.\.\. \d+ (?:more|common))"),
    "python": re.compile(r'^(?:Traceback \(most recent call last\):|  File ".*", line \d+)'),
    "go": re.compile(r"^(?:goroutine \d+ \[|\t\S+\.go:\d+)"),
}
_CONTINUES = re.compile(r"^(?:[ \t]|Caused by: |Traceback |goroutine )")


@dataclass(frozen=True, slots=True)
class LineEvent:
    """The lines of one event: their text, the number of the first line (from 1), and the number of
    lines."""

    first: int
    size: int
    text: str


def rules_of(rule: Rule) -> EventRules:
    """Return a rule of the configuration in the form that joins lines."""
    said = {"preset": rule} if isinstance(rule, str) else dict(rule)
    return MultilineSection.model_validate(said).rules()


def joined(lines: Sequence[str], rule: Rule | None, first: int = 1) -> list[LineEvent]:
    """Join lines to events. Without a rule each line is an event.

    Partial lines of container logs are not joined, because each of them has the whole format.
    """
    rules = None if rule is None else rules_of(rule)
    if rules is None or rules.by is By.PARTIAL or not lines:
        return [LineEvent(first + at, 1, line) for at, line in enumerate(lines)]
    begins = [at for at, begin in enumerate(rules.begins(lines)) if begin]
    ends = [*begins[1:], len(lines)]
    return [
        LineEvent(first + at, end - at, "\n".join(lines[at:end]) if end - at > 1 else lines[at])
        for at, end in zip(begins, ends, strict=True)
    ]


def likely_presets(lines: Sequence[str]) -> list[str]:
    """Return the presets whose typical lines occur. The preset with the most such lines comes
    first."""
    if not any(_CONTINUES.match(line) for line in lines):
        return []
    found = {
        name: sum(sign.match(line) is not None for line in lines)
        for name, sign in TRACE_SIGNS.items()
    }
    return sorted((name for name in PRESETS if found[name]), key=lambda name: -found[name])


def stretches(events: Sequence[LineEvent], most: int) -> list[tuple[int, int]]:
    """Return the numbers of the first and the last line of at most `most` events with several
    lines."""
    long = [event for event in events if event.size > 1]
    return [(event.first, event.first + event.size - 1) for event in long[:most]]
