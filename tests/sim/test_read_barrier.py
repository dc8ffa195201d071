"""Readers get no stale data when a leader changes, and no end offset goes back."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.image import OFFSETS_TOPIC
from broker.sessions.peers import LinkKind, Peers
from broker.world import Address, End
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.types import LATEST_TIMESTAMP, NO_NODE
from protocol.wire.schema import Message
from tests.sim.clients import Client, Committed, Produced, topic_made
from tests.sim.sides import LAST_VERSIONS
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster

TOPIC = "t"
GROUP = "g"
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
}
CONSUMER_ID = -1

FETCH = FetchRequest(
    max_wait_ms=0,
    min_bytes=1,
    topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=1)])],
)
ENDS = ListOffsetsRequest(
    replica_id=CONSUMER_ID,
    topics=[
        ListOffsetsTopic(
            name=TOPIC,
            partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)],
        )
    ],
)
EPOCH_END = OffsetForLeaderEpochRequest(
    replica_id=CONSUMER_ID,
    topics=[
        OffsetForLeaderTopic(
            topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
        )
    ],
)
COMMITTED = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


def head_code(answer: Any) -> int:
    code: int = answer.error_code
    return code


def fetch_code(answer: Any) -> int:
    code: int = answer.responses[0].partitions[0].error_code
    return code


def list_code(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


def group_code(answer: Any) -> int:
    code: int = answer.groups[0].error_code
    return code


class Scene:
    """A cluster with one partition that has a record, and one group with a committed offset."""

    def __init__(self, name: str) -> None:
        self.cluster = cluster = WholeCluster(name, 3, SETTINGS)
        self._host_count = 0
        for node in cluster.nodes:
            node.start()
        cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
        self.run(topic_made(TOPIC, 1, replication_factor=3))
        self.run(Produced("before", TOPIC, 1).script(0), lambda _: self.leader_of(TOPIC))
        self.run(Committed(GROUP, TOPIC, 1).script(), lambda _: self.leader_of(OFFSETS_TOPIC))

    def run(self, script: Any, find: Any = lambda request: 1) -> None:
        """Run a client's script, and wait until it ends."""
        brokers = {node.node_id: Address(node.host, HOST_PORT) for node in self.cluster.nodes}
        client = Client(self.cluster.network, self._host(), brokers, script, find)
        self.cluster.run_until(lambda: client.is_done, 20_000, "the client is done")

    def _host(self) -> str:
        self._host_count += 1
        return f"c{self._host_count}"

    def leader_of(self, topic: str) -> int:
        """Return the leader of the topic's only partition by the newest image. Return broker 1 if
        the topic does not exist yet."""
        images = [node.metadata.image for node in self.cluster.running]
        newest = max(images, key=lambda image: image.end_offset)
        known = newest.topics.get(topic)
        return known.partitions[0].leader if known is not None else 1

    def node(self, node_id: int) -> WholeBroker:
        return self.cluster.nodes[node_id - 1]

    def ask_asleep(self, node: WholeBroker, topic: str, request: Message) -> list[Any]:
        """Freeze a broker, send it a request, and wait until another broker leads. Return the list
        that will get the response."""
        self.cluster.network.freeze(node.host)
        late = self.ask(node, request)
        self.cluster.run_until(
            lambda: self.leader_of(topic) not in (node.node_id, NO_NODE), 30_000, "another leads"
        )
        return late

    def ask(self, node: WholeBroker, request: Message) -> list[Any]:
        """Send a request to a broker without waiting. Return the list that will get the
        response."""
        host = self._host()
        world = self.cluster.network.world(host)
        address = Address(node.host, HOST_PORT)
        peers = Peers(world, host, {node.node_id: address}, versions=LAST_VERSIONS)
        heard: list[Any] = []

        def failed(end: End) -> None:
            heard.append(end)

        deadline_ms = world.clock.monotonic_ms() + 60_000
        peers.ask(node.node_id, LinkKind.DATA, request, deadline_ms, heard.append, failed)
        return heard


