"""The configuration of multi-line events: a pattern or preset that tells where events begin.

This module is pure. The pattern is searched in each line without its line end. Whether a line
begins an event depends only on that line and the line before it. So the events are the same however
the file is divided into reads. The first line after the end of an event always begins a new event.
So the position at the end of an event is enough to continue after a restart.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class By(StrEnum):
    """The meaning of a match of the pattern: the line begins, continues or ends an event."""

    START = "start"
    CONTINUE = "continue"
    END = "end"
    PARTIAL = "partial"  # the line is a part of a longer one, see `text/partial`


# Patterns of the lines in a stack trace, except its first line if that is a log line. All of these
# patterns match indented lines.
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

# Patterns for the logs of container runtimes, which write a long line in parts. Both patterns have
# the groups `stream` and `text`. The bytes around `text` are the line's frame. In CRI the tag P
# marks a part that is followed by another part. In Docker's logs `text` is a JSON string, which
# ends in \n if it is the last part of its line.
PARTIAL_PRESETS = {
    "cri": r"^\S+ (?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? (?P<text>.*)$",
    "docker": (
        r'^\{"log":"(?P<text>(?:[^"\\]|\\.)*)"'
        r'(?=[,}])(?:.*?"stream":"(?P<stream>[^"]*)")?'
    ),
}


@dataclass(frozen=True, slots=True)
class EventRules:
    """The rules by which the lines of an input form events.

    `max_bytes` limits the size of an event in the file, including line ends. The last event of a
    file is complete when the file has not grown for `max_age_ms`.
    """

    by: By
    pattern: re.Pattern[str]
    max_lines: int
    max_bytes: int
    max_age_ms: int

    def begins(self, lines: Sequence[str]) -> list[bool]:
        """Return for each line whether it begins an event; the first line always does."""
        found = [self.pattern.search(line) is not None for line in lines]
        if self.by is By.START:
            return [True, *found[1:]]
        if self.by is By.CONTINUE:
            return [True, *(not continues for continues in found[1:])]
        return [True, *found[:-1]]

    def ends(self, line: str) -> bool:
        """Tell whether this line ends its event, so that no later line belongs to the event."""
        return self.by is By.END and self.pattern.search(line) is not None
