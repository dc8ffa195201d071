"""Voters that change their address. The record of the voters follows (KIP-853,
UpdateRaftVoter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster import voter_address
from broker.cluster.snapshotter import Snapshotter
from broker.cluster.voter_orders import change_of
from broker.metadata.features import LEVEL_4_0_IV1
from broker.quorum.voters import Endpoint
from protocol.errors import ApiError, ErrorCode
from protocol.messages.voters import (
    QuorumListener,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoterVersions,
)
from protocol.types import ZERO_UUID, Uuid
from tests.sim.test_moved_disks import move, must_catch_up, stop
from tests.sim.test_newcomers import directory_of
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import BETWEEN_PORT, CLUSTER_ID, WholeBroker, WholeCluster


def in_service(name: str) -> WholeCluster:
    """Return three brokers in service. `name` is the seed."""
    cluster = WholeCluster(name)
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    return cluster


@pytest.fixture
def cluster() -> WholeCluster:
    return in_service("voter addresses")


def recorded(node: WholeBroker) -> dict[int, tuple[Endpoint, ...]]:
    """Return the addresses of the voters in the newest set in a node's log."""
    return {one.key.node_id: one.endpoints for one in node.metadata.quorum.voters.voters}


def at(*hosts: str) -> dict[int, tuple[Endpoint, ...]]:
    return {
        number: (Endpoint("BROKER", host, BETWEEN_PORT),) for number, host in enumerate(hosts, 1)
    }


def is_recorded(cluster: WholeCluster, *hosts: str) -> bool:
    return all(recorded(node) == at(*hosts) for node in cluster.running)


def updates(
    monkeypatch: pytest.MonkeyPatch, note: Callable[[], None] = lambda: None
) -> list[UpdateRaftVoterRequest]:
    """Return a list to which each update is added that a voter makes. It is sent if the level
    allows it. `note` is called for each."""
    sent: list[UpdateRaftVoterRequest] = []
    make = voter_address.VoterAddress._request

    def noted(self: Any) -> UpdateRaftVoterRequest:
        note()
        sent.append(make(self))
        return sent[-1]

    monkeypatch.setattr(voter_address.VoterAddress, "_request", noted)
    return sent


def test_the_first_voters_record_has_the_configured_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = updates(monkeypatch)
    cluster = in_service("first addresses")
    cluster.run_for(5_000)
    assert is_recorded(cluster, "n1", "n2", "n3")
    assert sent == []


