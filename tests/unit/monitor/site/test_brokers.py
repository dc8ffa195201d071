"""The monitor's view of several brokers: which are running, fenced or stopped, their quorum and
their partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.asking.brokers import (
    NO_ADDRESS,
    UNLISTED,
    NodeAnswer,
    node_readings,
    quorum_view,
    voter_addresses,
)
from monitor.history.series import events_between
from monitor.site.brokers import brokers_view
from monitor.state.partition_health import PartitionHealth, health_of
from monitor.state.reading import ConfigValue, NodeReading, PartitionReading
from monitor.state.snapshot import Snapshot
from monitor.views.findings import findings_of
from protocol.client.metadata import BrokerInfo
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.types import Uuid
from tests.unit.monitor import three
from tests.unit.monitor.assembly.test_assemble import Cycles
from tests.unit.monitor.readings import (
    GROUP,
    kafka_reading,
    metrics_of,
    reading,
    row,
    topic_reading,
)
from tests.unit.monitor.scene import BROKER_DOWN, THREE
from tests.unit.monitor.site.test_pages import Site

KAFKA = replace(
    kafka_reading(1_000, commits={}, ends={row(0): 5}),
    topics=(topic_reading(partitions=6),),
    topic_configs={
        "logs.access": {"min.insync.replicas": ConfigValue("2", "DYNAMIC_TOPIC_CONFIG")}
    },
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(BROKER_DOWN, tmp_path_factory.mktemp("history")) as made:
        yield made


def fed(*steps: bool, with_parts: bool = True) -> tuple[Cycles, list[Snapshot]]:
    """Run one cycle per step. Return the cycles and all snapshots. A step is True if broker 2 of
    three is down."""
    cycles, shown = Cycles(), []
    for number, is_down in enumerate(steps, 1):
        kafka = three.three(replace(KAFKA, at_ms=number * 1_000), is_down)
        parts = three.brokers(kafka, is_down) if with_parts else ()
        shown.append(cycles.feed(reading(number * 1_000, kafka, parts)))
    return cycles, shown


def test_a_dead_broker_that_metadata_lists_no_more_is_down_where_it_was() -> None:
    _, (before, now, later) = fed(False, True, True)
    assert [one.state for one in before.brokers] == ["up", "up", "up"]
    assert [one.state for one in now.brokers] == ["up", "down", "up"]
    dead = later.brokers[1]
    assert (dead.address, dead.error) == ("127.0.0.1:19093", three.REFUSED)
    assert dead.away_since_ms == 2_000
    assert [one.leads for one in later.brokers] == [2, 0, 4]
    assert (dead.replicas, dead.under_replicated) == (6, 6)
    assert [one.is_controller for one in later.brokers] == [True, False, False]


def test_one_that_answers_and_is_not_in_service_is_fenced() -> None:
    kafka = three.three(KAFKA, True)
    back = NodeReading(2, "127.0.0.1:19093", None, is_listed=False)
    nodes = (kafka.nodes[0], back, kafka.nodes[2])
    shown = Cycles().feed(reading(1_000, replace(kafka, nodes=nodes)))
    assert [one.state for one in shown.brokers] == ["up", "fenced", "up"]
    found = [one.badge for one in findings_of(shown, GROUP)]
    assert "broker 2 fenced" in found
    view = brokers_view(shown)
    assert (view.badge, view.lead) == ("1 fenced", "Broker 2 is out of service.")
    assert b'millrace_broker_fenced{node_id="2"} 1.0' in metrics_of(shown)


@pytest.mark.parametrize("with_parts", [True, False])
def test_the_verdict_says_who_is_down_since_when_and_what_that_means(with_parts: bool) -> None:
    _, (_, now) = fed(False, True, with_parts=with_parts)
    first = findings_of(now, GROUP)[0]
    assert first.level == "bad"
    assert first.lead == "Broker 2 does not answer"
    assert first.text == " since 00:00:02."
    assert first.detail.startswith(
        "6 of 6 partitions are under-replicated, none is offline: writes and reads go on. 127."
    )
    assert not [one for one in findings_of(now, GROUP) if "under-replicated" in one.badge]


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (PartitionHealth(0, 0, 0, 0), ""),
        (PartitionHealth(9, 0, 0, 0), "All 9 partitions have a leader and are in sync."),
        (PartitionHealth(9, 0, 0, 4), "4 of 9 partitions are under-replicated, none is offline"),
        (PartitionHealth(9, 0, 2, 4), "2 of 9 partitions have too few replicas in sync"),
        (PartitionHealth(9, 1, 2, 4), "1 of 9 partitions have no leader"),
    ],
)
def test_what_the_state_of_partitions_means(health: PartitionHealth, words: str) -> None:
    assert health.meaning.startswith(words)


def test_partitions_without_a_leader_or_with_too_few_in_sync_are_told_apart() -> None:
    topic = three.spread(topic_reading(partitions=3), True)
    first, second, third = topic.partitions
    alone = PartitionReading(second.topic_partition, 3, second.replicas, (3,))
    dead = PartitionReading(third.topic_partition, None, third.replicas, ())
    kafka = replace(
        three.three(KAFKA, True), topics=(replace(topic, partitions=(first, alone, dead)),)
    )
    shown = Cycles().feed(reading(1_000, kafka))
    assert health_of(shown.partitions) == PartitionHealth(3, 1, 1, 2)
    metrics = metrics_of(shown).decode()
    for line in (
        "millrace_under_replicated_partitions 2.0",
        "millrace_under_min_isr_partitions 1.0",
        "millrace_offline_partitions 1.0",
        "millrace_partitions 3.0",
        "millrace_active_controller_count 1.0",
        'millrace_quorum_lag_offsets{node_id="2"} 17.0',
    ):
        assert line in metrics.splitlines()
    unset = Cycles().feed(reading(1_000, replace(kafka, topic_configs={})))
    assert health_of(unset.partitions).under_min_isr == 0, "what is not known is no alarm"


def test_nothing_is_said_of_partitions_while_no_broker_answers() -> None:
    cycles, _ = fed(False)
    stale = cycles.feed(reading(9_000, None))
    assert b"under_replicated" not in metrics_of(stale)
    assert stale.quorum is not None and stale.quorum_error == "no broker answered"


def test_two_that_take_themselves_for_the_controller_are_two() -> None:
    cycles, _ = fed(False)
    kafka = three.three(KAFKA, False)
    parts = tuple(
        replace(one, status=replace(one.status, details={**one.status.details,
                                                         "is_controller": True}))
        if one.name != "broker-3" and one.status is not None else one
        for one in three.brokers(kafka, False)
    )  # fmt: skip
    shown = cycles.feed(reading(5_000, replace(kafka, at_ms=5_000), parts))
    assert b"millrace_active_controller_count 2.0" in metrics_of(shown)


def test_what_happens_to_brokers_is_kept_as_events() -> None:
    cycles, (before, now) = fed(False, True, with_parts=False)
    told = [event.text for event in events_between(before, now)]
    assert "broker 2 does not answer" in told
    kafka = three.three(replace(KAFKA, at_ms=3_000), False)
    assert kafka.quorum is not None
    moved = replace(kafka, quorum=replace(kafka.quorum, leader_id=3, epoch=18))
    back = cycles.feed(reading(3_000, moved))
    told = [event.text for event in events_between(now, back)]
    assert "broker 2 answers again" in told
    assert "broker 3 is the active controller" in told
    fenced = replace(back, brokers=(replace(back.brokers[0], fenced=True), *back.brokers[1:]))
    assert [event.text for event in events_between(back, fenced)] == ["broker 1 is out of service"]


def test_every_named_broker_is_shown_with_its_last_address_if_known() -> None:
    listed = {1: BrokerInfo(1, "h", 1, "east")}
    answers = {1: NodeAnswer(None, (23, 24), 23), 2: NodeAnswer("refused")}
    found = node_readings(listed, answers, {1: "h:1", 2: "h:2"}, named={2, 3})
    assert found == (
        NodeReading(1, "h:1", None, True, "east", (23, 24), 23),
        NodeReading(2, "h:2", "refused", False),
        NodeReading(3, NO_ADDRESS, UNLISTED, False),
    )


def test_the_quorum_begins_with_its_leader_and_has_ages() -> None:
    known = QuorumReplica(1, Uuid(int=1), 90, 4_000, 3_000)
    leader = QuorumReplica(2, Uuid(int=2), 95, 6_000, 6_000)
    unheard = QuorumReplica(3, Uuid(int=3), None, None, None)
    info = QuorumInfo(2, 7, 95, (known, leader), (unheard,), {1: ("BROKER://h:1",), 2: ()})
    view = quorum_view(info, 5_000)
    assert [(one.node_id, one.role, one.lag) for one in view.replicas] == [
        (2, "leader", 0),
        (1, "voter", 5),
        (3, "observer", None),
    ]
    ages = [(one.fetched_ago_ms, one.caught_up_ago_ms) for one in view.replicas]
    assert ages == [(0, 0), (1_000, 2_000), (None, None)]
    assert voter_addresses(info) == {1: "h:1"}


def test_the_page_has_every_broker_the_quorum_and_what_is_behind(site: Site) -> None:
    page = site.text("/brokers")
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    assert "Broker 2 does not answer since" in shown
    assert "2 of 3 up" in shown
    assert "broker 1, epoch 17" in shown
    assert page.count('class="card broker') == 3
    assert "epoch 17, committed below 81,204" in shown
    assert page.count("data-voter=") == 3
    assert re.search(r"2 ✕ voter 81,187 17 9\.?0? s ago", shown), shown[-1500:]
    assert "1,102" in shown, "how far the missing replica is behind"
    assert "▲ 12 not in sync" in shown


def test_the_api_has_the_same(site: Site) -> None:
    rows = site.client.get("/api/v1/brokers").json()["data"]
    assert [one["state"] for one in rows] == ["up", "down", "up"]
    assert rows[1]["away_since_ms"] is not None
    quorum = site.client.get("/api/v1/quorum").json()["data"]
    assert [(one["node_id"], one["lag"]) for one in quorum] == [(1, 0), (2, 17), (3, 0)]
    assert site.client.get("/api/v1/quorum?format=csv").status_code == 200


def test_three_that_are_well_are_said_to_be(tmp_path: Path) -> None:
    site = Site(THREE, tmp_path)
    page = re.sub(r"<[^>]*>", " ", site.text("/brokers"))
    assert "All 3 brokers answer." in page
    assert "● leader" in page


def test_kip_352_a_replica_that_a_reassignment_adds_is_not_out_of_sync() -> None:
    topic = three.spread(topic_reading(partitions=1), False)
    (whole,) = topic.partitions
    moving = PartitionReading(whole.topic_partition, 1, (1, 2, 3), (1,), (2, 3))
    for part, expected in (
        (moving, PartitionHealth(1, 0, 0, 0)),
        (replace(moving, adding_replicas=()), PartitionHealth(1, 0, 1, 1)),
    ):
        kafka = replace(three.three(KAFKA, False), topics=(replace(topic, partitions=(part,)),))
        shown = Cycles().feed(reading(1_000, kafka))
        assert health_of(shown.partitions) == expected
        assert sum(one.under_replicated for one in shown.brokers) == 2 * expected.under_replicated
