"""Limits on the memory and files that clients use: connections, slow readers, wide requests."""

import os
import select
import socket

import psutil
import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.wire.records import Codec, check_crc, iterate_batches
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until
from tests.harness.wire import (
    WireClient,
    batch_of,
    create,
    fetch_request,
    list_request,
    produce,
    produce_request,
)

pytestmark = pytest.mark.live

CONNECTIONS = 200
ROUND_BYTES = CONNECTIONS * (256 << 10)
"""The bytes that the read buffers of one round of connections take."""

HALF_A_FRAME = b"\0\0\0\x50\0\3\0"

SEGMENT_BYTES = 10 << 20
WIDE = 1_000
FOR_EVER_MS = 2**31 - 1

PACKED = 30
FULL = 100_000
"""Records of a batch, as many as are taken."""

PACKED_BYTES = 19 << 20
"""The unpacked size of a small batch, just below the limit for unpacking."""


SETTINGS = {
    "max.connections.per.ip": 1_000,
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 200,
}


def memory_bytes(broker: BrokerProcess) -> int:
    return int(psutil.Process(broker.pid).memory_full_info().pss)


def come_and_go(broker: BrokerProcess) -> None:
    broker.wait_for_connections(0)
    address = ("127.0.0.1", broker.host_port)
    sockets = [socket.create_connection(address, 10) for _ in range(CONNECTIONS)]
    for one in sockets:
        one.sendall(HALF_A_FRAME)
    broker.wait_for_connections(CONNECTIONS)
    for one in sockets:
        one.close()
    broker.wait_for_connections(0)


def test_connections_that_have_gone_take_no_memory(broker: BrokerProcess) -> None:
    # The C library keeps freed memory. So use it twice first, and then check that later rounds
    # use the same memory again.
    for _ in range(2):
        come_and_go(broker)
    before = memory_bytes(broker)
    for _ in range(3):
        come_and_go(broker)
    assert memory_bytes(broker) - before < ROUND_BYTES // 2


def test_a_dropped_segment_is_sent_to_its_end(broker: BrokerProcess, client: WireClient) -> None:
    create(
        client,
        "dropped",
        segment_bytes=str(SEGMENT_BYTES),
        retention_bytes=str(2 * SEGMENT_BYTES),
        file_delete_delay_ms="0",
    )
    # The records exceed the buffers of both ends, so the broker must still read a part of the
    # response from the segment's file after it was deleted.
    values = [os.urandom(900_000) for _ in range(11)]
    for value in values:
        produce(client, "dropped", value)
    with WireClient(broker.bootstrap) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        slow.send(fetch_request("dropped", 0, max_bytes=50 << 20, partition_max_bytes=50 << 20), 12)
        # The response has begun when its size can be read.
        assert slow.socket.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
        for _ in range(40):
            produce(client, "dropped", os.urandom(900_000))
        first = broker.log_dir / "dropped-0" / f"{0:020}.log"
        wait_until(lambda: not first.exists(), 20, "the segment is dropped")
        part = slow.receive().responses[0].partitions[0]
        assert part.error_code == 0
        checked = [check_crc(batch) for _, batch in iterate_batches(part.records)]
        assert checked == [True] * len(values)


def test_readers_that_never_read_delay_no_other_client(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "unread")
    for _ in range(10):
        produce(client, "unread", os.urandom(100_000))
    before = memory_bytes(broker)
    stuck = [WireClient(broker.bootstrap) for _ in range(20)]
    for one in stuck:
        frames = [one.frame(fetch_request("unread"), 12) for _ in range(500)]
        one.socket.setblocking(False)
        one.socket.send(b"".join(frames))
    for _ in range(50):
        produce(client, "unread", b"still served")
    # Each of these clients has requested 500 responses of a megabyte. The broker must not keep
    # them in memory.
    assert memory_bytes(broker) - before < 40 << 20
    for one in stuck:
        one.close()


@pytest.mark.slow
def test_a_thousand_partitions_in_one_request(client: WireClient) -> None:
    # Creating the partitions takes some thousand fsyncs.
    client.socket.settimeout(120)
    create(client, "wide", WIDE)
    data = [PartitionProduceData(index=index, records=batch_of([b"v"])) for index in range(WIDE)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="wide", partition_data=data)],
    )
    for offset in range(3):
        answer = client.ask(request, 9)
        found = {
            (one.error_code, one.base_offset) for one in answer.responses[0].partition_responses
        }
        assert found == {(0, offset)}


