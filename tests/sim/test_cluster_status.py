"""Three simulated brokers report their cluster in `/status` and `/metrics`, with and without
faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.metadata.features import METADATA_LEVEL, OLDEST_LEVEL
from broker.metadata.records import BROKER_RESOURCE
from broker.node import cluster_status
from broker.node.status import BrokerStatus
from broker.replicas import copies
from broker.world import Address
from protocol.errors import ErrorCode
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.membership import UnregisterBrokerRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.voters import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from protocol.status import PartState
from tests.sim.clients import Client, Script, batch_of, topic_made, written
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster

PARTITIONS = 6


@pytest.fixture
def cluster() -> WholeCluster:
    """Return three brokers with a topic of three replicas."""
    cluster = WholeCluster("status")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    asked(cluster, 1, topic_made("t", PARTITIONS, replication_factor=3, min_insync_replicas="3"))
    cluster.run_for(1_000)
    return cluster


def asked(cluster: WholeCluster, node_id: int, script: Script) -> None:
    """Let a client run a script against one broker."""
    brokers = {node.node_id: Address(node.host, HOST_PORT) for node in cluster.nodes}
    client = Client(
        cluster.network, f"c{cluster.chance.random()}", brokers, script, lambda _: node_id
    )
    cluster.run_until(lambda: client.is_done, 30_000, "the client's work is done")


def answer_of(cluster: WholeCluster, node_id: int, request: Any) -> Any:
    """Send a request to one broker. Return its response."""
    answers: list[Any] = []

    def script() -> Script:
        while not answers:
            answer = yield request
            if answer is not None:
                answers.append(answer)

    asked(cluster, node_id, script())
    return answers[0]


def details(node: WholeBroker) -> Mapping[str, Any]:
    assert node.broker is not None
    return BrokerStatus(node.broker, 0).status().details


def gauge(node: WholeBroker, name: str) -> int:
    assert node.broker is not None
    lines = BrokerStatus(node.broker, 0).metrics().splitlines()
    return int(next(one for one in lines if one.startswith(f"millrace_broker_{name} ")).split()[1])


def led(node: WholeBroker) -> list[Any]:
    return [row for row in details(node)["partition_list"] if row["role"] == "leader"]


def two_left(cluster: WholeCluster) -> tuple[WholeBroker, list[WholeBroker]]:
    """Kill a broker that is not the controller, and wait until the others have noticed. Return it,
    and the others."""
    killed = next(node for node in cluster.nodes if node is not cluster.active())
    killed.kill()
    cluster.run_for(8_000)
    return killed, cluster.running


def test_fenced_brokers_are_listed_on_request(cluster: WholeCluster) -> None:
    killed, (one, two) = two_left(cluster)
    for node in (one, two):
        listed = answer_of(cluster, node.node_id, DescribeClusterRequest()).brokers
        assert [named.broker_id for named in listed] == [one.node_id, two.node_id]
        everything = answer_of(
            cluster, node.node_id, DescribeClusterRequest(include_fenced_brokers=True)
        ).brokers
        fenced = {named.broker_id: named.is_fenced for named in everything}
        assert fenced == {one.node_id: False, two.node_id: False, killed.node_id: True}


def test_each_says_what_it_is_and_one_is_the_controller(cluster: WholeCluster) -> None:
    told = [details(node) for node in cluster.nodes]
    assert [one["is_controller"] for one in told].count(True) == 1
    assert sorted(one["quorum_role"] for one in told) == ["follower", "follower", "leader"]
    assert sum(gauge(node, "active_controller_count") for node in cluster.nodes) == 1
    assert {(one["controller_id"], one["controller_epoch"]) for one in told} == {
        (next(one["node_id"] for one in told if one["is_controller"]), told[0]["controller_epoch"])
    }
    for one in told:
        assert (one["is_fenced"], one["is_stopping"]) == (False, False)
        assert [row["node_id"] for row in one["brokers"]] == [1, 2, 3]
        own = one["brokers"][one["node_id"] - 1]
        assert own["rack"] is None, "no rack is configured"
        assert own["broker_epoch"] == one["broker_epoch"]
        assert own["listeners"]["HOST"] == f"n{one['node_id']}:{HOST_PORT}"
    assert len({row["incarnation_id"] for row in told[0]["brokers"]}) == 3
    assert sum(one["leads"] for one in told) == PARTITIONS
    assert {gauge(node, "leader_count") for node in cluster.nodes} == {one["leads"] for one in told}
    for name in ("under_replicated", "under_min_isr", "offline", "follower_lag_max"):
        assert [one[name] for one in told] == [0, 0, 0], name


def test_the_leader_alone_says_how_far_the_quorum_is(cluster: WholeCluster) -> None:
    for node in cluster.nodes:
        quorum = details(node)["quorum"]
        assert (quorum is None) == (node is not cluster.active())
        if quorum is not None:
            assert [row["node_id"] for row in quorum["voters"]] == [1, 2, 3]
            assert {row["lag"] for row in quorum["voters"]} == {0}
            assert all(row["caught_up_ago_ms"] < 1_000 for row in quorum["voters"])


def test_every_broker_gives_the_leaders_answer_and_names_the_controller(
    cluster: WholeCluster,
) -> None:
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopic(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartition()]
            )
        ]
    )
    active = cluster.active()
    assert active is not None
    for node in cluster.nodes:
        answer = answer_of(cluster, node.node_id, request)
        found = answer.topics[0].partitions[0]
        assert (answer.error_code, found.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert found.leader_id == active.node_id
        assert [one.replica_id for one in found.current_voters] == [1, 2, 3]
        names = [[one.name for one in node.listeners] for node in answer.nodes]
        assert names == [["BROKER"]] * 3
        assert answer_of(cluster, node.node_id, MetadataRequest()).controller_id == active.node_id


def test_followers_are_known_where_a_partition_is_led(cluster: WholeCluster) -> None:
    for node in cluster.nodes:
        rows = details(node)["partition_list"]
        assert len(rows) == PARTITIONS
        for row in rows:
            seen = node.metadata.image.topics["t"].partitions[row["partition"]]
            is_led = seen.leader == node.node_id
            assert row["role"] == ("leader" if is_led else "follower")
            assert (row["leader_epoch"], row["partition_epoch"]) == (
                seen.leader_epoch,
                seen.partition_epoch,
            )
            assert [one["node_id"] for one in row.get("followers", ())] == (
                [one for one in (1, 2, 3) if one != node.node_id] if is_led else []
            )
            for one in row.get("followers", ()):
                assert (one["lag"], one["is_in_sync"]) == (0, True)


def test_a_dead_broker_is_fenced_and_what_it_held_is_under_replicated(
    cluster: WholeCluster,
) -> None:
    killed, left = two_left(cluster)
    for node in left:
        told = details(node)
        fenced = {row["node_id"]: row["is_fenced"] for row in told["brokers"]}
        assert fenced == {one.node_id: one is killed for one in cluster.nodes}
        assert told["leads"] == told["under_replicated"] == told["under_min_isr"] > 0
        assert gauge(node, "under_replicated_partitions") == told["leads"]
        assert gauge(node, "under_min_isr_partition_count") == told["leads"]
        assert told["offline"] == gauge(node, "offline_partitions_count") == 0
        for row in led(node):
            outsider = next(one for one in row["followers"] if one["node_id"] == killed.node_id)
            assert not outsider["is_in_sync"]
    active = cluster.active()
    assert active is not None
    quorum = details(active)["quorum"]["voters"]
    dead = next(row for row in quorum if row["node_id"] == killed.node_id)
    assert dead["lag"] > 0
    assert dead["caught_up_ago_ms"] > 5_000


def test_followers_are_listed_of_so_many_partitions_at_most_the_worst_first(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, (node, other) = two_left(cluster)
    assert details(node)["followers_left_out"] == 0
    known = len(led(node))
    assert known > 2
    monkeypatch.setattr(cluster_status, "FOLLOWED_ROWS_MAX", 2)
    told = details(node)
    assert told["followers_left_out"] == known - 2
    assert len([row for row in told["partition_list"] if "followers" in row]) == 2
    assert len(told["partition_list"]) == PARTITIONS
    monkeypatch.undo()
    killed.start()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "it is back")
    cluster.run_until(
        lambda: details(node)["under_replicated"] + details(other)["under_replicated"] == 0,
        60_000,
        "it is in sync again",
    )


def test_a_broker_that_is_out_of_service_says_so(cluster: WholeCluster) -> None:
    """A broker that was cut off and fenced must report that in its status after it is connected
    again."""
    node = next(one for one in cluster.nodes if one is not cluster.active())
    assert node.broker is not None
    status = BrokerStatus(node.broker, 0)
    status.state = PartState.RUNNING
    assert status.status().state is PartState.RUNNING
    others = [one.host for one in cluster.nodes if one is not node]
    seen: list[tuple[str, ...]] = []

    def is_said() -> bool:
        told = status.status()
        seen.append(tuple(problem.code for problem in told.problems))
        # While it is cut off, it reports that there is no quorum.
        return told.state is PartState.DEGRADED and "fenced" in seen[-1]

    # If one response tells the broker of its fencing and of its return, its status never shows
    # the fencing. Then cut it off again.
    for _ in range(5):
        for host in others:
            cluster.network.cut(node.host, host)
        cluster.run_for(15_000)
        cluster.network.heal()
        for _ in range(500):
            if is_said():
                break
            cluster.run_for(10)
        if "fenced" in seen[-1]:
            break
    assert "fenced" in seen[-1]
    cluster.run_until(lambda: not is_said(), 30_000, "it is in service again")


def test_a_broker_that_serves_or_holds_replicas_is_not_forgotten(cluster: WholeCluster) -> None:
    """UnregisterBroker goes to a broker that is not the controller. That broker must forward it and
    return the controller's error message."""
    other = next(node for node in cluster.nodes if node is not cluster.active())
    refused = answer_of(cluster, other.node_id, UnregisterBrokerRequest(broker_id=other.node_id))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "stop it first" in refused.error_message

    killed, left = two_left(cluster)
    asked_of = next(node for node in left if node is not cluster.active())
    refused = answer_of(
        cluster, asked_of.node_id, UnregisterBrokerRequest(broker_id=killed.node_id)
    )
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "still has replicas of" in refused.error_message
    assert "move these to other brokers first" in refused.error_message