def test_a_voter_that_moved_writes_its_address(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = updates(monkeypatch)
    for node in cluster.nodes:
        stop(cluster, node)
        move(node, f"m{node.node_id}")
        node.start()
        hosts = [one.host for one in cluster.nodes]
        cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
        cluster.run_until(lambda: is_recorded(cluster, *hosts), 20_000, "all have the address")  # noqa: B023
    assert {one.voter_id for one in sent} == {1, 2, 3}


def test_the_voters_find_each_other_by_the_record_alone(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start, no registration is known before a leader is elected, unless a snapshot has
    it. Without snapshots and without names in the files, only the record has the addresses."""
    monkeypatch.setattr(Snapshotter, "moved", lambda self, image: None)
    one, two, three = cluster.nodes
    stop(cluster, two)
    move(two, "m2")
    two.start()
    cluster.run_until(lambda: is_recorded(cluster, "n1", "m2", "n3"), 60_000, "recorded")
    cluster.run_until(lambda: not must_catch_up(two), 20_000, "2 votes")
    stop(cluster, *cluster.nodes)
    for node in (one, three):
        node.configured = {str(node.node_id): node.configured[str(node.node_id)]}
        node.configured["9"] = {"host": "nowhere", "port": BETWEEN_PORT}
    one.start()
    three.start()
    cluster.run_until(lambda: cluster.active() in (one, three), 30_000, "1 and 3 elect")
    two.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    three.kill()
    cluster.run_until(lambda: cluster.active() in (one, two), 30_000, "1 and 2 elect")


def test_a_lost_answer_and_a_lost_leader_are_survived(cluster: WholeCluster) -> None:
    """The leader dies at a random moment after the move, ten times."""
    for number in range(10):
        node = cluster.nodes[number % 3]
        stop(cluster, node)
        move(node, f"a{number}")
        node.start()
        cluster.run_for(cluster.chance.randint(100, 9_000))
        leader = cluster.active()
        if leader is not None:
            leader.kill()
            cluster.run_for(cluster.chance.randint(0, 3_000))
            leader.start()
        cluster.run_until(lambda: is_in_service(cluster), 90_000, "all in service")
        hosts = [one.host for one in cluster.nodes]
        cluster.run_until(lambda: is_recorded(cluster, *hosts), 90_000, f"recorded {hosts}")  # noqa: B023


def test_a_disk_that_can_be_an_old_copy_sends_nothing_before_it_has_caught_up(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = cluster.nodes[1]
    behind: list[bool] = []
    updates(monkeypatch, lambda: behind.append(must_catch_up(two)))
    stop(cluster, two)
    move(two, "m2")
    two.start()
    cluster.run_until(lambda: is_recorded(cluster, "n1", "m2", "n3"), 60_000, "recorded")
    assert behind and not any(behind)


def update(node: WholeBroker, epoch: int, **changes: Any) -> UpdateRaftVoterRequest:
    values: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": epoch,
        "voter_id": node.node_id,
        "voter_directory_id": directory_of(node),
        "listeners": [QuorumListener(name="BROKER", host="new", port=1)],
        "k_raft_version_feature": VoterVersions(min_supported_version=1, max_supported_version=1),
    }
    return UpdateRaftVoterRequest(**(values | changes))


def answered(node: WholeBroker, request: UpdateRaftVoterRequest) -> ErrorCode:
    """Submit a request to the controller of a node. Return the error of its answer."""
    found: list[UpdateRaftVoterResponse] = []
    refused: list[ApiError] = []
    node.metadata.decide(request, found.append, refused.append)
    return refused[0].code if refused else ErrorCode.of(found[0].error_code)


def test_the_leader_refuses_as_kafka_does(cluster: WholeCluster) -> None:
    leader = cluster.active()
    assert leader is not None
    follower = next(one for one in cluster.nodes if one is not leader)
    epoch = leader.metadata.quorum.epoch
    other_listener = [QuorumListener(name="HOST", host="new", port=1)]
    old_versions = VoterVersions(min_supported_version=0, max_supported_version=0)
    for request, code in (
        (update(follower, epoch, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (update(follower, epoch - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (update(follower, epoch + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (update(follower, epoch, listeners=other_listener), ErrorCode.INVALID_REQUEST),
        (update(follower, epoch, listeners=[]), ErrorCode.INVALID_REQUEST),
        (
            update(follower, epoch, k_raft_version_feature=old_versions),
            ErrorCode.INVALID_REQUEST,
        ),
        (update(follower, epoch, voter_directory_id=Uuid(int=7)), ErrorCode.VOTER_NOT_FOUND),
        (
            update(follower, epoch, voter_id=9, voter_directory_id=ZERO_UUID),
            ErrorCode.VOTER_NOT_FOUND,
        ),
    ):
        assert answered(leader, request) is code, request
    assert answered(follower, update(leader, epoch)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert is_recorded(cluster, "n1", "n2", "n3")


def test_the_answer_names_the_leader(cluster: WholeCluster) -> None:
    leader = cluster.active()
    assert leader is not None
    follower = next(one for one in cluster.nodes if one is not leader)
    epoch = leader.metadata.quorum.epoch
    found: list[UpdateRaftVoterResponse] = []
    follower.metadata.decide(update(leader, epoch), found.append, lambda error: None)
    named = found[0].current_leader
    assert named is not None
    assert (named.leader_id, named.leader_epoch) == (leader.node_id, epoch)
    assert (named.host, named.port) == (leader.host, BETWEEN_PORT)


def test_at_a_level_without_changes_of_the_voters_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = updates(monkeypatch)
    monkeypatch.setattr("broker.controller.features.METADATA_LEVEL", LEVEL_4_0_IV1)
    cluster = in_service("old level")
    two = cluster.nodes[1]
    stop(cluster, two)
    move(two, "m2")
    two.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    cluster.run_for(10_000)
    assert is_recorded(cluster, "n1", "n2", "n3")
    leader = cluster.active()
    assert leader is not None
    request = update(leader, leader.metadata.quorum.epoch)
    assert answered(leader, request) is ErrorCode.UNSUPPORTED_VERSION
    # The request is built before the level is checked, and is not sent.
    assert {one.voter_id for one in sent} == {2}


def test_a_request_without_addresses_is_not_completed_from_the_image(
    cluster: WholeCluster,
) -> None:
    """Only an operator who adds a voter can leave out its addresses."""
    two = cluster.nodes[1]
    with pytest.raises(ApiError) as refused:
        change_of(update(two, 1, listeners=[]), CLUSTER_ID, two.metadata.image)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