@pytest.mark.parametrize(
    ("request_", "topic", "code_of", "refusal"),
    [
        (FETCH, TOPIC, fetch_code, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ENDS, TOPIC, list_code, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (EPOCH_END, TOPIC, list_code, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (COMMITTED, OFFSETS_TOPIC, group_code, ErrorCode.NOT_COORDINATOR),
    ],
    ids=["Fetch", "ListOffsets", "OffsetForLeaderEpoch", "OffsetFetch"],
)
def test_a_leader_that_wakes_deposed_returns_no_old_state(
    request_: Message, topic: str, code_of: Any, refusal: ErrorCode
) -> None:
    scene = Scene(f"barrier {request_.api_key}")
    cluster = scene.cluster
    old = scene.node(scene.leader_of(topic))
    # The broker must accept this request now. So only the read barrier can reject it later.
    heard = scene.ask(old, request_)
    cluster.run_until(lambda: bool(heard), 5_000, "an answer")
    assert code_of(heard[0]) == ErrorCode.NONE
    late = scene.ask_asleep(old, topic, request_)
    scene.run(Produced("after", TOPIC, 1).script(0), lambda _: scene.leader_of(TOPIC))
    scene.run(Committed(GROUP, TOPIC, 2).script(), lambda _: scene.leader_of(OFFSETS_TOPIC))
    assert not late
    cluster.network.thaw(old.host)
    cluster.run_until(lambda: bool(late), 5_000, "an answer")
    assert code_of(late[0]) == refusal
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "it is back")


@pytest.mark.parametrize(
    ("request_", "code_of"),
    [
        (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), head_code),
        (
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="m",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            head_code,
        ),
        (
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=1,
                member_id="m",
                protocol_type="consumer",
                protocol_name="range",
            ),
            head_code,
        ),
        (
            LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")]),
            lambda answer: answer.members[0].error_code,
        ),
        (
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=1,
                member_id="m",
                topics=[
                    OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=1, committed_metadata=""
                            )
                        ],
                    )
                ],
            ),
            list_code,
        ),
    ],
    ids=["Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup", "OffsetCommit"],
)
def test_a_coordinator_that_wakes_deposed_refuses_no_newer_member(
    request_: Message, code_of: Any
) -> None:
    """The deposed coordinator does not know a member that has joined since. It must not answer
    UNKNOWN_MEMBER_ID, because that would make the member leave."""
    scene = Scene(f"members {request_.api_key}")
    cluster = scene.cluster
    old = scene.node(scene.leader_of(OFFSETS_TOPIC))
    heard = scene.ask(old, request_)
    cluster.run_until(lambda: bool(heard), 5_000, "an answer")
    assert code_of(heard[0]) == ErrorCode.UNKNOWN_MEMBER_ID
    late = scene.ask_asleep(old, OFFSETS_TOPIC, request_)
    cluster.network.thaw(old.host)
    cluster.run_until(lambda: bool(late), 5_000, "an answer")
    assert code_of(late[0]) == ErrorCode.NOT_COORDINATOR


def test_a_leader_that_only_slept_reads_again_as_soon_as_it_is_heard() -> None:
    scene = Scene("short sleep")
    cluster = scene.cluster
    node = scene.node(scene.leader_of(TOPIC))
    cluster.network.freeze(node.host)
    cluster.run_for(2_000)
    cluster.network.thaw(node.host)
    began_ms, code = cluster.network.timeline.clock.monotonic_ms(), -1
    while code != ErrorCode.NONE:
        heard = scene.ask(node, ENDS)
        while not heard:
            cluster.run_for(1)
        code = list_code(heard[0])
        assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert cluster.network.timeline.clock.monotonic_ms() - began_ms < 500
    assert scene.leader_of(TOPIC) == node.node_id


def test_the_end_of_a_log_never_goes_back_when_its_leader_dies() -> None:
    """A follower learns late which records are committed. When it leads, it must not return an end
    offset below theirs (KIP-207)."""
    scene = Scene("ends")
    cluster = scene.cluster
    codes = set()
    for number in range(4):
        produced = Produced(f"p{number}", TOPIC, 1)
        scene.run(produced.script(0), lambda _: scene.leader_of(TOPIC))
        ((acknowledged,),) = produced.offsets.values()
        old = scene.node(scene.leader_of(TOPIC))
        old.kill()
        while (leader := scene.leader_of(TOPIC)) in (old.node_id, NO_NODE):
            cluster.run_for(1)
        code = ErrorCode.OFFSET_NOT_AVAILABLE
        while code != ErrorCode.NONE:
            heard = scene.ask(scene.node(leader), ENDS)
            while not heard:
                cluster.run_for(1)
            code = ErrorCode(list_code(heard[0]))
            assert code == ErrorCode.NONE or code.retriable
            codes.add(code)
        assert heard[0].topics[0].partitions[0].offset > acknowledged
        old.start()
        cluster.run_until(lambda: is_in_service(cluster), 20_000, "it is back")
        cluster.run_for(2_000)
    assert ErrorCode.OFFSET_NOT_AVAILABLE in codes
