"""The alerts about changes of the cluster: when each opens, with which text, and when it closes."""

from dataclasses import replace
from typing import Any

import pytest

from monitor.alerts.core import Alerts
from monitor.alerts.kinds import measured
from monitor.alerts.view import rule_views
from monitor.config.alert_rules import SHIPPED_RULES
from monitor.state.alert import Observed, Rule
from monitor.state.snapshot import BrokerView, Snapshot
from tests.unit.monitor.scene import CHANGING, NO_BROKER, Mill

RULES: dict[str, Rule] = {one.on: one.rule() for one in SHIPPED_RULES}
KINDS = (
    "move_stands", "no_room_to_copy", "throttle_left", "racks_doubled", "two_voters",
    "level_not_finalised",
)  # fmt: skip
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def changing() -> Snapshot:
    return Mill(CHANGING, None).run()


def found(snapshot: Snapshot, on: str) -> dict[str, Observed]:
    rows = measured([RULES[on]], snapshot)[RULES[on].name]
    assert rows is not None
    return {row.subject: row for row in rows}


def with_facts(snapshot: Snapshot, node_id: int, **facts: Any) -> Snapshot:
    def view(one: BrokerView) -> BrokerView:
        return replace(one, facts=replace(one.facts, **facts)) if one.node_id == node_id else one

    return replace(snapshot, brokers=tuple(map(view, snapshot.brokers)))


def opens_after_ms(rule: Rule, snapshot: Snapshot) -> int | None:
    """Return after how long the alert of a rule opens, looked at each minute; None if it does not
    open within an hour."""
    alerts = Alerts([rule])
    for now_ms in range(0, 3_600_000, 60_000):
        if alerts.look(measured([rule], snapshot), now_ms).open:
            return now_ms
    return None


@pytest.mark.parametrize("on", KINDS)
def test_while_no_broker_answers_an_open_alert_stays_open(on: str, changing: Snapshot) -> None:
    stale = replace(changing, taken_at_ms=changing.taken_at_ms + 2_000)
    for snapshot in (stale, Mill(NO_BROKER, None).run()):
        assert measured([RULES[on]], snapshot) == {RULES[on].name: None}


def test_a_move_stands_after_five_minutes_without_a_byte(changing: Snapshot) -> None:
    topics = found(changing, "move_stands")
    assert topics["logs.json"].value == 600_000
    assert topics["logs.json"].text == (
        "the move of logs.json-0 stands: waits for broker 5, away since 21:48:28"
    )
    assert topics["logs.json"].page == "/topics/logs.json"
    # One move of this topic has just had a byte, and the other one waits in a queue.
    assert (topics["logs.access"].value, topics["logs.access"].text) == (0, "")
    assert opens_after_ms(RULES["move_stands"], changing) == 0
    assert RULES["move_stands"].limit == 300_000
    foreign = tuple(replace(one, is_measured=False, is_queued=False) for one in changing.moves)
    assert found(replace(changing, moves=foreign), "move_stands")["logs.json"].value is None
    assert found(replace(changing, moves=()), "move_stands") == {}, "it ends, the alert closes"


def test_a_disk_without_room_for_copies(changing: Snapshot) -> None:
    assert {row.value for row in found(changing, "no_room_to_copy").values()} == {0, None}
    full = with_facts(changing, 4, is_out_of_room=True)
    row = found(full, "no_room_to_copy")["broker-4"]
    assert (row.value, row.text) == (
        1, "the disk of broker 4 is nearly full, so copies to it pause",
    )  # fmt: skip
    assert opens_after_ms(RULES["no_room_to_copy"], full) == 60_000


def test_a_throttle_is_left_ten_minutes_after_the_last_move(changing: Snapshot) -> None:
    limited = with_facts(changing, 2, leader_rate=5_000_000)
    assert found(limited, "throttle_left") == {}, "something moves"
    left = replace(limited, moves=())
    assert found(left, "throttle_left")["broker-2"].text == (
        "broker 2 limits copies to 4.8 MiB/s, and no partition moves"
    )
    assert opens_after_ms(RULES["throttle_left"], left) == 600_000


def test_racks_are_doubled_for_ten_minutes(changing: Snapshot) -> None:
    assert found(changing, "racks_doubled") == {}
    doubled = with_facts(changing, 1, rack="west")
    assert "two replicas in one rack" in found(doubled, "racks_doubled")["logs.json"].text
    assert opens_after_ms(RULES["racks_doubled"], doubled) == 600_000


def test_two_voters_for_five_minutes(changing: Snapshot) -> None:
    assert found(changing, "two_voters")["quorum"].value == 0
    assert changing.quorum is not None
    replicas = changing.quorum.replicas
    two = replace(changing, quorum=replace(changing.quorum, replicas=replicas[1:]))
    assert found(two, "two_voters")["quorum"].value == 1
    # A growth from one voter to three has two for less than a second (decision 0150).
    assert opens_after_ms(RULES["two_voters"], two) == 300_000
    unknown = replace(changing, quorum=None)
    assert measured([RULES["two_voters"]], unknown) == {"two-voters": None}


def test_a_level_is_not_finalised_seven_days_after_the_last_start(changing: Snapshot) -> None:
    row = found(changing, "level_not_finalised")["cluster"]
    assert row.value == 272_000_000, "since the last start of a broker"
    assert opens_after_ms(RULES["level_not_finalised"], changing) is None
    assert RULES["level_not_finalised"].limit == 7 * DAY_MS
    old = changing
    for node in (1, 2, 3, 4):
        old = with_facts(old, node, started_at_ms=changing.taken_at_ms - 8 * DAY_MS)
    assert opens_after_ms(RULES["level_not_finalised"], old) == 0
    assert "the cluster is at level 23" in found(old, "level_not_finalised")["cluster"].text
    done = old
    for node in (1, 2, 3, 4):
        done = with_facts(done, node, finalised=24)
    assert found(done, "level_not_finalised")["cluster"].value == 0


def test_rules_whose_subjects_are_faults_are_well_without_one(changing: Snapshot) -> None:
    alerts = Alerts(list(RULES.values()))
    calm = replace(changing, moves=())
    standing = alerts.look(measured(alerts.rules, calm), calm.taken_at_ms)
    states = {one.name: one.state for one in rule_views(replace(calm, alerts=standing))}
    for name in ("move-stands", "throttle-left", "racks-doubled", "two-voters"):
        assert states[name] == "well", name
