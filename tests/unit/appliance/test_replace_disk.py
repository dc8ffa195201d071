"""`millrace broker replace-disk` with a scripted cluster."""

from collections.abc import Iterator

import pytest

from appliance.output import Exit
from protocol.types import Uuid
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.reassign_desk import Desk, data


@pytest.fixture
def cluster() -> Iterator[FakeQuorum]:
    """Three voters. Broker 3 is away, and its disk was lost."""
    cluster = FakeQuorum(
        dict.fromkeys((1, 2)), voters={one: Uuid(int=one) for one in (1, 2, 3)}, fenced={3}
    )
    cluster.topic("logs", [1, 2, 3], [2, 3, 1], [1, 2])
    for one in cluster.partitions.values():
        one.in_sync = [broker for broker in one.replicas if broker != 3]
    with cluster.serving():
        yield cluster


def test_the_plan_is_shown_and_nothing_is_changed(cluster: FakeQuorum, desk: Desk) -> None:
    code, out, err = desk.run("broker", "replace-disk", "3", "--dry-run", "--json")
    assert code == 0, err
    assert [row["does"] for row in data(out)] == [
        "TakeVote",
        "StartBroker",
        "WaitForReplicas",
        "WaitForMetadata",
    ]
    assert err == [
        "broker 3 copies 2 replicas from the others",
        "only two brokers vote until broker 3 has all metadata: do not stop either of them in the"
        " meantime",
        "nothing was changed",
    ]
    assert cluster.asked_for() == []


def test_a_broker_of_another_mill_is_started_by_its_user(cluster: FakeQuorum, desk: Desk) -> None:
    code, _, err = desk.run("broker", "replace-disk", "3", "--yes")
    assert code == Exit.CONDITION
    assert "start it with an empty folder and with `joins: true`" in err[-1]
    assert sorted(cluster.voters) == [1, 2]
    cluster.brokers[3] = None
    cluster.fenced = set()
    for one in cluster.partitions.values():
        one.in_sync = list(one.replicas)
    code, _, err = desk.run("broker", "replace-disk", "3", "--yes")
    assert code == 0, err
    assert sorted(cluster.voters) == [1, 2, 3]
    assert err[-1] == "broker 3 has all its replicas in sync again"
    code, _, err = desk.run("broker", "replace-disk", "3", "--yes")
    assert code == 0
    assert "broker 3 is in service with all its replicas" in err[-1]


def test_a_lost_partition_is_named(cluster: FakeQuorum, desk: Desk) -> None:
    cluster.topic("alone", [3])
    code, _, err = desk.run("broker", "replace-disk", "3", "--dry-run")
    assert code == 0
    assert any("because their only replica was on the disk: alone-0" in line for line in err)


def test_an_unknown_broker_is_refused(desk: Desk) -> None:
    code, _, err = desk.run("broker", "replace-disk", "7", "--yes")
    assert code == Exit.NOT_FOUND
    assert "there is no broker 7; registered are 1, 2, 3" in err[-1]


def test_without_consent_nothing_is_changed(cluster: FakeQuorum, desk: Desk) -> None:
    assert desk.run("broker", "replace-disk", "3")[0] != 0
    assert cluster.asked_for() == []
