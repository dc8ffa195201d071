"""A connection to a scripted server: order, timeouts, losses, malformed responses, versions."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from protocol.client.connection import ByVersion, Connection
from protocol.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
)
from protocol.messages.api import ApiKey
from protocol.messages.cluster import (
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.group import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from tests.harness.ports import free_port
from tests.unit.client.scripted_server import (
    ALL_VERSIONS,
    CLOSE,
    HANG,
    Answer,
    Received,
    Script,
    ScriptedServer,
    metadata,
)


def connected(
    script: Script,
    test: Callable[[Connection, ScriptedServer], Awaitable[None]],
    *,
    in_flight_max: int = 64,
    response_bytes_max: int = 1 << 20,
    server: ScriptedServer | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def run() -> None:
        async with server or ScriptedServer(script) as running:
            connection = await Connection.open(
                "127.0.0.1",
                running.port,
                client_id="me",
                timeout_ms=10_000,
                in_flight_max=in_flight_max,
                response_bytes_max=response_bytes_max,
            )
            try:
                await test(connection, running)
            finally:
                connection.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def group_named_by_request(request: Received) -> Answer:
    """Return a group named after the request's correlation id, so that a test can tell responses
    apart."""
    return ListGroupsResponse(groups=[ListedGroup(group_id=str(request.correlation_id))])


def test_requests_are_pipelined_and_answers_matched_in_order() -> None:
    async def test(connection: Connection, server: ScriptedServer) -> None:
        futures = [connection.send(ListGroupsRequest(), timeout_ms=10_000) for _ in range(20)]
        assert connection.in_flight_count == 20
        answers = await asyncio.gather(*futures)
        ids = [int(answer.groups[0].group_id) for answer in answers]
        assert ids == sorted(ids) == [request.correlation_id for request in server.received]
        assert server.received[0].client_id == "me"
        assert connection.in_flight_count == 0

    connected(group_named_by_request, test)


def test_the_highest_common_version_is_used() -> None:
    versions = {**ALL_VERSIONS, ApiKey.LIST_GROUPS: range(3), ApiKey.METADATA: range(99)}
    server = ScriptedServer(
        lambda request: (
            metadata({1: 1})
            if request.api_key == ApiKey.METADATA
            else group_named_by_request(request)
        ),
        versions=versions,
    )

    async def test(connection: Connection, server: ScriptedServer) -> None:
        await connection.request(ListGroupsRequest(), timeout_ms=10_000)
        await connection.request(MetadataRequest(topics=[]), timeout_ms=10_000)
        assert [request.version for request in server.received] == [2, 12]

    connected(server.script, test, server=server)


def test_no_common_version_names_both_ranges() -> None:
    server = ScriptedServer(group_named_by_request, versions={ApiKey.LIST_GROUPS: range(7, 9)})

    async def test(connection: Connection, server: ScriptedServer) -> None:
        with pytest.raises(UnsupportedVersion, match="offers LIST_GROUPS 7 to 8, this client"):
            await connection.request(ListGroupsRequest(), timeout_ms=10_000)
        with pytest.raises(UnsupportedVersion, match="does not offer METADATA"):
            await connection.request(MetadataRequest(), timeout_ms=10_000)
        assert connection.in_flight_count == 0

    connected(server.script, test, server=server)


def test_a_request_may_depend_on_the_version_spoken() -> None:
    def answer(request: Received) -> Answer:
        assert isinstance(request.message, FindCoordinatorRequest)
        return FindCoordinatorResponse(node_id=len(request.message.key))

    versions = {**ALL_VERSIONS, ApiKey.FIND_COORDINATOR: range(2)}
    server = ScriptedServer(answer, versions=versions)

    async def test(connection: Connection, server: ScriptedServer) -> None:
        request = ByVersion(
            ApiKey.FIND_COORDINATOR, lambda version: FindCoordinatorRequest(key="k" * version)
        )
        assert (await connection.request(request, timeout_ms=10_000)).node_id == 1

    connected(server.script, test, server=server)


def test_an_old_broker_is_asked_for_versions_again_in_version_0() -> None:
    asked: list[int] = []

    def answer(request: Received) -> Answer:
        if request.api_key != ApiKey.API_VERSIONS:
            return group_named_by_request(request)
        asked.append(request.version)
        if request.version > 0:
            body = ApiVersionsResponse(error_code=35).encode(0)
            size = (4 + len(body)).to_bytes(4, "big")
            return size + request.correlation_id.to_bytes(4, "big") + body
        from tests.unit.client.scripted_server import api_versions

        return api_versions(ALL_VERSIONS)

    async def test(connection: Connection, server: ScriptedServer) -> None:
        await connection.request(ListGroupsRequest(), timeout_ms=10_000)
        assert asked == [3, 0]

    connected(answer, test, server=ScriptedServer(answer, versions=None))


def test_a_closed_connection_fails_all_who_wait() -> None:
    def answer(request: Received) -> Answer:
        return CLOSE if request.correlation_id > 3 else HANG

    async def test(connection: Connection, server: ScriptedServer) -> None:
        futures = [connection.send(ListGroupsRequest(), timeout_ms=10_000) for _ in range(5)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 5
        assert len({id(outcome) for outcome in outcomes}) == 5
        assert connection.is_closed
        with pytest.raises(ConnectionLost):
            connection.send(ListGroupsRequest(), timeout_ms=10_000)
        await connection.wait_closed()

    connected(answer, test)


def test_a_late_answer_gives_the_connection_up() -> None:
    async def test(connection: Connection, server: ScriptedServer) -> None:
        late = connection.send(ListGroupsRequest(), timeout_ms=30)
        behind = connection.send(ListGroupsRequest(), timeout_ms=10_000)
        with pytest.raises(RequestTimedOut, match="did not answer LIST_GROUPS within 30 ms"):
            await late
        with pytest.raises(ConnectionLost):
            await behind
        assert connection.is_closed

    connected(lambda request: HANG, test)


def test_closing_it_ourselves_says_so() -> None:
    async def test(connection: Connection, server: ScriptedServer) -> None:
        future = connection.send(ListGroupsRequest(), timeout_ms=10_000)
        connection.close()
        with pytest.raises(ClientClosed):
            await future

    connected(lambda request: HANG, test)


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0\x02\0\0",
        b"\0\0\0\x06\x7f\0\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
    ],
    ids=["too short", "wrong correlation", "negative size", "huge size"],
)
def test_nonsense_ends_the_connection(raw: bytes) -> None:
    async def test(connection: Connection, server: ScriptedServer) -> None:
        with pytest.raises(ConnectionLost, match="sent a malformed response"):
            await connection.request(ListGroupsRequest(), timeout_ms=10_000)

    connected(lambda request: raw, test)


def test_an_unrequested_answer_ends_the_connection() -> None:
    def answer(request: Received) -> Answer:
        once = request.encode(ListGroupsResponse())
        return once + once

    async def test(connection: Connection, server: ScriptedServer) -> None:
        await connection.request(ListGroupsRequest(), timeout_ms=10_000)
        await connection.wait_closed()

    connected(answer, test)


def test_a_caller_that_leaves_does_not_disturb_the_order() -> None:
    release = asyncio.Event()

    async def answer(request: Received) -> Answer:
        await release.wait()
        return group_named_by_request(request)

    async def test(connection: Connection, server: ScriptedServer) -> None:
        leaver = asyncio.create_task(connection.request(ListGroupsRequest(), timeout_ms=10_000))
        stayer = asyncio.create_task(connection.request(ListGroupsRequest(), timeout_ms=10_000))
        while connection.in_flight_count < 2:
            await asyncio.sleep(0)
        leaver.cancel()
        release.set()
        answer = await stayer
        assert int(answer.groups[0].group_id) == server.received[1].correlation_id

    connected(answer, test)


def test_requests_beyond_the_bound_wait_for_room() -> None:
    counts: list[int] = []
    release = asyncio.Event()

    async def answer(request: Received) -> Answer:
        await release.wait()
        return group_named_by_request(request)

    async def test(connection: Connection, server: ScriptedServer) -> None:
        async def one() -> None:
            await connection.request(ListGroupsRequest(), timeout_ms=10_000)
            counts.append(connection.in_flight_count)

        tasks = [asyncio.create_task(one()) for _ in range(10)]
        while connection.in_flight_count < 3:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
            assert connection.in_flight_count == 3
        release.set()
        await asyncio.gather(*tasks)
        assert len(counts) == 10
        assert max(counts) <= 3

    connected(answer, test, in_flight_max=3)


def test_waiting_for_room_counts_towards_the_time_out() -> None:
    async def test(connection: Connection, server: ScriptedServer) -> None:
        first = connection.request(ListGroupsRequest(), timeout_ms=10_000)
        waiting = asyncio.create_task(first)
        while not connection.in_flight_count:
            await asyncio.sleep(0)
        with pytest.raises(RequestTimedOut, match="1 earlier requests"):
            await connection.request(ListGroupsRequest(), timeout_ms=30)
        assert not connection.is_closed
        waiting.cancel()

    connected(lambda request: HANG, test, in_flight_max=1)


def test_produce_without_acknowledgement_has_no_answer() -> None:
    def answer(request: Received) -> Answer:
        return HANG if request.api_key == ApiKey.PRODUCE else group_named_by_request(request)

    async def test(connection: Connection, server: ScriptedServer) -> None:
        connection.send_unanswered(ProduceRequest(acks=0))
        await connection.request(ListGroupsRequest(), timeout_ms=10_000)
        assert [request.api_key for request in server.received] == [ApiKey.PRODUCE, 16]

    connected(answer, test)


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_records_outlive_the_read_buffer(
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    def answer(request: Received) -> Answer:
        data = PartitionData(records=bytes([request.correlation_id % 256]) * 200_000)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    async def test(connection: Connection, server: ScriptedServer) -> None:
        futures = [connection.send(FetchRequest(), timeout_ms=10_000) for _ in range(6)]
        for response, request in zip(await asyncio.gather(*futures), server.received, strict=True):
            records = response.responses[0].partitions[0].records
            assert bytes(records) == bytes([request.correlation_id % 256]) * 200_000

    connected(answer, test, response_bytes_max=300_000, loop_factory=loop_factory)


def test_no_listener_is_unreachable() -> None:
    async def run() -> None:
        port = free_port()
        with pytest.raises(BrokerUnreachable, match=f"^127.0.0.1:{port}: Connection refused$"):
            await Connection.open("127.0.0.1", port, client_id="me", timeout_ms=1000)

    asyncio.run(run())


def test_a_server_that_says_nothing_is_unreachable() -> None:
    async def run() -> None:
        async with ScriptedServer(lambda request: HANG, versions=None) as server:
            with pytest.raises(BrokerUnreachable, match="did not answer"):
                await Connection.open("127.0.0.1", server.port, client_id="me", timeout_ms=50)

    asyncio.run(run())
