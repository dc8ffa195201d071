"""The broker on a bare connection: order, versions, rejections, parked requests, limits."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api import SERVED, ApiKey
from protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
)
from protocol.messages.headers import encode_request
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.producer_ids import InitProducerIdRequest
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until
from tests.harness.wire import (
    WireClient,
    batch_of,
    fetch_request,
    list_request,
    produce,
    produce_request,
    serving,
)

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serving(tmp_path_factory.mktemp("broker"), "order", "fetch") as process:
        yield process


# Versions.


def test_exactly_what_is_served_is_advertised(client: WireClient) -> None:
    for version in range(5):
        answer = client.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), version
        )
        listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert listed == {int(key): (span[0], span[-1]) for key, span in SERVED.items()}


def test_pitfall_18_nothing_that_is_not_there_is_advertised(client: WireClient) -> None:
    answer = client.ask(ApiVersionsRequest(), 0)
    listed = {one.api_key for one in answer.api_keys}
    assert not listed & {68, 69, 71, 72}


def test_pitfall_01_03_20_old_librdkafka_finds_the_versions_it_tests_for(
    client: WireClient,
) -> None:
    answer = client.ask(ApiVersionsRequest(), 0)
    spans = {one.api_key: range(one.min_version, one.max_version + 1) for one in answer.api_keys}
    wanted = {0: (0, 3, 7), 1: (4, 10, 12), 2: (1,), 8: (2,), 9: (1,), 10: (0,), 22: (0,)}
    for key, versions in wanted.items():
        assert all(version in spans[key] for version in versions), ApiKey(key)


def test_pitfall_19_an_unknown_version_of_api_versions_keeps_the_connection(
    client: WireClient,
) -> None:
    # A request header of version 2 with a body that this broker cannot know.
    head = struct.pack(">hhih", 18, 99, 7, 4) + b"test" + b"\0" + b"\x7f\x7f\x7f"
    client.socket.sendall(struct.pack(">i", len(head)) + head)
    frame = client.receive_frame()
    correlation_id, code, count, key, first, last = struct.unpack_from(">ihihhh", frame)
    assert (correlation_id, code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert (count, key, first, last) == (1, 18, 0, 4)
    assert len(frame) == 16
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0


def test_a_bad_software_name_is_refused(client: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="-bad-", client_software_version="1")
    assert client.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("key", "version"), [(17, 2), (48, 1), (68, 0), (999, 0), (3, 13), (0, 2)])
def test_what_is_not_served_ends_the_connection_with_a_warning(
    broker: BrokerProcess, client: WireClient, key: int, version: int
) -> None:
    before = broker.log_text().count("connection closed")
    head = struct.pack(">hhih", key, version, 1, -1) + bytes(40)
    client.socket.sendall(struct.pack(">i", len(head)) + head)
    assert client.is_hung_up()
    wait_until(lambda: broker.log_text().count("connection closed") == before + 1, 5, "one warning")


def test_every_version_of_every_simple_request_is_answered(client: WireClient) -> None:
    for version in ApiKey.METADATA.valid_versions:
        asked = [MetadataRequestTopic(name="order")]
        answer = client.ask(MetadataRequest(topics=asked), version)
        assert [one.name for one in answer.topics] == ["order"]
        assert [one.node_id for one in answer.brokers] == [1]
    for version in ApiKey.FIND_COORDINATOR.valid_versions:
        keys: dict[str, Any] = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        answer = client.ask(FindCoordinatorRequest(**keys), version)
        codes = [one.error_code for one in answer.coordinators] or [answer.error_code]
        assert codes == [0]
    for version in ApiKey.INIT_PRODUCER_ID.valid_versions:
        answer = client.ask(InitProducerIdRequest(transactional_id=None), version)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
    for version in ApiKey.DESCRIBE_CLUSTER.valid_versions:
        answer = client.ask(DescribeClusterRequest(), version)
        assert answer.controller_id == 1
    for version in range(3, 10):
        answer = client.ask(produce_request("order", batch_of([b"x"])), version)
        assert answer.responses[0].partition_responses[0].error_code == 0
    for version in ApiKey.FETCH.valid_versions:
        answer = client.ask(fetch_request("order"), version)
        assert answer.responses[0].partitions[0].error_code == 0
        assert len(answer.responses[0].partitions[0].records) > 0
    for version in ApiKey.LIST_OFFSETS.valid_versions:
        answer = client.ask(list_request("order", -2), version)
        assert answer.topics[0].partitions[0].offset == 0


def test_producer_ids_are_all_different(client: WireClient) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    ids = [client.ask(request, 4).producer_id for _ in range(1_100)]
    assert len(set(ids)) == len(ids)


def test_a_coordinator_of_no_known_kind_is_refused(client: WireClient) -> None:
    answer = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["t"]), 4)
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


# Order.


def test_answers_come_in_order_whatever_is_mixed_in_one_segment(client: WireClient) -> None:
    kinds = [
        (produce_request("order", batch_of([b"1"])), 9),
        (produce_request("order", batch_of([b"2"]), partition=1), 7),
        (MetadataRequest(topics=None), 12),
        (produce_request("order", batch_of([b"3"]), required_acks=1), 8),
        (fetch_request("order"), 11),
        (ApiVersionsRequest(), 0),
        (list_request("order", -1), 5),
    ] * 20
    client.socket.sendall(b"".join(client.frame(message, version) for message, version in kinds))
    for _ in kinds:
        client.receive()


def test_a_fetch_behind_a_produce_sees_it(client: WireClient) -> None:
    for _ in range(20):
        end = client.ask(list_request("order", -1), 7).topics[0].partitions[0].offset
        client.socket.sendall(
            client.frame(produce_request("order", batch_of([b"mine"])), 9)
            + client.frame(fetch_request("order", end), 12)
        )
        assert client.receive().responses[0].partition_responses[0].base_offset == end
        assert len(client.receive().responses[0].partitions[0].records) > 0


def test_more_requests_than_the_line_holds_are_all_answered(client: WireClient) -> None:
    frames = b"".join(
        client.frame(produce_request("order", batch_of([b"%d" % number])), 9)
        for number in range(1_000)
    )
    client.socket.sendall(frames)
    offsets = [
        client.receive().responses[0].partition_responses[0].base_offset for _ in range(1_000)
    ]
    assert offsets == list(range(offsets[0], offsets[0] + 1_000))


def test_requests_cut_anywhere_arrive_whole(client: WireClient) -> None:
    frame = client.frame(produce_request("order", batch_of([b"x" * 50])), 9)
    for start in range(0, len(frame), 7):
        client.socket.sendall(frame[start : start + 7])
    assert client.receive().responses[0].partition_responses[0].error_code == 0


# Limits.


def test_a_frame_above_the_limit_ends_the_connection(client: WireClient) -> None:
    client.socket.sendall(struct.pack(">i", 2**31 - 1))
    assert client.is_hung_up()


def test_a_negative_frame_ends_the_connection(client: WireClient) -> None:
    client.socket.sendall(struct.pack(">i", -1))
    assert client.is_hung_up()


def test_a_peer_that_does_not_read_stops_being_served_and_not_the_others(
    broker: BrokerProcess, client: WireClient
) -> None:
    produce(client, "fetch", bytes(900_000))
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    frame = encode_request(fetch_request("fetch", max_bytes=50 << 20), 12, 1, "slow")
    client.socket.setblocking(False)
    sent = 0
    try:
        while sent < 3_000:
            client.socket.sendall(frame)
            sent += 1
    except BlockingIOError:
        pass
    with WireClient(broker.bootstrap) as other:
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0


def test_connections_have_a_limit_per_host(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("few")
    with BrokerProcess(folder, {"max.connections.per.ip": 3}) as few:
        kept = [WireClient(few.bootstrap) for _ in range(3)]
        for one in kept:
            one.ask(ApiVersionsRequest(), 0)
        with WireClient(few.bootstrap) as refused:
            assert refused.is_hung_up()
        assert "max.connections.per.ip 3 is reached" in few.log_text()
        # The limit does not apply to the mill's own parts, although they connect from the same
        # host.
        with WireClient(few.mill_bootstrap) as own:
            assert own.ask(ApiVersionsRequest(), 0).error_code == 0
        kept.pop().close()

        def comes_in() -> bool:
            with WireClient(few.bootstrap) as again:
                again.send(ApiVersionsRequest(), 0)
                return not again.is_hung_up()

        wait_until(comes_in, 5, "a place is free again")
        for one in kept:
            one.close()


def test_idle_connections_are_closed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("idle")
    with (
        BrokerProcess(folder, {"connections.max.idle.ms": 100}) as short,
        WireClient(short.bootstrap) as client,
    ):
        client.ask(ApiVersionsRequest(), 0)
        assert client.is_hung_up()


def test_each_listener_names_its_own_address(broker: BrokerProcess) -> None:
    for bootstrap, port in (
        (broker.bootstrap, broker.host_port),
        (broker.mill_bootstrap, broker.mill_port),
    ):
        with WireClient(bootstrap) as client:
            answer = client.ask(MetadataRequest(topics=[]), 12)
            assert [(one.host, one.port) for one in answer.brokers] == [("127.0.0.1", port)]
            found = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
            assert (found.host, found.port) == ("127.0.0.1", port)