@pytest.mark.parametrize(
    ("bounds", "batches"),
    [
        ({"max_bytes": 0}, 1),
        ({"max_bytes": -1}, 1),
        ({"partition_max_bytes": 0}, 1),
        ({"max_wait_ms": -5, "min_bytes": 1 << 30}, 3),
        ({"max_wait_ms": FOR_EVER_MS, "min_bytes": -1}, 3),
        ({"max_wait_ms": FOR_EVER_MS, "min_bytes": 0}, 3),
    ],
)
def test_odd_bounds_of_a_fetch(client: WireClient, bounds: dict[str, int], batches: int) -> None:
    topic = f"bounds-{'-'.join(f'{key}.{value}' for key, value in bounds.items())}"
    create(client, topic)
    for _ in range(3):
        produce(client, topic, b"value")
    part = client.ask(fetch_request(topic, 0, **bounds), 12).responses[0].partitions[0]
    assert part.error_code == 0
    assert len(list(iterate_batches(part.records))) == batches


def test_fetches_parked_for_ever_go_with_their_connections(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "parked")
    broker.wait_for_connections(1)
    request = fetch_request("parked", 0, max_wait_ms=FOR_EVER_MS, min_bytes=FOR_EVER_MS)
    for _ in range(100):
        with WireClient(broker.bootstrap) as one:
            one.send(request, 12)
    broker.wait_for_connections(1)
    # An open connection can complete its waiting Fetch with a ListOffsets for the same partition
    # (decision 0055).
    client.send(request, 12)
    client.send(list_request("parked", -1), 7)
    assert client.receive().responses[0].partitions[0].error_code == 0
    assert client.receive().topics[0].partitions[0].error_code == 0


def test_others_are_served_while_times_are_looked_for_in_packed_batches(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "packed", PACKED)
    batch = bytes(batch_of([bytes(PACKED_BYTES)], codec=Codec.ZSTD))
    for index in range(PACKED):
        answer = client.ask(produce_request("packed", bytearray(batch), partition=index), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=1) for index in range(PACKED)]
    topic = ListOffsetsTopic(name="packed", partitions=wanted)
    client.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    client.send(ApiVersionsRequest(), 0)
    answer_count = 0
    with WireClient(broker.bootstrap) as other:
        while not select.select([client.socket], [], [], 0)[0]:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
            answer_count += 1
    # The broker must serve the other client between batches, because decompressing each batch
    # takes longer than a turn of its loop may last.
    assert answer_count > PACKED // 3
    found = client.receive().topics[0].partitions
    assert [(one.partition_index, one.offset) for one in found] == [(n, 0) for n in range(PACKED)]
    assert client.receive().error_code == 0


@pytest.mark.parametrize("cause", ["future", "compacted"])
def test_others_are_served_while_the_batches_of_a_produce_are_opened(
    broker: BrokerProcess, client: WireClient, cause: str
) -> None:
    create(client, cause, cleanup_policy="compact" if cause == "compacted" else "delete")
    stamp_ms = 2**41 if cause == "future" else 1_700_000_000_000
    batch = batch_of([b""] * FULL, codec=Codec.ZSTD, timestamp_ms=stamp_ms)
    data = [PartitionProduceData(index=0, records=bytes(batch)) for _ in range(PACKED)]
    topic = TopicProduceData(name=cause, partition_data=data)
    client.socket.settimeout(120)
    client.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic]), 9)
    client.send(produce_request(cause, batch_of([b"behind"])), 9)
    client.send(ApiVersionsRequest(), 0)
    answer_count = 0
    with WireClient(broker.bootstrap) as other:
        while not select.select([client.socket], [], [], 0)[0]:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
            answer_count += 1
    # Checking one batch takes more than one turn of the loop, so the broker must serve the other
    # client more often than there are batches.
    assert answer_count > PACKED
    parts = client.receive().responses[0].partition_responses
    if cause == "future":
        assert {one.error_code for one in parts} == {ErrorCode.INVALID_TIMESTAMP}
    else:
        offsets = [(one.error_code, one.base_offset) for one in parts]
        assert offsets == [(0, number * FULL) for number in range(PACKED)]
    (behind,) = client.receive().responses[0].partition_responses
    assert behind.base_offset == (0 if cause == "future" else PACKED * FULL)
    assert client.receive().error_code == 0


def test_a_client_that_goes_while_its_batches_are_opened_has_them_all_stored(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "left", cleanup_policy="compact")
    batch = bytes(batch_of([b""] * FULL, codec=Codec.ZSTD))
    data = [PartitionProduceData(index=0, records=batch) for _ in range(PACKED)]
    topic = TopicProduceData(name="left", partition_data=data)
    broker.wait_for_connections(1)
    with WireClient(broker.bootstrap) as one:
        one.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic]), 9)
        # When the first batch can be fetched, the broker is still checking the other batches.
        fetch = fetch_request("left", 0, max_wait_ms=10_000)
        assert client.ask(fetch, 12).responses[0].partitions[0].high_watermark > 0
    broker.wait_for_connections(1)
    end = produce(client, "left", b"after it")
    assert end == PACKED * FULL
