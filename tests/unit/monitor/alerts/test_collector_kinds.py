"""Alerts about collectors of other hosts."""

from monitor.alerts.kinds import measured
from monitor.config.alert_rules import SHIPPED_RULES
from monitor.state.alert import Kind, Rule
from monitor.state.collectors import CollectorView, Heard
from monitor.state.snapshot import Snapshot
from monitor.views.collectors import SILENT_MS, judge
from protocol.collector_report import STOPPED
from tests.unit.monitor.views.test_collectors import NOW_MS, report

RULES: dict[Kind, Rule] = {
    rule.kind: rule
    for rule in (one.rule() for one in SHIPPED_RULES)
    if rule.kind in (Kind.COLLECTOR_SILENT, Kind.COLLECTOR_SKEW)
}


def snapshot(collectors: tuple[CollectorView, ...] | None, kafka_at_ms: int = NOW_MS) -> Snapshot:
    return Snapshot(1, NOW_MS, 5_000, "b:1", kafka_at_ms=kafka_at_ms, collectors=collectors)


def values(kind: Kind, one: Snapshot) -> dict[str, float | None] | None:
    rule = RULES[kind]
    found = measured([rule], one)[rule.name]
    return None if found is None else {each.subject: each.value for each in found}


VIEWS = judge(
    [
        Heard(report("works", skew_ms=-90_000), NOW_MS),
        Heard(report("gone", skew_ms=1), NOW_MS - SILENT_MS - 1),
        Heard(report("ended", state=STOPPED), NOW_MS - 10 * SILENT_MS),
    ],
    NOW_MS,
)


def test_only_a_silent_collector_breaches() -> None:
    found = values(Kind.COLLECTOR_SILENT, snapshot(VIEWS))
    assert found == {"works": 0, "gone": 1, "ended": 0}


def test_the_clock_of_a_collector_that_does_not_report_is_unknown() -> None:
    found = values(Kind.COLLECTOR_SKEW, snapshot(VIEWS))
    assert found == {"works": 90_000, "gone": None, "ended": None}
    assert RULES[Kind.COLLECTOR_SKEW].breached_by(90_000)
    assert not RULES[Kind.COLLECTOR_SKEW].breached_by(60_000)


def test_nothing_is_known_while_the_brokers_are_away() -> None:
    for kind in RULES:
        assert values(kind, snapshot(VIEWS, NOW_MS - 5_000)) is None
        assert values(kind, snapshot(None)) == {}
