"""The collectors of other hosts, as their reports describe them.

This module is pure. A report is what the collector says of itself. Only its time comes from the
brokers. `views/collectors` judges the reports. Times are Unix milliseconds.
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
"""The most collectors that the monitor keeps. If there are more, it drops the collector whose last
report is the oldest."""


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
        """True if the user must look at the collector."""
        return self not in (Health.STOPPED, Health.WORKING)


@dataclass(frozen=True, slots=True)
class Heard:
    """The last report of a collector, and when the brokers appended it.

    `fenced_host` is the host of another collector of the same name that has ended because of this
    collector; None if there was none. `before` is the process that reported before this one. `twin`
    is the host of a process of the same name with which this one takes turns, and the time.
    """

    report: CollectorReport
    at_ms: int
    fenced_host: str | None = None
    before: tuple[str, int] | None = None
    twin: tuple[str, int] | None = None

    @property
    def process(self) -> tuple[str, int]:
        """The host and the start of the process that reported."""
        return self.report.host, self.report.started_at_ms


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

    def take(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        """Add one record of the topic. Ignore a record that is no report of the collector in its
        key."""
        name = (key or b"").decode(errors="replace")
        if value is None:
            self.heard.pop(name, None)
            return
        try:
            report = decode(value)
        except UnreadableReport:
            return
        if report.instance != name:
            return
        before = self.heard.get(name)
        is_fenced = any(one.code == FENCED for one in report.problems)
        if is_fenced and before is not None and before.report.state != STOPPED:
            # Another collector of this name is running. It reports too, so keep its report.
            self.heard[name] = replace(before, fenced_host=report.host)
            return
        if name not in self.heard and len(self.heard) >= COLLECTORS_MAX:
            del self.heard[min(self.heard, key=lambda one: self.heard[one].at_ms)]
        heard = Heard(report, at_ms)
        if before is not None:
            heard = replace(before, report=report, at_ms=at_ms)
            if heard.process != before.process:
                # A process that is back after another one has reported has not ended.
                is_back = heard.process == before.before
                twin = (before.report.host, at_ms) if is_back else before.twin
                heard = replace(heard, before=before.process, twin=twin)
        self.heard[name] = heard
