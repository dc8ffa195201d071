"""`millrace cluster grow` with a scripted cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli import cluster as cli_cluster
from appliance.output import Exit
from protocol.types import Uuid
from tests.unit.appliance.fake_cluster import BROKER, MIB, TOPIC
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.reassign_desk import Desk, Ran, data

SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}


@pytest.fixture
def cluster() -> Iterator[FakeQuorum]:
    cluster = FakeQuorum(dict.fromkeys((1, 2, 3)), voters={1: Uuid(int=1)}, completes=True)
    cluster.settings[BROKER, "1"] = SETTINGS
    cluster.settings[TOPIC, "__transaction_state"] = {"min.insync.replicas": "1"}
    cluster.topic("__transaction_state", [1], [1])
    cluster.topic("logs", [1], [1], [1])
    with cluster.serving():
        yield cluster


def grow(desk: Desk, *arguments: str) -> Ran:
    return desk.run("cluster", "grow", *arguments)


def test_the_plan_is_shown_and_nothing_is_changed(cluster: FakeQuorum, desk: Desk) -> None:
    code, out, err = grow(desk, "--dry-run", "--json")
    assert code == 0, err
    assert [row["does"] for row in data(out)] == [
        "GiveVote",
        "GiveVote",
        "AddReplicas",
        "WaitForReplicas",
        "AddReplicas",
        "WaitForReplicas",
        "RaiseMinIsr",
    ]
    assert err == [
        "will be copied to broker 2: 5 replicas, 5 MiB",
        "will be copied to broker 3: 5 replicas, 5 MiB",
        "nothing was changed",
    ]
    assert cluster.asked_for() == []


def test_a_cluster_grows_and_a_second_run_changes_nothing(cluster: FakeQuorum, desk: Desk) -> None:
    code, _, err = grow(desk, "--yes")
    assert code == 0, err
    assert cluster.voters == {one: Uuid(int=one) for one in (1, 2, 3)}
    for topic in ("logs", "__transaction_state"):
        assert all(sorted(row) == [1, 2, 3] for row in cluster.replicas(topic))
    assert cluster.settings[TOPIC, "__transaction_state"] == {"min.insync.replicas": "2"}
    assert err[-1].startswith("the cluster has grown")
    asked = len(cluster.asked_for())
    code, _, err = grow(desk, "--yes")
    assert (code, err) == (0, ["the cluster has grown already"])
    assert len(cluster.asked_for()) == asked


def test_a_command_that_is_refused_continues_when_it_is_given_again(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.refused_changes = 7
    assert grow(desk, "--yes")[0] == Exit.TIMEOUT
    assert cluster.voters == {1: Uuid(int=1)}
    code, _, err = grow(desk, "--yes")
    assert code == 0, err
    assert sorted(cluster.voters) == [1, 2, 3]


def test_copies_are_limited_and_the_limit_goes_with_the_last_copy(
    cluster: FakeQuorum, desk: Desk
) -> None:
    code, _, err = grow(desk, "--yes", "--throttle", "1MiB")
    assert code == 0, err
    assert "copies are limited to 1 MiB/s for each broker and direction" in err
    rates = [
        change.value
        for one in cluster.asked
        if type(one).__name__ == "IncrementalAlterConfigsRequest"
        for resource in one.resources
        if resource.resource_type == BROKER
        for change in resource.configs
        if change.name.endswith(".replication.throttled.rate")
    ]
    assert str(MIB) in rates
    assert "leader.replication.throttled.rate" not in cluster.settings[BROKER, "1"]


def test_a_disk_without_room_is_named_before_anything_is_copied(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.free = MIB
    code, _, err = grow(desk, "--yes")
    assert code == Exit.CONDITION
    assert "broker 2 has 1 MiB free and needs" in err[0]
    assert cluster.asked_for() == []
    assert grow(desk, "--yes", "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--topic", "absent"), Exit.NOT_FOUND, "topic 'absent' does not exist"),
        (("--throttle", "fast"), Exit.USAGE, "fast"),
    ],
)
def test_bad_input(
    cluster: FakeQuorum, desk: Desk, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = grow(desk, "--yes", *arguments)
    assert found == code
    assert said in err[-1]
    assert cluster.asked_for() == []


def test_two_brokers_are_too_few(cluster: FakeQuorum, desk: Desk) -> None:
    del cluster.brokers[3]
    code, _, err = grow(desk, "--yes")
    assert code == Exit.CONDITION
    assert "there are 2 brokers (1, 2)" in err[-1]


def test_in_containers_the_command_says_what_to_write_and_what_to_type(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "millrace.yaml").write_text("cluster: {brokers: 1}")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, _, err = desk.run_here("cluster", "grow", "--yes")
    assert code == Exit.CONDITION
    assert "Write `brokers: 3` below `cluster:` in configs/millrace.yaml" in err[-1]
    assert "run `docker compose up -d --wait --force-recreate`" in err[-1]


def test_in_containers_a_broker_that_does_not_run_is_named_with_the_command_of_compose(
    cluster: FakeQuorum, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "millrace.yaml").write_text("cluster: {brokers: 3}")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    monkeypatch.setattr(cli_cluster, "asked_cluster", lambda bootstrap: cluster.address)
    third = cluster.brokers.pop(3)
    code, _, err = desk.run_here("cluster", "grow", "--yes")
    assert code == Exit.CONDITION
    assert "broker 3 is not in service" in err[-1]
    assert "`docker compose up -d --wait broker-3` starts it" in err[-1]
    assert cluster.asked_for() == []
    cluster.brokers[3] = third
    code, _, err = desk.run_here("cluster", "grow", "--yes")
    assert code == 0, err
    assert "`docker compose run --rm cli broker describe` shows its voters" in err[-1]


def test_a_mill_of_one_broker_is_told_which_line_to_write(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    file = tmp_path / "configs" / "millrace.yaml"
    file.write_text("cluster: {brokers: 1}")
    code, _, err = desk.run_here("cluster", "grow", "--yes")
    assert code == Exit.CONDITION
    assert f"Write `brokers: 3` below `cluster:` in {file}, run `./millrace up --apply`" in err[-1]
