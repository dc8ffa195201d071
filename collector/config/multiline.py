"""Multi-line events as configured: which line begins one, by a pattern or a preset.

Floor: ground of the room. Pure. A pattern is searched in each line without its line end; whether a
line begins an event is asked of it and of the line before it, so an event is the same whatever was
read in one go. The first line behind an event's end begins the next one whatever it looks like:
so a position that is such an end is all that a restart needs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class By(StrEnum):
    """What the pattern tells of a line."""

    START = "start"
    CONTINUE = "continue"
    END = "end"
    PARTIAL = "partial"  # the line is a part of a longer one, see `text/partial`


# What follows the first line of a trace, as it is printed below a log line or by itself. All of
# them take indented lines.
_JAVA = (
    r"^(?:[ \t]|Caused by: |Suppressed: "
    r"|(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable)\b)"
)
_PYTHON = (
    r"^(?:[ \t]|$|Traceback \(most recent call last\):"
    r"|During handling of the above exception|The above exception was the direct cause"
    r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit|Iteration|Group)(?::|$)"
    r"|(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?::|$))"
)
_GO = (
    r"^(?:[ \t]|$|goroutine \d+.*\[|created by |\[signal |\[recovered\]|exit status "
    r"|panic\(|[\w./%~-]+\.(?:\(\*?[^)\s]+\)\.)?[^\s(]+\(.*\)$)"
)
INDENTED = r"^[ \t]"
PRESETS = {"java": _JAVA, "python": _PYTHON, "go": _GO}

# The logs of container runtimes, which write a long line in parts. Both have the groups `stream`
# and `text`; what stands before and behind `text` is the line's frame. In CRI the tag P marks a
# part that another follows. Docker's text is a JSON string, and that of a whole line ends in \n.
PARTIAL_PRESETS = {
    "cri": r"^\S+ (?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? (?P<text>.*)$",
    "docker": (
        r'^\{"log":"(?P<text>(?:[^"\\]|\\.)*)"'
        r'(?=[,}])(?:.*?"stream":"(?P<stream>[^"]*)")?'
    ),
}


@dataclass(frozen=True, slots=True)
class EventRules:
    """An input's rules for events. `max_bytes` counts the source's bytes, line ends included.

    After `max_age_ms` without another byte in the file the last event is taken to be whole.
    """

    by: By
    pattern: re.Pattern[str]
    max_lines: int
    max_bytes: int
    max_age_ms: int

    def begins(self, lines: Sequence[str]) -> list[bool]:
        """Whether each line but the first begins an event; of the first that is certain."""
        found = [self.pattern.search(line) is not None for line in lines]
        if self.by is By.START:
            return [True, *found[1:]]
        if self.by is By.CONTINUE:
            return [True, *(not continues for continues in found[1:])]
        return [True, *found[:-1]]

    def ends(self, line: str) -> bool:
        """Whether no line after this one can belong to its event."""
        return self.by is By.END and self.pattern.search(line) is not None
