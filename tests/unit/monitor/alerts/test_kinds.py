"""What each kind of rule finds in a mill, and its query over the metrics for Prometheus."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.alerts.kinds import KINDS, expression, limit_text, measured
from monitor.alerts.prometheus_rules import PANELS, alert_name, dashboard, prometheus_rules
from monitor.config.alert_rules import SHIPPED_RULES, RuleSection
from monitor.lag.rules import Bound, CellState, Lag, LagSum, TimeLag
from monitor.state.alert import FORMS, Kind, Observed, Rule, Unit
from monitor.state.collectors import Heard
from monitor.state.snapshot import BrokerView, DiskView, Snapshot
from monitor.state.watches import StillFile
from monitor.views.collectors import judge
from tests.harness import ROOT
from tests.unit.monitor.readings import metrics_of
from tests.unit.monitor.scene import (
    BROKER_DOWN,
    CATCHING_UP,
    CHANGING,
    FLOWING,
    HOSTILE,
    MYSQL_AWAY,
    NO_BROKER,
    SLASHED,
    STUCK,
    Mill,
    Story,
)
from tests.unit.monitor.views.test_collectors import report


def limited(broker: BrokerView) -> BrokerView:
    """Return a broker with a rate that was set at run time, in one of two racks."""
    rack = "west" if broker.node_id == 4 else "east"
    return replace(broker, facts=replace(broker.facts, leader_rate=5_000_000, rack=rack))


def rule(on: str, **keys: Any) -> Rule:
    return RuleSection.model_validate({"name": "r", "on": on, **keys}).rule()


def found(snapshot: Snapshot, one: Rule) -> dict[str, Observed]:
    rows = measured([one], snapshot)["r"]
    assert rows is not None
    return {row.subject: row for row in rows}


@pytest.fixture(scope="module")
def flowing() -> Snapshot:
    return Mill(FLOWING, None).run()


def test_a_part_is_down_when_it_does_not_answer_or_has_given_up() -> None:
    parts = found(Mill(MYSQL_AWAY, None).run(), rule("part_down"))
    assert [name for name, row in parts.items() if row.value] == ["mysql"]
    assert parts["mysql"].text == "MySQL does not answer: 127.0.0.1:8092: Connection refused"
    assert parts["mysql"].page == "/#parts"


def test_a_part_is_stuck_when_it_finishes_nothing_and_unknown_when_it_is_away() -> None:
    parts = found(Mill(STUCK, None).run(), rule("part_stuck"))
    assert [name for name, row in parts.items() if row.value] == ["stream"]
    assert "has made no progress for" in parts["stream"].text
    away = found(Mill(MYSQL_AWAY, None).run(), rule("part_stuck"))
    assert away["mysql"].value is None


def test_lag_is_that_of_a_group_and_without_brokers_not_known() -> None:
    groups = found(Mill(STUCK, None).run(), rule("lag", above=10))
    assert groups["millrace-stream"].value is not None
    assert groups["millrace-stream"].value > 200_000
    assert groups[SLASHED].page == "/groups/team%2Fbilling%20export"
    away = found(Mill(NO_BROKER, None).run(), rule("lag", above=10))
    assert {row.value for row in away.values()} == {None}


@pytest.mark.parametrize("kind", ["lag", "time_lag"])
def test_a_group_without_a_look_is_not_gone(kind: str) -> None:
    """The monitor has restarted and has not read the group yet. An open alert must stay open,
    because the group may still exist."""
    one = rule(kind, above=10 if kind == "lag" else "10s", of=["team*"])
    nothing = replace(Mill(NO_BROKER, None).run(), groups=(), kafka_at_ms=None)
    assert measured([one], nothing) == {"r": None}
    waits = replace(nothing, kafka_at_ms=1, unseen=frozenset({"team/a", "other"}))
    assert found(waits, one) == {"team/a": Observed("team/a", None, page="/groups/team%2Fa")}


def test_a_time_lag_that_is_at_least_so_long_opens_and_never_closes() -> None:
    snapshot = Mill(CATCHING_UP, None).run()
    exact = found(snapshot, rule("time_lag", above="1s"))["millrace-stream"]
    assert exact.value is not None and exact.value > 1_000
    # One partition of the export has no committed offset. The ages of the other partitions still
    # count.
    assert found(snapshot, rule("time_lag", above="1s"))[SLASHED].value is not None
    old = snapshot.groups[0]
    cell = replace(old.cells[0], lag=Lag(CellState.OK, 9), time_lag=TimeLag(60_000, Bound.AT_LEAST))
    group = replace(old, group_id="g", cells=(cell,))
    bound = replace(snapshot, groups=(group,))
    assert found(bound, rule("time_lag", above="59s"))["g"].value == 60_000
    assert found(bound, rule("time_lag", above="10m"))["g"].value is None, "it may be older"


def test_a_lag_whose_ends_are_partly_unknown_opens_and_never_closes() -> None:
    snapshot = Mill(CATCHING_UP, None).run()
    old = next(one for one in snapshot.groups if one.total.lag)
    away = replace(old.cells[0], lag=Lag(CellState.END_UNKNOWN))
    group = replace(old, group_id="g", cells=(away, *old.cells[1:]), total=LagSum(500, 5, 6))
    part = replace(snapshot, groups=(group,))
    assert found(part, rule("lag", above=499))["g"].value == 500
    assert found(part, rule("lag", above=501))["g"].value is None, "it may be more"


def test_a_disk_is_measured_as_a_share_or_in_bytes(flowing: Snapshot) -> None:
    full = replace(flowing, disks=(DiskView("data", 3 << 30, 120 << 30),))
    share = found(full, rule("disk_free", below="5%"))["data"]
    assert share.value == 0.025
    assert share.text == "3.0 GiB of 120.0 GiB are free on the disk of data"
    assert found(full, rule("disk_free", below="4GiB"))["data"].value == 3 << 30
    none = replace(flowing, disks=(DiskView("data", 0, 0),))
    assert found(none, rule("disk_free", below="5%"))["data"].value is None


def test_disks_that_cannot_be_asked_have_not_gone(flowing: Snapshot) -> None:
    one = rule("disk_free", below="5%")
    assert measured([one], replace(flowing, disks=())) == {"r": None}


def test_the_share_of_unparsed_lines_is_that_of_the_snapshot(flowing: Snapshot) -> None:
    one = rule("unparsed_share", above="5%")
    assert flowing.unparsed_share == 0.0, "MySQL's number does not move in this story"
    assert found(replace(flowing, unparsed_share=0.2), one)["stream"].value == 0.2
    assert "20 % of the lines" in found(replace(flowing, unparsed_share=0.2), one)["stream"].text
    assert found(replace(flowing, unparsed_share=None), one)["stream"].value is None
    assert measured([one], replace(flowing, parts=()))["r"] is None
    assert Mill(MYSQL_AWAY, None).run().unparsed_share is None


def test_a_file_is_stuck_with_a_fault_and_not_for_an_open_line(flowing: Snapshot) -> None:
    rows = found(flowing, rule("file_stuck"))
    assert list(rows) == ["watched/json/old.log.gz"]
    assert "damaged after byte 17" in rows["watched/json/old.log.gz"].text
    assert flowing.still_files is not None
    assert [one.path for one in flowing.still_files if one.is_unended] == [
        f"watched/access/{HOSTILE}.log"
    ]
    gone = Mill(Story(down=frozenset({"collector"}), down_from=100), None).run()
    assert measured([rule("file_stuck")], gone)["r"] is None


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_in_every_table(kind: Kind) -> None:
    assert KINDS[kind].words
    assert kind in FORMS


METRIC = re.compile(r"\bmillrace_[a-z_]+\b")


def names_of(snapshot: Snapshot) -> set[str]:
    lines = metrics_of(snapshot).decode().splitlines()
    return {re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")}


@pytest.fixture(scope="module")
def told() -> set[str]:
    """Return the metric names of a mill that has a problem of each kind."""
    snapshot = Mill(BROKER_DOWN, None).run()
    ill = (StillFile("a", 0, 5 << 20, is_unended=False),)
    changing = Mill(CHANGING, None).run()
    left = replace(changing, moves=(), brokers=tuple(map(limited, changing.brokers)))
    far = replace(changing, collectors=judge([Heard(report(skew_ms=1), 0)], 0))
    snapshots = (replace(snapshot, unparsed_share=0.2, still_files=ill), changing, left, far)
    return set[str]().union(*map(names_of, snapshots))


@pytest.mark.parametrize("one", [*SHIPPED_RULES, RuleSection(name="l", on="lag", above="5")])
def test_prometheus_is_asked_for_metrics_that_there_are(one: RuleSection, told: set[str]) -> None:
    asked = METRIC.findall(expression(one.rule()))
    assert asked
    assert set(asked) <= told


@pytest.mark.parametrize("panel", PANELS, ids=[title for title, *_ in PANELS])
def test_the_dashboard_asks_for_metrics_that_there_are(
    panel: tuple[str, str, str, str], told: set[str]
) -> None:
    expanded = panel[1]
    if match := re.search(r"millrace_\(([a-z_|]+)\)([a-z_]+)", expanded):
        asked = {f"millrace_{word}{match[2]}" for word in match[1].split("|")}
    else:
        asked = set(METRIC.findall(expanded))
    assert asked
    assert asked <= told


def test_expressions_hold_limit_unit_and_subjects() -> None:
    assert expression(rule("lag", above=5, of=["a.b*", "c"])) == (
        'sum by (group) (millrace_group_lag_offsets{group=~"a\\\\.b.*|c"}) > 5'
    )
    assert expression(rule("time_lag", above="90s")).endswith("> 90")
    assert expression(rule("disk_free", below="20GiB")) == (
        'millrace_disk_free_bytes{disk=~".*"} < 21474836480'
    )
    assert expression(rule("disk_free", below="5%")).endswith("< 0.05")
    assert '\\"' in expression(rule("lag", above=5, of=['q"']))


def test_a_rule_reads_alike_for_people_and_for_prometheus() -> None:
    one = RuleSection.model_validate(
        {"name": "export-lags", "on": "time_lag", "above": "10m", "for": "5m", "clear": "0s"}
    ).rule()
    assert limit_text(one) == "above 10 min"
    groups: Any = prometheus_rules([one])["groups"]
    assert groups[0]["rules"][0] == {
        "alert": "MillraceExportLags",
        "expr": 'max by (group) (millrace_group_lag_seconds{group=~".*"}) > 600',
        "for": "5m",
        "labels": {"rule": "export-lags"},
        "annotations": {
            "summary": "{{ $labels.group }}: the oldest unread record of a group is too old"
            " (above 10 min)"
        },
    }
    assert alert_name(replace(one, name="a_b.c")) == "MillraceABC"


DOCS = Path(ROOT) / "docs"


def test_the_files_in_docs_are_those_of_the_rules_as_shipped() -> None:
    """Run `./millrace alerts prometheus` and `./millrace alerts grafana` to write these files
    again."""
    rules = [one.rule() for one in SHIPPED_RULES]
    kept = yaml.safe_load((DOCS / "prometheus-rules.yml").read_text())
    assert kept == prometheus_rules(rules)
    assert json.loads((DOCS / "grafana-dashboard.json").read_text()) == dashboard()


def test_units_have_limits_that_people_can_read() -> None:
    for on, keys, text in (
        ("lag", {"above": 100_000}, "above 100,000"),
        ("disk_free", {"below": "5%"}, "below 5.0 %"),
        ("disk_free", {"below": "20GiB"}, "below 20.0 GiB"),
        ("unparsed_share", {"above": "25%"}, "above 25 %"),
        ("part_down", {}, ""),
    ):
        assert limit_text(rule(on, **keys)) == text
    assert rule("part_down").unit is Unit.FLAG
