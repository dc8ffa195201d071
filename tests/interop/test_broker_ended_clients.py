"""Clients that send and then disconnect lose no record, and a client that sends too much delays no
other client."""

import select
import socket
import struct
import subprocess
import sys
from itertools import pairwise

import pytest

from protocol.messages.cluster import ApiVersionsRequest
from protocol.wire.records import Codec
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until
from tests.harness.wire import (
    WireClient,
    batch_of,
    create,
    fetch_request,
    list_request,
    produce_request,
)

pytestmark = pytest.mark.live

RECORDS = 20_000
PIPELINED = 5_000

AT_ONCE = 200
"""Requests that fit into the socket buffer together. They are more than the broker queues for a
connection."""

ROUNDS = 300
PACKED_RECORDS = 1_500

FIRE_AND_EXIT = """
import sys
from confluent_kafka import Producer
delivered = 0
def count(error, message):
    global delivered
    delivered += error is None
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": 0, "linger.ms": 20,
                     "batch.num.messages": 1})
for number in range(int(sys.argv[3])):
    producer.produce(sys.argv[2], b"x" * 100, partition=0, on_delivery=count)
    if number % 10_000 == 0:
        producer.poll(0)
assert producer.flush(60) == 0
print(delivered)
"""


def end_offset(broker: BrokerProcess, topic: str) -> int:
    found = broker.partition(topic, 0)["log_end_offset"]
    assert isinstance(found, int)
    return found


def pipelined(client: WireClient, topic: str, count: int, required_acks: int) -> bytes:
    request = produce_request(topic, batch_of([b"v"]), required_acks=required_acks)
    is_answered = required_acks != 0
    return b"".join(client.frame(request, 7, is_answered=is_answered) for _ in range(count))


def test_librdkafka_without_acks_loses_nothing_at_its_exit(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "fired")
    command = [sys.executable, "-c", FIRE_AND_EXIT, broker.bootstrap, "fired", str(RECORDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) == RECORDS
    wait_until(lambda: end_offset(broker, "fired") == RECORDS, 60, "all that was delivered")


def test_pipelined_requests_without_acks_before_a_close(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "closed")
    broker.wait_for_connections(1)
    with WireClient(broker.bootstrap) as gone:
        gone.socket.sendall(pipelined(gone, "closed", PIPELINED, 0))
    wait_until(lambda: end_offset(broker, "closed") == PIPELINED, 60, "all that was sent")
    broker.wait_for_connections(1)


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("required_acks", [0, 1, -1])
def test_requests_of_a_client_that_waits_for_no_answer(
    broker: BrokerProcess, client: WireClient, ending: str, required_acks: int
) -> None:
    topic = f"{ending}-{required_acks}"
    create(client, topic)
    broker.wait_for_connections(1)
    with WireClient(broker.bootstrap) as gone:
        # After this response the broker reads the connection. So it has read everything below, or
        # has it in its socket, before the client disconnects.
        assert gone.ask(ApiVersionsRequest(), 0).error_code == 0
        if ending == "reset":
            linger = struct.pack("ii", 1, 0)
            gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        gone.socket.sendall(pipelined(gone, topic, AT_ONCE, required_acks))
    wait_until(lambda: end_offset(broker, topic) == AT_ONCE, 20, "all that was sent")
    broker.wait_for_connections(1)


def test_a_half_closed_client_gets_its_answers_and_then_the_end(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "half")
    with WireClient(broker.bootstrap) as half:
        half.socket.sendall(pipelined(half, "half", AT_ONCE, -1))
        half.send(ApiVersionsRequest(), 0)
        half.socket.sendall(b"\0\0\0\x50\0\3\0")
        half.socket.shutdown(socket.SHUT_WR)
        for offset in range(AT_ONCE):
            part = half.receive().responses[0].partition_responses[0]
            assert (part.error_code, part.base_offset) == (0, offset)
        assert half.receive().error_code == 0
        assert half.is_hung_up()


def test_a_parked_fetch_is_dropped_and_what_is_behind_it_is_done(
    broker: BrokerProcess, client: WireClient
) -> None:
    create(client, "empty")
    create(client, "behind")
    broker.wait_for_connections(1)
    for_ever = fetch_request("empty", max_wait_ms=2**31 - 1, min_bytes=1 << 30)
    with WireClient(broker.bootstrap) as gone:
        gone.send(for_ever, 12)
        gone.send(for_ever, 12)
        gone.socket.sendall(pipelined(gone, "behind", AT_ONCE, 0))
    wait_until(lambda: end_offset(broker, "behind") == AT_ONCE, 20, "all that was sent")
    broker.wait_for_connections(1)


def test_others_have_their_turns_beside_a_long_backlog(
    broker: BrokerProcess, client: WireClient
) -> None:
    """The broker must decompress these batches, and each takes a large part of a turn of its loop.
    So it must serve other clients between them."""
    create(client, "packed", cleanup_policy="compact")
    batch = batch_of([b"v" * 10] * PACKED_RECORDS, codec=Codec.GZIP)
    request = produce_request("packed", batch, required_acks=0)
    data = b"".join(client.frame(request, 7, is_answered=False) for _ in range(ROUNDS))
    seen = [0]
    with WireClient(broker.bootstrap) as other:
        client.socket.sendall(data)
        # The response to this request comes after all batches are stored.
        client.send(ApiVersionsRequest(), 0)
        while not select.select([client.socket], [], [], 0)[0]:
            part = other.ask(list_request("packed", -1), 7).topics[0].partitions[0]
            seen.append(part.offset // PACKED_RECORDS)
    assert client.receive().error_code == 0
    assert end_offset(broker, "packed") == ROUNDS * PACKED_RECORDS
    # Between two responses to the other client only a few batches may be stored.
    assert max(after - before for before, after in pairwise(seen)) < ROUNDS // 6
