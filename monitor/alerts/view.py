"""Alerts and rules as text for the page, and as rows for the API.

This module is pure: it reads only a snapshot.
"""

from dataclasses import dataclass

from monitor.alerts.kinds import KINDS, limit_text, shown
from monitor.state.alert import Alert, Kind, RuleStanding, Unit
from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.findings import GLYPHS

Row = dict[str, object]

SUBJECTS_WITH_FAULTS = (
    Kind.FILE_STUCK,
    Kind.MOVE_STANDS,
    Kind.THROTTLE_LEFT,
    Kind.RACKS_DOUBLED,
)
"""The kinds that measure only subjects with the fault, or with work that can have the fault. If
such a kind has no subject, all is well.
"""


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule as text, and its state.

    `level` and `state` are the colour and the word of its badge.
    """

    name: str
    words: str
    limit: str
    held_for: str
    clear: str
    of: str
    level: str
    state: str
    now: str


@dataclass(frozen=True, slots=True)
class AlertView:
    """An open alert as text for the page."""

    rule: str
    subject: str
    since: str
    at_ms: int
    text: str
    page: str
    told: str


def rule_views(snapshot: Snapshot) -> list[RuleView]:
    """Return the rules in the order of the configuration file."""
    return [_rule(one) for one in snapshot.alerts.rules]


def alert_views(snapshot: Snapshot, *, has_webhook: bool) -> list[AlertView]:
    """Return the open alerts, oldest first."""
    now_ms = snapshot.taken_at_ms
    return [
        AlertView(
            one.rule,
            one.subject,
            render.duration(now_ms - one.opened_at_ms),
            one.opened_at_ms,
            one.text,
            one.page,
            _told(one, now_ms) if has_webhook else "no webhook",
        )
        for one in snapshot.alerts.open
    ]


def alert_rows(snapshot: Snapshot) -> list[Row]:
    """Return the open alerts for the API."""
    return [
        {
            "rule": one.rule,
            "on": str(one.kind),
            "subject": one.subject,
            "text": one.text,
            "value": one.value,
            "opened_at": render.clock(one.opened_at_ms),
            "opened_at_ms": one.opened_at_ms,
            "told_at_ms": one.told_at_ms,
            "page": one.page,
        }
        for one in snapshot.alerts.open
    ]


def rule_rows(snapshot: Snapshot) -> list[Row]:
    """Return the rules for the API; times in milliseconds, shares between 0 and 1."""
    return [
        {
            "rule": one.rule.name,
            "on": str(one.rule.kind),
            "limit": None if one.rule.unit is Unit.FLAG else one.rule.limit,
            "unit": None if one.rule.unit is Unit.FLAG else str(one.rule.unit),
            "for_ms": one.rule.for_ms,
            "clear_ms": one.rule.clear_ms,
            "of": ", ".join(one.rule.of),
            "subjects": one.subjects,
            "open": one.open,
            "pending": one.pending,
            "unknown": one.unknown,
            "worst": one.worst,
        }
        for one in snapshot.alerts.rules
    ]


def _rule(one: RuleStanding) -> RuleView:
    rule = one.rule
    level, state = "good", "well"
    if one.open:
        level, state = "bad", f"{one.open} open"
    elif one.pending:
        level, state = "warn", f"{one.pending} about to open"
    elif one.unknown and one.worst is None:
        level, state = "unknown", "not known"
    elif not one.subjects and rule.kind not in SUBJECTS_WITH_FAULTS:
        level, state = "idle", "nothing to watch"
    now = "–" if rule.unit is Unit.FLAG or one.worst is None else shown(rule.unit, one.worst)
    assert level in GLYPHS, "the page has a sign for it"
    return RuleView(
        rule.name,
        KINDS[rule.kind].words,
        limit_text(rule) or "–",
        render.duration(rule.for_ms),
        render.duration(rule.clear_ms),
        ", ".join(rule.of),
        level,
        state,
        now,
    )


def _told(alert: Alert, now_ms: int) -> str:
    """Return a sentence on whether the webhook's receiver has accepted an alert."""
    if alert.told_at_ms is None:
        return "not yet"
    return f"{render.duration(now_ms - alert.told_at_ms)} ago"
