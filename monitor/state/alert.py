"""The data of alerts: kinds, rules, measurements and open alerts.

This module has only data classes. It imports no other module of the monitor, so the configuration
can use the kinds without the snapshot. Times are Unix milliseconds, shares are between 0 and 1.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kind of subject that a rule is about: the values of `on` in the configuration."""

    PART_DOWN = "part_down"
    PART_STUCK = "part_stuck"
    LAG = "lag"
    TIME_LAG = "time_lag"
    DISK_FREE = "disk_free"
    UNPARSED_SHARE = "unparsed_share"
    FILE_STUCK = "file_stuck"
    MOVE_STANDS = "move_stands"
    NO_ROOM_TO_COPY = "no_room_to_copy"
    THROTTLE_LEFT = "throttle_left"
    RACKS_DOUBLED = "racks_doubled"
    TWO_VOTERS = "two_voters"
    LEVEL_NOT_FINALISED = "level_not_finalised"
    COLLECTOR_SILENT = "collector_silent"
    COLLECTOR_SKEW = "collector_skew"


class Unit(StrEnum):
    """The unit of a limit. A flag is 0 or 1, and users set no limit for it."""

    FLAG = "flag"
    OFFSETS = "offsets"
    MILLISECONDS = "ms"
    SHARE = "share"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which the configuration states the limit of a kind: its key, units and an
    example.
    """

    key: str | None
    units: tuple[Unit, ...]
    example: str
    subject: str
    """The word for the subject of an alert of this kind."""


FORMS = {
    Kind.PART_DOWN: Form(None, (Unit.FLAG,), "", "part"),
    Kind.PART_STUCK: Form(None, (Unit.FLAG,), "", "part"),
    Kind.LAG: Form("above", (Unit.OFFSETS,), "100000", "group"),
    Kind.TIME_LAG: Form("above", (Unit.MILLISECONDS,), "10m", "group"),
    Kind.DISK_FREE: Form("below", (Unit.SHARE, Unit.BYTES), "5% or 20GiB", "disk"),
    Kind.UNPARSED_SHARE: Form("above", (Unit.SHARE,), "5%", "stream"),
    Kind.FILE_STUCK: Form(None, (Unit.FLAG,), "", "file"),
    Kind.MOVE_STANDS: Form("above", (Unit.MILLISECONDS,), "5m", "topic"),
    Kind.NO_ROOM_TO_COPY: Form(None, (Unit.FLAG,), "", "broker"),
    Kind.THROTTLE_LEFT: Form(None, (Unit.FLAG,), "", "setting"),
    Kind.RACKS_DOUBLED: Form(None, (Unit.FLAG,), "", "topic"),
    Kind.TWO_VOTERS: Form(None, (Unit.FLAG,), "", "quorum"),
    Kind.LEVEL_NOT_FINALISED: Form("above", (Unit.MILLISECONDS,), "7d", "cluster"),
    Kind.COLLECTOR_SILENT: Form(None, (Unit.FLAG,), "", "collector"),
    Kind.COLLECTOR_SKEW: Form("above", (Unit.MILLISECONDS,), "1m", "collector"),
}

HYSTERESIS = 0.1
"""An alert closes when its value is better than its limit by this share of the limit."""


def subject_pattern(pattern: str) -> str:
    """Return a pattern with `*` and `?` as a regular expression that both Python and Prometheus
    accept.
    """
    return "".join(
        {"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """The condition under which an alert opens and closes.

    An alert opens when the value has breached the limit for `for_ms`, and closes when the value has
    been well within the limit for `clear_ms`. `of` holds the patterns of the subjects' names.
    """

    name: str
    kind: Kind
    limit: float
    unit: Unit
    for_ms: int
    clear_ms: int
    of: tuple[str, ...] = ("*",)

    @property
    def is_below(self) -> bool:
        """True if a value below the limit is a breach."""
        return FORMS[self.kind].key == "below"

    def concerns(self, subject: str) -> bool:
        """Return whether one of the rule's patterns matches a subject's name."""
        return any(re.fullmatch(subject_pattern(one), subject, re.DOTALL) for one in self.of)

    def breached_by(self, value: float) -> bool:
        """Return whether a value breaches the limit."""
        return value < self.limit if self.is_below else value > self.limit

    def cleared_by(self, value: float) -> bool:
        """Return whether a value is so far within the limit that an open alert can close."""
        if self.is_below:
            return value >= self.limit * (1 + HYSTERESIS)
        return value <= self.limit * (1 - HYSTERESIS)


@dataclass(frozen=True, slots=True)
class Observed:
    """The measurement of one subject of a rule. `value` is None if it is unknown."""

    subject: str
    value: float | None
    text: str = ""
    """The fault as a sentence without its full stop."""
    page: str = "/"


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule's alert for one subject, open or closed.

    `offered_at_ms` is when the webhook last sent the alert as open, even if the receiver did not
    accept it. `told_at_ms` is when the receiver last accepted it.
    """

    rule: str
    kind: Kind
    subject: str
    opened_at_ms: int
    text: str
    page: str
    value: float | None = None
    closed_at_ms: int | None = None
    offered_at_ms: int | None = None
    told_at_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """True until the alert closes."""
        return self.closed_at_ms is None


@dataclass(frozen=True, slots=True)
class RuleStanding:
    """The state of a rule: its number of subjects with an open alert, in breach, and unknown.

    A subject in breach has no alert yet, because it has not breached the limit for long enough.
    """

    rule: Rule
    subjects: int
    open: int
    pending: int
    unknown: int
    worst: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of all rules, and all open alerts, oldest first. `unlisted` counts the breaches
    without an alert, because too many alerts are open.
    """

    rules: tuple[RuleStanding, ...] = ()
    open: tuple[Alert, ...] = ()
    unlisted: int = 0


@dataclass(frozen=True, slots=True)
class Digest:
    """The content of one message to the webhook; `repeated` counts the alerts of `opened` that were
    sent before.
    """

    at_ms: int
    opened: tuple[Alert, ...]
    closed: tuple[Alert, ...]
    repeated: int = 0
