"""`millrace elect-leader`: it elects preferred leaders at once, and unclean leaders only after it
has shown which records may be lost."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.kafka.unclean import UncleanElection
from appliance.output import Exit
from protocol.types import NO_NODE, TopicPartition
from tests.unit.appliance.fake_cluster import FakeCluster, FakePartition
from tests.unit.appliance.test_commands import run


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fake = FakeCluster(dict.fromkeys((1, 2)))
    fake.topic("logs", [1, 2], [2, 1])
    with fake.serving():
        yield fake


def elect(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str
) -> tuple[int, list[str], list[str]]:
    server = ("--bootstrap-server", cluster.address)
    return run(monkeypatch, folder, "elect-leader", *arguments, *server)


def test_preferred_leaders(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.partitions[TopicPartition("logs", 0)].leader = 2
    code, out, _ = elect(cluster, monkeypatch, tmp_path, "logs", "--json")
    rows = json.loads(out[0])["data"]
    assert code == 0
    assert [(row["partition"], row["outcome"]) for row in rows] == [
        (0, "elected"),
        (1, "not needed"),
    ]
    assert cluster.partitions[TopicPartition("logs", 0)].leader == 1
    code, out, _ = elect(cluster, monkeypatch, tmp_path, "logs:1", "--json")
    assert [row["partition"] for row in json.loads(out[0])["data"]] == [1]
    assert elect(cluster, monkeypatch, tmp_path, "--all")[0] == 0


def leaderless(cluster: FakeCluster) -> None:
    """Take away the leader of `logs-0`: its only in-sync replica is on broker 3, which is down."""
    cluster.partitions[TopicPartition("logs", 0)] = FakePartition([3, 2], [3], NO_NODE)


def test_an_unclean_election_says_first_what_may_be_lost(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leaderless(cluster)
    said = (
        "logs-0: broker 2 would lead with its copy (1 MiB); records that only "
        "broker 3 can have are lost, and acknowledged ones can be among them. Their number is "
        "unknown"
    )
    unclean = ("--all", "--type", "unclean")
    code, _, err = elect(cluster, monkeypatch, tmp_path, *unclean)
    assert (code, err[0]) == (Exit.USAGE, said)
    assert "no terminal to ask for confirmation: add --yes" in err[-1]
    assert elect(cluster, monkeypatch, tmp_path, *unclean, "--dry-run") == (0, [], [said])
    assert cluster.partitions[TopicPartition("logs", 0)].leader == NO_NODE
    assert elect(cluster, monkeypatch, tmp_path, *unclean, "--yes")[0] == 0
    assert cluster.partitions[TopicPartition("logs", 0)].leader == 2
    # A partition that has a leader takes no part in an unclean election, so there is no question.
    assert elect(cluster, monkeypatch, tmp_path, *unclean) == (
        0,
        [],
        ["no partition needs an unclean election"],
    )
    code, out, _ = elect(cluster, monkeypatch, tmp_path, *unclean, "--json")
    assert (code, json.loads(out[0])["data"]) == (0, [])


def test_a_replica_that_a_reassignment_adds_leads_last(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The controller elects in the order of the replicas, but takes an added replica last. The
    message must name the broker that will be elected, because the user consents to it."""
    cluster.partitions[TopicPartition("logs", 0)] = FakePartition(
        [2, 1, 3], [3], NO_NODE, adding=[2], removing=[3]
    )
    unclean = ("--all", "--type", "unclean", "--dry-run")
    code, _, err = elect(cluster, monkeypatch, tmp_path, *unclean)
    assert code == 0
    assert err[0].startswith("logs-0: broker 1 would lead with its copy (1 MiB)")


def test_where_no_replica_is_in_service_nothing_can_be_elected(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.partitions[TopicPartition("logs", 0)] = FakePartition([3, 4], [3], NO_NODE)
    code, _, err = elect(cluster, monkeypatch, tmp_path, "logs:0", "--type", "unclean", "--yes")
    assert code == Exit.FAILED
    assert err == [
        "logs-0: no replica is in service, so there can be no leader; the replicas are on brokers"
        " 3, 4",
        "no partition can get a leader, because no replica is in service",
    ]


def test_a_copy_whose_rivals_are_unknown() -> None:
    election = UncleanElection(TopicPartition("t", 0), 2, None, (3,), ())
    assert election.sentence() == (
        "t-0: broker 2 would lead with its copy (of unknown size); which records it lacks is "
        "unknown"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), Exit.USAGE, "expected TOPIC, TOPIC:PARTITION, --all or --file FILE"),
        (("logs", "--all"), Exit.USAGE, "expected TOPIC, TOPIC:PARTITION, --all or --file FILE"),
        (("--all", "--type", "clean"), Exit.USAGE, "found --type clean, expected preferred or"),
        (("logs:x",), Exit.USAGE, "found 'logs:x', expected TOPIC or TOPIC:PARTITION"),
        (("missing",), Exit.NOT_FOUND, "topic 'missing' does not exist"),
        (("--file", "/nowhere.json"), Exit.USAGE, "No such file"),
        (("logs", "--dry-run"), Exit.USAGE, "--dry-run has an effect only with --type unclean"),
    ],
)
def test_what_is_refused(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    found, _, err = elect(cluster, monkeypatch, tmp_path, *arguments)
    assert found == code
    assert said in err[-1]
