"""Admin requests and committed offsets with a scripted broker: retriable and fatal errors."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.group import (
    OffsetAndMetadata,
    commit_offsets,
    fetch_offsets,
    fetch_offsets_of_groups,
)
from protocol.client.quorum_admin import METADATA_TOPIC, QuorumReplica, describe_quorum
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import Coordinator, FindCoordinatorResponse
from protocol.messages.group import ListedGroup, ListGroupsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.voters import (
    DescribeQuorumPartition,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumListener,
    QuorumNode,
    QuorumReplicaState,
)
from protocol.types import LATEST_TIMESTAMP, TopicPartition, Uuid
from protocol.wire.schema import Message
from tests.harness.ports import free_port
from tests.unit.client.scripted_server import (
    CLOSE,
    HANG,
    Answer,
    Received,
    ScriptedServer,
    metadata,
)

TP = TopicPartition("t", 0)


class Broker:
    """Node 1, the coordinator of every group. It gives each request the next of the `answers` for
    its API."""

    def __init__(self) -> None:
        self.answers: dict[ApiKey, list[Answer]] = {}
        self.asked: list[ApiKey] = []
        self.port = 0
        self.other_nodes: dict[int, int] = {}

    def script(self, request: Received) -> Answer:
        key = ApiKey(request.api_key)
        self.asked.append(key)
        prepared = self.answers.get(key)
        if prepared:
            return prepared.pop(0)
        if key == ApiKey.METADATA:
            return metadata({1: self.port, **self.other_nodes}, {"t": {0: (1, 0)}})
        if key == ApiKey.FIND_COORDINATOR:
            here = Coordinator(key="g", node_id=1, host="127.0.0.1", port=self.port)
            return FindCoordinatorResponse(coordinators=[here])
        raise AssertionError(f"no answer left for {key.name}")


def administrating(test: Callable[[Cluster, Broker], Awaitable[None]]) -> None:
    async def run() -> None:
        broker = Broker()
        async with ScriptedServer(broker.script) as server:
            broker.port = server.port
            cluster = Cluster(server.address, client_id="me", request_timeout_ms=10_000)
            await cluster.start(10_000)
            try:
                await test(cluster, broker)
            finally:
                await cluster.close()

    asyncio.run(run())


def created(*codes: ErrorCode, name: str = "t") -> Message:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=f"{name}{i}", error_code=c) for i, c in enumerate(codes)]
    )


def committed(code: ErrorCode) -> Message:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
    )


def test_a_topic_that_exists_is_an_error_unless_it_may_be_ours() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        broker.answers[ApiKey.CREATE_TOPICS] = [created(exists)]
        with pytest.raises(ApiError, match="t0"):
            await Admin(cluster).create_topics([TopicSpec("t0")])
        # The first attempt may have created the topic before its response was lost. So
        # TOPIC_ALREADY_EXISTS is no error for the second attempt.
        broker.answers[ApiKey.CREATE_TOPICS] = [CLOSE, created(exists)]
        await Admin(cluster).create_topics([TopicSpec("t0")])
        assert broker.asked.count(ApiKey.CREATE_TOPICS) == 3

    administrating(test)


def test_what_is_done_stays_done_when_the_rest_is_repeated() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        none, exists = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS
        throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        broker.answers[ApiKey.CREATE_TOPICS] = [created(none, throttled), created(exists, none)]
        await Admin(cluster).create_topics([TopicSpec("t0"), TopicSpec("t1")])

    administrating(test)


def test_a_controller_that_has_moved_is_looked_for() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[ApiKey.CREATE_TOPICS] = [
            created(ErrorCode.NOT_CONTROLLER),
            created(ErrorCode.NONE),
        ]
        broker.asked.clear()
        await Admin(cluster).create_topics([TopicSpec("t0")])
        assert broker.asked == [ApiKey.CREATE_TOPICS, ApiKey.METADATA, ApiKey.CREATE_TOPICS]

    administrating(test)


def test_defaults_are_left_to_the_broker() -> None:
    seen: list[CreateTopicsRequest] = []

    async def run() -> None:
        def script(request: Received) -> Answer:
            if request.api_key == ApiKey.METADATA:
                return metadata({1: 1})
            assert isinstance(request.message, CreateTopicsRequest)
            seen.append(request.message)
            return created(ErrorCode.NONE)

        async with ScriptedServer(script) as server:
            cluster = Cluster(server.address, client_id="me")
            await cluster.start(10_000)
            cluster._addresses[1] = ("127.0.0.1", server.port)
            await Admin(cluster).create_topics([TopicSpec("t0", settings={"a": "b"})])
            await cluster.close()

    asyncio.run(run())
    (topic,) = seen[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert [(c.name, c.value) for c in topic.configs] == [("a", "b")]


@pytest.mark.parametrize(
    "answer", [CLOSE, committed(ErrorCode.NOT_COORDINATOR), committed(ErrorCode.REQUEST_TIMED_OUT)]
)
def test_a_commit_is_repeated_until_it_is_answered(answer: Answer) -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[ApiKey.OFFSET_COMMIT] = [answer, committed(ErrorCode.NONE)]
        await commit_offsets(cluster, "g", {TP: OffsetAndMetadata(1)})

    administrating(test)


def test_a_moved_coordinator_is_looked_for_again() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[ApiKey.OFFSET_COMMIT] = [
            committed(ErrorCode.NOT_COORDINATOR),
            committed(ErrorCode.NONE),
        ]
        await commit_offsets(cluster, "g", {TP: OffsetAndMetadata(1)})
        assert broker.asked.count(ApiKey.FIND_COORDINATOR) == 2

    administrating(test)


def test_a_group_with_members_refuses_at_once() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[ApiKey.OFFSET_COMMIT] = [committed(ErrorCode.UNKNOWN_MEMBER_ID)]
        with pytest.raises(ApiError, match="commit of t-0 for group 'g'"):
            await commit_offsets(cluster, "g", {TP: OffsetAndMetadata(1)})

    administrating(test)


@pytest.mark.parametrize("exists", [True, False])
def test_a_commit_is_repeated_only_for_a_topic_that_others_know(exists: bool) -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        unknown = committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker.answers[ApiKey.OFFSET_COMMIT] = [unknown, committed(ErrorCode.NONE)]
        if exists:
            await commit_offsets(cluster, "g", {TP: OffsetAndMetadata(1)})
            return
        gone = metadata({1: broker.port}, {"t": {}})
        gone.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.answers[ApiKey.METADATA] = [gone]
        with pytest.raises(ApiError, match="commit of t-0 for group 'g'"):
            await commit_offsets(cluster, "g", {TP: OffsetAndMetadata(1)})
        assert len(broker.answers[ApiKey.OFFSET_COMMIT]) == 1

    administrating(test)


def test_offsets_of_a_forbidden_group_do_not_hide_the_others() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        refused = OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id="a", error_code=code),
                OffsetFetchResponseGroup(group_id="b"),
            ]
        )
        alone = OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="a", error_code=code)]
        )
        broker.answers[ApiKey.OFFSET_FETCH] = [refused, alone, alone]
        found = await fetch_offsets_of_groups(cluster, ["a", "b"])
        assert isinstance(found["a"], ApiError)
        assert found["b"] == {}
        with pytest.raises(ApiError):
            await fetch_offsets(cluster, "a")

    administrating(test)


def test_a_silent_coordinator_takes_its_time_once_and_not_from_each_group() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        groups = [f"g{number}" for number in range(20)]
        broker.answers[ApiKey.OFFSET_FETCH] = [HANG] * 1_000
        begin = asyncio.get_running_loop().time()
        found = await fetch_offsets_of_groups(cluster, groups, timeout_ms=150)
        took_s = asyncio.get_running_loop().time() - begin
        assert all(isinstance(found[group], ApiError | ClientError) for group in groups)
        assert took_s < 20 * 0.15 / 2, "one after the other they would take 3 s"

    administrating(test)


def test_the_quorum_is_read_and_its_errors_raised() -> None:
    def answer(code: ErrorCode = ErrorCode.NONE, inner: ErrorCode = ErrorCode.NONE) -> Message:
        states = [
            QuorumReplicaState(replica_id=1, replica_directory_id=Uuid(int=1), log_end_offset=9,
                         last_fetch_timestamp=5, last_caught_up_timestamp=4),
            QuorumReplicaState(replica_id=2, log_end_offset=-1),
        ]  # fmt: skip
        partition = DescribeQuorumPartition(
            error_code=inner, leader_id=1, leader_epoch=3, high_watermark=8, current_voters=states
        )
        listener = QuorumListener(name="BROKER", host="::1", port=9)
        return DescribeQuorumResponse(
            error_code=code,
            topics=[DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
            nodes=[QuorumNode(node_id=1, listeners=[listener])],
        )

    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[ApiKey.DESCRIBE_QUORUM] = [answer()]
        found = await describe_quorum(cluster)
        assert (found.leader_id, found.leader_epoch, found.high_watermark) == (1, 3, 8)
        assert found.voters == (
            QuorumReplica(1, Uuid(int=1), 9, 5, 4),
            QuorumReplica(2, None, None, None, None),
        )
        assert found.endpoints == {1: ("BROKER://[::1]:9",)}
        assert [found.lag(one) for one in found.voters] == [0, None]
        for refused in (
            answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            answer(inner=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            broker.answers[ApiKey.DESCRIBE_QUORUM] = [refused] * 100
            with pytest.raises(ApiError):
                await describe_quorum(cluster, timeout_ms=100)

    administrating(test)


def test_groups_of_a_broker_that_is_away_are_named_as_missing() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.other_nodes = {2: free_port()}
        broker.answers[ApiKey.LIST_GROUPS] = [
            ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])
        ]
        listed = await Admin(cluster).list_groups(timeout_ms=500)
        assert [group.group_id for group in listed.groups] == ["g"]
        assert list(listed.failures) == [2]

    administrating(test)


def test_offsets_are_repeated_after_a_move_and_carry_their_errors() -> None:
    def answer(code: ErrorCode, offset: int = -1) -> Message:
        partition = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
        topic = ListOffsetsTopicResponse(name="t", partitions=[partition])
        return ListOffsetsResponse(topics=[topic])

    async def test(cluster: Cluster, broker: Broker) -> None:
        admin = Admin(cluster)
        moved = answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.answers[ApiKey.LIST_OFFSETS] = [moved, answer(ErrorCode.NONE, 7)]
        assert (await admin.list_offsets({TP: LATEST_TIMESTAMP}))[TP].offset == 7
        forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.answers[ApiKey.LIST_OFFSETS] = [answer(forbidden)]
        assert (await admin.list_offsets({TP: LATEST_TIMESTAMP}))[TP].error == forbidden
        broker.answers[ApiKey.LIST_OFFSETS] = [CLOSE] * 20
        found = await admin.list_offsets({TP: LATEST_TIMESTAMP}, timeout_ms=100)
        assert found[TP].error == ErrorCode.NETWORK_EXCEPTION

    administrating(test)
