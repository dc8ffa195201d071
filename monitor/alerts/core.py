"""The rules of alerts: which alerts open and close, and what the webhook must be sent.

This module is pure: the time of each check is an argument. An alert opens when its limit has been
exceeded for the rule's `for`. It closes when the value has been well within the limit for the
rule's `clear`. An unknown value neither opens an alert nor closes one. When a subject no longer
exists, such as a deleted group, its alerts close.

There is no queue. Each alert records the state that the receiver was last sent, and a message has
the changes since then. So a receiver that was unreachable for hours gets one message with the
current state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from monitor.state.alert import Alert, Digest, Observed, Rule, RuleStanding, Standing

ALERTS_MAX = 500
"""The most open alerts that are kept. Further breaches are only counted."""

TAKEN_OUT = "the rule was removed from the configuration"

Key = tuple[str, str]
"""The name of a rule, and the subject of the alert."""

Found = Mapping[str, Sequence[Observed] | None]
"""The measurements by the name of the rule; None for a rule whose source is unknown."""


@dataclass(slots=True)
class _Watch:
    """The state of one rule for one subject: since when the subject breaches or meets the limit,
    and its alert, if any."""

    ill_since_ms: int | None = None
    well_since_ms: int | None = None
    alert: Alert | None = None

    @property
    def is_open(self) -> bool:
        return self.alert is not None and self.alert.is_open


@dataclass(slots=True)
class Alerts:
    """The state of all rules for all their subjects, which is kept from one check to the next."""

    rules: Sequence[Rule]
    alerts_max: int = ALERTS_MAX
    _watches: dict[Key, _Watch] = field(default_factory=dict, init=False)
    _unlisted: set[Key] = field(default_factory=set, init=False)
    _open_count: int = field(default=0, init=False)

    def restore(self, kept: Iterable[Alert], now_ms: int) -> None:
        """Take over the alerts of an earlier process; close those whose rule no longer exists."""
        names = {rule.name for rule in self.rules}
        for alert in kept:
            if alert.is_open and alert.rule not in names:
                alert = replace(alert, closed_at_ms=now_ms, text=TAKEN_OUT)
            if alert.is_open or alert.offered_at_ms is not None:
                self._watches[alert.rule, alert.subject] = _Watch(alert=alert)

    def look(self, found: Found, now_ms: int) -> Standing:
        """Compare the current measurements with the limits and return the state of all rules."""
        standings = []
        self._unlisted = set()
        self._open_count = sum(watch.is_open for watch in self._watches.values())
        for rule in self.rules:
            measured = found.get(rule.name)
            if measured is None:
                standings.append(self._unknown(rule))
                continue
            rows = [one for one in measured if rule.concerns(one.subject)]
            here = {one.subject for one in rows}
            for one in rows:
                self._judge(rule, one, now_ms)
            for name, subject in list(self._watches):
                if name == rule.name and subject not in here:
                    self._judge(rule, Observed(subject, _well_value(rule)), now_ms)
            standings.append(self._standing(rule, rows))
        return Standing(tuple(standings), self.open(), len(self._unlisted))

    def open(self) -> tuple[Alert, ...]:
        """The open alerts, oldest first."""
        return tuple(one for one in self.kept() if one.is_open)

    def kept(self) -> tuple[Alert, ...]:
        """Return the alerts for the next process: open ones, and closed ones not sent yet."""
        found = [watch.alert for watch in self._watches.values() if watch.alert is not None]
        return tuple(sorted(found, key=lambda one: (one.opened_at_ms, one.rule, one.subject)))

    def digest(self, now_ms: int, repeat_ms: int) -> Digest | None:
        """Return the message to send now, or None if nothing changed. Mark its alerts as offered to
        the receiver.
        """
        opened, closed, repeated = [], [], 0
        for alert in self.kept():
            if not alert.is_open:
                closed.append(alert)
            elif alert.told_at_ms is None:
                opened.append(alert)
            elif now_ms - alert.told_at_ms >= repeat_ms:
                opened.append(alert)
                repeated += 1
        if not opened and not closed:
            return None
        for alert in opened:
            watch = self._watches[alert.rule, alert.subject]
            watch.alert = replace(alert, offered_at_ms=now_ms)
        return Digest(now_ms, tuple(opened), tuple(closed), repeated)

    def told(self, digest: Digest) -> None:
        """Record that the receiver accepted a digest."""
        for alert in digest.opened:
            watch = self._watches.get((alert.rule, alert.subject))
            if watch is not None and _is_same(watch.alert, alert) and watch.alert is not None:
                watch.alert = replace(watch.alert, told_at_ms=digest.at_ms)
        for alert in digest.closed:
            key = (alert.rule, alert.subject)
            watch = self._watches.get(key)
            if watch is not None and _is_same(watch.alert, alert):
                watch.alert = None
                self._forget(key, watch)

    def _judge(self, rule: Rule, one: Observed, now_ms: int) -> None:
        key = (rule.name, one.subject)
        watch = self._watches.setdefault(key, _Watch())
        if one.value is not None:
            if watch.is_open:
                self._may_close(rule, watch, one, now_ms)
            else:
                self._may_open(rule, key, watch, one, now_ms)
        self._forget(key, watch)

    def _may_open(self, rule: Rule, key: Key, watch: _Watch, one: Observed, now_ms: int) -> None:
        assert one.value is not None, "the caller looked"
        if not rule.breached_by(one.value):
            watch.ill_since_ms = None
            return
        watch.ill_since_ms = now_ms if watch.ill_since_ms is None else watch.ill_since_ms
        if now_ms - watch.ill_since_ms < rule.for_ms:
            return
        if self._open_count >= self.alerts_max:
            self._unlisted.add(key)
            return
        self._open_count += 1
        # If the last alert of this subject has closed and was not sent yet, this alert replaces it,
        # because the receiver needs only the current one.
        watch.alert = Alert(
            rule.name, rule.kind, one.subject, now_ms, one.text, one.page, one.value
        )
        watch.ill_since_ms = watch.well_since_ms = None

    def _may_close(self, rule: Rule, watch: _Watch, one: Observed, now_ms: int) -> None:
        assert watch.alert is not None and one.value is not None, "the caller looked"
        if not rule.cleared_by(one.value):
            watch.well_since_ms = None
            text = one.text or watch.alert.text
            watch.alert = replace(watch.alert, value=one.value, text=text, page=one.page)
            return
        watch.well_since_ms = now_ms if watch.well_since_ms is None else watch.well_since_ms
        if now_ms - watch.well_since_ms < rule.clear_ms:
            return
        watch.well_since_ms = None
        self._open_count -= 1
        # An alert that was never offered is unknown to the receiver, so its end needs no message.
        was_offered = watch.alert.offered_at_ms is not None
        watch.alert = replace(watch.alert, closed_at_ms=now_ms) if was_offered else None

    def _forget(self, key: Key, watch: _Watch) -> None:
        if watch.alert is None and watch.ill_since_ms is None:
            self._watches.pop(key, None)

    def _unknown(self, rule: Rule) -> RuleStanding:
        """Return the state of a rule whose measurements are unknown. Its open alerts stay open."""
        count = sum(
            watch.is_open for (name, _), watch in self._watches.items() if name == rule.name
        )
        return RuleStanding(rule, 0, count, 0, 1, None)

    def _standing(self, rule: Rule, rows: Sequence[Observed]) -> RuleStanding:
        watches = [watch for (name, _), watch in self._watches.items() if name == rule.name]
        known = [one.value for one in rows if one.value is not None]
        worst = None
        if known:
            worst = min(known) if rule.is_below else max(known)
        return RuleStanding(
            rule,
            subjects=len(rows),
            open=sum(watch.is_open for watch in watches),
            pending=sum(watch.ill_since_ms is not None and not watch.is_open for watch in watches),
            unknown=len(rows) - len(known),
            worst=worst,
        )


def _well_value(rule: Rule) -> float:
    """Return the best possible value. It closes the alert of a subject that no longer exists."""
    return float("inf") if rule.is_below else 0.0


def _is_same(one: Alert | None, other: Alert) -> bool:
    return one is not None and one.opened_at_ms == other.opened_at_ms


def changes_between(
    before: Sequence[Alert], now: Sequence[Alert]
) -> tuple[list[Alert], list[Alert]]:
    """Compare two lists of open alerts; return those that opened and those that closed."""
    had = {(one.rule, one.subject, one.opened_at_ms) for one in before}
    has = {(one.rule, one.subject, one.opened_at_ms) for one in now}
    opened = [one for one in now if (one.rule, one.subject, one.opened_at_ms) not in had]
    closed = [one for one in before if (one.rule, one.subject, one.opened_at_ms) not in has]
    return opened, closed