def test_each_says_which_brokers_are_needed_while_one_is_away(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status lists in `copies` which brokers are needed. The supervisor and `millrace restart`
    rely on this list."""
    asked(cluster, 1, topic_made("two", 2, replication_factor=3, min_insync_replicas="2"))
    asked(cluster, 1, topic_made("one", 1, replication_factor=3, min_insync_replicas="1"))
    cluster.run_for(1_000)
    for node in cluster.nodes:
        assert details(node)["copies"] == {"not_in_sync": 0, "needed": {}}
    killed, left = two_left(cluster)
    needed = {str(node.node_id): {"count": 2, "partitions": ["two-0", "two-1"]} for node in left}
    for node in left:
        # With one broker dead, topic "two" needs both remaining replicas, and topic "one" needs
        # one.
        assert details(node)["copies"] == {"not_in_sync": PARTITIONS + 3, "needed": needed}
    monkeypatch.setattr(cluster_status, "NEEDED_NAMED_MAX", 1)
    shown = details(left[0])["copies"]["needed"][str(left[0].node_id)]
    assert shown == {"count": 2, "partitions": ["two-0"]}
    killed.start()
    cluster.run_until(lambda: killed.is_ready, 20_000, "it is back")
    # The broker is in service, but its replicas do not have all records yet.
    assert details(killed)["copies"]["not_in_sync"] > 0
    cluster.run_until(
        lambda: all(details(node)["copies"]["not_in_sync"] == 0 for node in cluster.nodes),
        20_000,
        "all copies are in sync",
    )
    assert details(killed)["copies"]["needed"] == {}


def set_on(cluster: WholeCluster, node_id: int, **settings: str) -> None:
    """Set settings of a broker. The keys have underscores instead of dots."""
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name=str(node_id),
        configs=[
            AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ],
    )
    answer = answer_of(cluster, node_id, IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0].error_message
    cluster.run_for(1_000)


def test_each_tells_cordons_rates_and_levels_of_all(cluster: WholeCluster) -> None:
    set_on(cluster, 2, cordoned_log_dirs="*", follower_replication_throttled_rate="5000")
    for node in cluster.nodes:
        told = details(node)
        assert told["finalised_level"] == METADATA_LEVEL
        rows = told["brokers"]
        assert [row["is_cordoned"] for row in rows] == [False, True, False]
        assert [row["follower_rate"] for row in rows] == [None, 5_000, None]
        assert {row["leader_rate"] for row in rows} == {None}
        assert {(row["levels"]["oldest"], row["levels"]["newest"]) for row in rows} == {
            (OLDEST_LEVEL, METADATA_LEVEL)
        }


def filled(topic: str, count: int) -> Script:
    """Write `count` records of 200 kB."""
    for _ in range(count):
        yield from written(topic, 0, batch_of(b"x" * 200_000, (-1, -1, -1)), None)


def test_copies_that_wait_for_room_are_a_problem(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker returns and lacks many records. Its disk counts as nearly full, because more than
    half of it is used. Its status must report that copies wait."""
    monkeypatch.setattr(copies, "ROOM_MIN_SHARE", 2)
    asked(cluster, 1, topic_made("copied", 1, replication_factor=3, min_insync_replicas="1"))
    cluster.run_for(1_000)
    leader = cluster.running[0].metadata.image.topics["copied"].partitions[0].leader
    node = next(one for one in cluster.nodes if one.node_id != leader)
    asked(cluster, leader, filled("copied", 20))
    node.kill()
    cluster.run_for(8_000)
    leader = cluster.running[0].metadata.image.topics["copied"].partitions[0].leader
    asked(cluster, leader, filled("copied", 20))
    node.disk.capacity_bytes = node.disk.used_bytes() * 3 // 2
    node.start()

    def codes() -> list[str]:
        if node.broker is None or not node.broker.is_serving:
            return []
        return [one.code for one in BrokerStatus(node.broker, 0).status().problems]

    cluster.run_until(lambda: "no_room_to_copy" in codes(), 60_000, "it says so")
    assert details(node)["copying"]["is_out_of_room"] is True

    def copy() -> Mapping[str, Any]:
        rows = [row for row in details(node)["partition_list"] if row["topic"] == "copied"]
        return dict(rows[0].get("copy", {}))

    cluster.run_until(lambda: copy().get("waits_for") == ["room"], 10_000, "its copy waits")
    assert copy()["missing_bytes"] > copies.ROOM_COPY_BYTES
    node.disk.capacity_bytes = None
    cluster.run_until(lambda: details(node).get("is_fenced") is False, 60_000, "it is back")
    cluster.run_until(lambda: codes() == [], 60_000, "the copy has ended")
    cluster.run_until(lambda: not details(node)["copying"]["count"], 60_000, "nothing is copied")
    assert not [row for row in details(node)["partition_list"] if "copy" in row]
