"""The collectors of other hosts, as their reports describe them.

This module is pure. Everything in a report is what the collector says of itself. The monitor adds
only the brokers' time of the report. `views/collectors` judges the reports. Times are Unix
milliseconds.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from protocol.collector_report import (
    FENCED,
    STOPPED,
    CollectorReport,
    UnreadableReport,
    decode,
)

COLLECTORS_MAX = 2_000
"""The most collectors that the monitor keeps. Beyond it, the collector goes that has been silent
longest."""


class Health(StrEnum):
    """The state of a collector of another host, the worst first."""

    SILENT = "silent"
    PROBLEM = "problem"
    SKEWED = "wrong clock"
    BEHIND = "behind"
    STOPPED = "stopped"
    WORKING = "working"

    @property
    def is_trouble(self) -> bool:
        """True if the collector needs the user."""
        return self not in (Health.STOPPED, Health.WORKING)


@dataclass(frozen=True, slots=True)
class Heard:
    """The last report of a collector, and the brokers' time of it.

    `fenced_host` is the host of another collector of the same name that has ended because of this
    one; None if there was none.
    """

    report: CollectorReport
    at_ms: int
    fenced_host: str | None = None


@dataclass(frozen=True, slots=True)
class CollectorView:
    """A collector of another host, and its state at the time of a snapshot."""

    report: CollectorReport
    heard_at_ms: int
    health: Health
    silent_ms: int
    text: str
    """What is wrong, as a sentence without its full stop; empty if nothing is."""


@dataclass(slots=True)
class ReportMemory:
    """The last report of each collector. It is filled record by record."""

    heard: dict[str, Heard] = field(default_factory=dict)
    unreadable: int = 0

    def take(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        """Add one record of the topic."""
        name = (key or b"").decode(errors="replace")
        if value is None:
            self.heard.pop(name, None)
            return
        try:
            report = decode(value)
        except UnreadableReport:
            self.unreadable += 1
            return
        if report.instance != name:
            self.unreadable += 1
            return
        before = self.heard.get(name)
        is_fenced = any(one.code == FENCED for one in report.problems)
        if is_fenced and before is not None and before.report.state != STOPPED:
            # Another collector of this name is running. It reports too, so keep its report.
            self.heard[name] = replace(before, fenced_host=report.host)
            return
        fenced_host = None if before is None else before.fenced_host
        if name not in self.heard and len(self.heard) >= COLLECTORS_MAX:
            del self.heard[min(self.heard, key=lambda one: self.heard[one].at_ms)]
        self.heard[name] = Heard(report, at_ms, fenced_host)
