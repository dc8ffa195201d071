"""The configuration of multi-line events: a pattern or preset that tells where events begin.

Room: ground of the room. Pure. The pattern is searched in each line without its line end. Whether
a line begins an event depends only on that line and the one before it, so events do not depend on
how the file was read. The first line after an event's end always begins a new event. So a restart
needs nothing but a position at the end of an event.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class By(StrEnum):
    """What a match of the pattern says about a line."""

    START = "start"
    CONTINUE = "continue"
    END = "end"
    PARTIAL = "partial"  # the line is a part of a longer one, see `text/partial`


# Lines that follow the first line of a stack trace, whether or not it stands below a log line.
# All patterns accept indented lines.
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

# The logs of container runtimes, which write a long line in parts. Both patterns have the groups
# `stream` and `text`; the bytes around `text` are the line's frame. In CRI the tag P marks a part
# that another follows. Docker's text is a JSON string, and that of a whole line ends in \n.
PARTIAL_PRESETS = {
    "cri": r"^\S+ (?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? (?P<text>.*)$",
    "docker": (
        r'^\{"log":"(?P<text>(?:[^"\\]|\\.)*)"'
        r'(?=[,}])(?:.*?"stream":"(?P<stream>[^"]*)")?'
    ),
}


@dataclass(frozen=True, slots=True)
class EventRules:
    """The rules of an input for events. `max_bytes` counts the source's bytes with line ends.

    The last event is complete after `max_age_ms` in which the file did not grow.
    """

    by: By
    pattern: re.Pattern[str]
    max_lines: int
    max_bytes: int
    max_age_ms: int

    def begins(self, lines: Sequence[str]) -> list[bool]:
        """Tell for each line whether it begins an event; the first line always does."""
        found = [self.pattern.search(line) is not None for line in lines]
        if self.by is By.START:
            return [True, *found[1:]]
        if self.by is By.CONTINUE:
            return [True, *(not continues for continues in found[1:])]
        return [True, *found[:-1]]

    def ends(self, line: str) -> bool:
        """Tell whether this line ends its event, so that no later line belongs to it."""
        return self.by is By.END and self.pattern.search(line) is not None
