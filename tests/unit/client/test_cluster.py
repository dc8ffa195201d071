"""The client's `Cluster` with scripted servers: how it finds brokers, leaders and coordinators."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.client.bootstrap import parse_bootstrap_servers
from protocol.client.cluster import GENERAL, Cluster
from protocol.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    is_transient,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import Coordinator, FindCoordinatorResponse
from protocol.messages.group import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from protocol.types import TopicPartition
from tests.harness.ports import free_port
from tests.unit.client.scripted_server import (
    CLOSE,
    HANG,
    Answer,
    Received,
    Script,
    ScriptedServer,
    metadata,
)

TP = TopicPartition("t", 0)


def with_cluster(
    script: Script, test: Callable[[Cluster, ScriptedServer], Awaitable[None]]
) -> None:
    """Run a test with one scripted server and a client that has not started yet."""

    async def run() -> None:
        async with ScriptedServer(script) as server:
            cluster = Cluster(server.address, client_id="me", request_timeout_ms=10_000)
            try:
                await test(cluster, server)
            finally:
                await cluster.close()

    asyncio.run(run())


class Script1:
    """The script of a cluster of one server with id 1. A test can change `topics` and the error
    codes at any time."""

    def __init__(self) -> None:
        self.server: ScriptedServer | None = None
        self.topics: dict[str, dict[int, tuple[int, int]]] = {}
        self.questions: list[MetadataRequest] = []
        self.release: asyncio.Event | None = None

    def __call__(self, request: Received) -> Answer | Awaitable[Answer]:
        if request.api_key == ApiKey.METADATA:
            assert isinstance(request.message, MetadataRequest)
            self.questions.append(request.message)
            return self._metadata(request.message)
        return ListGroupsResponse()

    async def _metadata(self, question: MetadataRequest) -> MetadataResponse:
        if self.release is not None:
            await self.release.wait()
        assert self.server is not None
        names = (
            list(self.topics)
            if question.topics is None
            else [topic.name or "" for topic in question.topics]
        )
        known = {name: self.topics[name] for name in names if name in self.topics}
        response = metadata({1: self.server.port}, known)
        response.topics += [
            MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
            if name not in self.topics
        ]
        return response


def with_one_node(test: Callable[[Cluster, Script1], Awaitable[None]]) -> None:
    script = Script1()

    async def started(cluster: Cluster, server: ScriptedServer) -> None:
        script.server = server
        await cluster.start(10_000)
        script.questions.clear()
        await test(cluster, script)

    with_cluster(script, started)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a:", "a:0", "a:65536", "a:b", ":9092"])
def test_bootstrap_servers_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_bootstrap_servers(text)


def test_start_finds_the_server_that_is_there() -> None:
    async def run() -> None:
        async with ScriptedServer(lambda request: metadata({1: 1})) as server:
            servers = f"127.0.0.1:{free_port()},{server.address}"
            cluster = Cluster(servers, client_id="me")
            await cluster.start(5000)
            assert list(cluster.current.brokers) == [1]
            await cluster.close()

    asyncio.run(run())


def test_start_waits_until_a_server_comes() -> None:
    async def run() -> None:
        port = free_port()
        cluster = Cluster(f"127.0.0.1:{port}", client_id="me")
        starting = asyncio.create_task(cluster.start())
        while not cluster._bootstrap[0].is_backing_off:
            await asyncio.sleep(0)
        # The first attempt has failed, but `start` keeps trying.
        assert not starting.done()
        server = ScriptedServer(lambda request: metadata({1: 1}))
        await server.start(port)
        await asyncio.wait_for(starting, 5)
        await cluster.close()
        await server.stop()

    asyncio.run(run())


def test_start_gives_up_with_the_reason() -> None:
    async def run() -> None:
        cluster = Cluster(f"127.0.0.1:{free_port()}", client_id="me")
        with pytest.raises(BrokerUnreachable, match="within 150 ms: "):
            await cluster.start(150)
        await cluster.close()
        with pytest.raises(ClientClosed):
            await cluster.metadata(["t"])

    asyncio.run(run())


def test_one_question_for_all_who_ask_the_same() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        script.topics = {"t": {0: (1, 0)}, "u": {0: (1, 0)}}
        script.release = asyncio.Event()
        asked = [asyncio.create_task(cluster.metadata(["t"])) for _ in range(10)]
        while not script.questions:
            await asyncio.sleep(0)
        late = [asyncio.create_task(cluster.metadata(["t"])) for _ in range(5)]
        other = [asyncio.create_task(cluster.metadata(["u"])) for _ in range(5)]
        await asyncio.sleep(0)
        script.release.set()
        await asyncio.gather(*asked, *late, *other)
        names = [[topic.name for topic in q.topics or ()] for q in script.questions]
        assert names == [["t"], ["u"]]

    with_one_node(test)


def test_what_is_known_is_not_asked_again_but_renewed_when_old() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        script.topics = {"t": {0: (1, 0)}}
        for _ in range(3):
            await cluster.metadata(["t"])
        assert len(script.questions) == 1
        cluster._cache.age_max_ms = 0
        assert (await cluster.metadata(["t"])).leader(TP) == 1
        while len(script.questions) < 2:
            await asyncio.sleep(0)
        await cluster.metadata(["t"], refresh=True)

    with_one_node(test)


def test_all_topics_and_missing_ones() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        script.topics = {"t": {0: (1, 0)}}
        assert set((await cluster.metadata()).topics) == {"t"}
        current = await cluster.metadata(["nope"])
        assert current.topics["nope"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_one_node(test)


def test_consent_to_create_is_passed_on() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        await cluster.metadata(["t"], allow_auto_topic_creation=True)
        await cluster.metadata(["u"])
        assert [q.allow_auto_topic_creation for q in script.questions] == [True, False]

    with_one_node(test)


def test_leader_waits_for_an_election() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        script.topics = {"t": {0: (-1, 4)}}
        waiting = asyncio.create_task(cluster.leader(TP))
        while len(script.questions) < 3:
            await asyncio.sleep(0.01)
        script.topics = {"t": {0: (1, 5)}}
        assert await waiting == 1

    with_one_node(test)


def test_leader_says_why_there_is_none() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        with pytest.raises(ApiError) as caught:
            await cluster.leader(TP, timeout_ms=100)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_one_node(test)


def test_a_forgotten_leader_is_asked_for() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        script.topics = {"t": {0: (1, 5)}}
        await cluster.leader(TP)
        cluster.forget_leader(TP)
        asked = len(script.questions)
        assert await cluster.leader(TP) == 1
        assert len(script.questions) > asked

    with_one_node(test)


def test_an_unknown_node() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        with pytest.raises(BrokerUnreachable, match="broker 9 is not in the cluster"):
            await cluster.request(9, ListGroupsRequest())

    with_one_node(test)


def test_the_connection_is_made_again_after_it_was_lost() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        assert script.server is not None
        await cluster.request(1, ListGroupsRequest())
        connection = cluster.ready_connection(1)
        assert connection is not None
        count = script.server.connection_count
        connection.close()
        await asyncio.gather(*(cluster.request(1, ListGroupsRequest()) for _ in range(5)))
        assert script.server.connection_count == count + 1

    with_one_node(test)


def test_purposes_have_connections_of_their_own_and_give_them_back() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        purpose = cluster.new_purpose("fetch")
        assert purpose != cluster.new_purpose("fetch")
        mine = await cluster.connection(1, purpose)
        assert mine is not await cluster.connection(1)
        await cluster.release(purpose)
        assert mine.is_closed
        assert cluster.ready_connection(1, purpose) is None

    with_one_node(test)


def test_a_bootstrap_server_that_is_a_broker_needs_one_connection() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        assert script.server is not None
        await cluster.request(1, ListGroupsRequest())
        await cluster.request(None, ListGroupsRequest())
        assert script.server.connection_count == 1
        assert cluster.ready_connection(1) is not None

    with_one_node(test)


def test_the_connections_of_short_requests_are_not_released() -> None:
    async def test(cluster: Cluster, script: Script1) -> None:
        connection = await cluster.connection(1)
        await cluster.release(GENERAL)
        assert not connection.is_closed

    with_one_node(test)


def test_a_broker_that_has_moved_leaves_the_bootstrap_server() -> None:
    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        port = server.port
        server.script = lambda request: metadata({1: port})
        await cluster.start(10_000)
        await cluster.connection(1)
        port = free_port()
        await cluster.metadata(refresh=True)
        port = server.port
        await cluster.metadata(refresh=True)
        await cluster.connection(1)

    with_cluster(lambda request: HANG, test)


def test_what_a_node_that_has_moved_did_not_answer_may_be_sent_again() -> None:
    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        port = server.port
        server.script = lambda request: (
            metadata({1: port}) if request.api_key == ApiKey.METADATA else HANG
        )
        await cluster.start(10_000)
        connection = await cluster.connection(1, cluster.new_purpose("test"))
        asked = connection.send(ListGroupsRequest(), timeout_ms=10_000)
        port = free_port()
        await cluster.metadata(refresh=True)
        with pytest.raises(ConnectionLost, match=f"moved to 127.0.0.1:{port}") as caught:
            await asked
        assert is_transient(caught.value)

    with_cluster(lambda request: HANG, test)


def test_a_lost_answer_is_not_asked_for_twice() -> None:
    def script(request: Received) -> Answer:
        return metadata({1: 1}) if request.api_key == ApiKey.METADATA else CLOSE

    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        with pytest.raises(ConnectionLost):
            await cluster.request(None, ListGroupsRequest())
        asked = [r for r in server.received if r.api_key == ApiKey.LIST_GROUPS]
        assert len(asked) == 1

    with_cluster(script, test)


def test_when_all_brokers_are_gone_the_bootstrap_servers_are_asked() -> None:
    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        await cluster.start(10_000)
        # Metadata names a node whose port is dead. The next request must go to the bootstrap
        # server.
        await cluster.metadata(["t"], refresh=True)
        assert cluster.current.leader(TP) == 1

    dead = free_port()
    with_cluster(lambda request: metadata({1: dead}, {"t": {0: (1, 0)}}), test)


def test_an_unreachable_node_leads_nothing() -> None:
    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        await cluster.start(10_000)
        await cluster.metadata(["t"])
        assert cluster.current.leader(TP) == 1
        with pytest.raises(BrokerUnreachable):
            await cluster.request(1, ListGroupsRequest())
        assert cluster.current.leader(TP) is None

    dead = free_port()
    with_cluster(lambda request: metadata({1: dead}, {"t": {0: (1, 0)}}), test)


def test_the_coordinator_is_looked_for_until_there_is_one_and_remembered() -> None:
    asked = 0

    def script(request: Received) -> Answer:
        nonlocal asked
        if request.api_key == ApiKey.METADATA:
            return metadata({1: 1})
        asked += 1
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if asked < 3 else ErrorCode.NONE
        found = Coordinator(key="g", node_id=7, host="127.0.0.1", port=1, error_code=code)
        return FindCoordinatorResponse(coordinators=[found])

    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        assert await cluster.coordinator("g") == 7
        assert await cluster.coordinator("g") == 7
        assert asked == 3
        cluster.forget_coordinator("g")
        assert await cluster.coordinator("g") == 7
        assert asked == 4

    with_cluster(script, test)


def test_a_forbidden_group_is_said_at_once() -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def script(request: Received) -> Answer:
        if request.api_key == ApiKey.METADATA:
            return metadata({1: 1})
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=code)])

    async def test(cluster: Cluster, server: ScriptedServer) -> None:
        with pytest.raises(ApiError) as caught:
            await cluster.coordinator("g")
        assert caught.value.code == code

    with_cluster(script, test)
