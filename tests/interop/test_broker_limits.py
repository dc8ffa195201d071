"""Limits of a whole broker. Each is set to a low value and reached by requests on a connection.

tests/unit/broker tests the limits on connections, on requests in flight and on time separately.
"""

import socket
import struct

import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.headers import encode_request
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.wire.records import Codec, NewRecord, build_batch
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

TOO_LARGE_MS = 1_700_000_001_000
"""The timestamp of the first record of a batch that is too large to be decompressed."""

SETTINGS = {
    "max.request.elements": 1_000,
    "max.request.numbers": 1_000,
    "max.request.tagged.fields": 8,
    "max.decompressed.batch.bytes": 4_096,
    "max.batch.records": 10,
    "socket.request.max.bytes": 50_000,
    "connection.first.byte.timeout.ms": 200,
    "connection.frame.timeout.ms": 200,
    "max.incremental.fetch.session.cache.slots": 2,
    "max.incremental.fetch.session.cache.partitions": 5,
}


def refused(broker: BrokerProcess, frame: bytes, words: str) -> bool:
    """Return True if the broker closes the connection that sent the frame, logs these words, and
    keeps another connection open."""
    with WireClient(broker.bootstrap) as client, WireClient(broker.bootstrap) as other:
        client.socket.sendall(frame)
        assert client.is_hung_up()
        wait_until(lambda: words in broker.log_text(), 5, words)
        return bool(other.ask(ApiVersionsRequest(), 0).error_code == 0)


def test_elements_of_a_request(broker: BrokerProcess, client: WireClient) -> None:
    def request(count: int) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    assert len(client.ask(request(1_000), 9).topics) == 1_000
    frame = encode_request(request(1_001), 9, 1, "test")
    assert refused(broker, frame, "1001 elements, expected at most 1000")


def test_numbers_of_a_request(broker: BrokerProcess, client: WireClient) -> None:
    def request(count: int) -> OffsetFetchRequest:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(count)))
        return OffsetFetchRequest(group_id="g", topics=[topic])

    client.ask(request(1_000), 5)
    frame = encode_request(request(1_001), 5, 1, "test")
    assert refused(broker, frame, "partition_indexes has 1001 elements, expected at most 1000")


def test_tagged_fields(broker: BrokerProcess) -> None:
    def frame(count: int) -> bytes:
        body = b"\x02a\x02b" + bytes([count]) + b"".join(bytes([tag, 0]) for tag in range(count))
        header = struct.pack(">hhih", 18, 3, 7, -1) + b"\0"
        return struct.pack(">i", len(header) + len(body)) + header + body

    with WireClient(broker.bootstrap) as client:
        client.socket.sendall(frame(8))
        assert struct.unpack_from(">ih", client.receive_frame()) == (7, 0)
    assert refused(broker, frame(9), "9 tagged fields, expected at most 8")


def test_frames(broker: BrokerProcess) -> None:
    assert refused(
        broker, struct.pack(">i", 50_001), "a frame has 50001 bytes, expected at most 50000"
    )


def test_records_of_a_batch(client: WireClient) -> None:
    create(client, "counted")
    produce(client, "counted", *[b"x"] * 10)
    answer = client.ask(produce_request("counted", batch_of([b"x"] * 11)), 9)
    part = answer.responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "the batch has 11 records; max.batch.records is 10" in part.error_message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_a_batch_expands_to(client: WireClient, codec: Codec) -> None:
    """The broker must decompress a batch of a compacted topic to read its keys. It rejects the
    batch when the decompressed data exceeds the limit."""
    topic = f"opened-{codec.name.lower()}"
    create(client, topic, cleanup_policy="compact")
    produce(client, topic, bytes(3_900), codec=codec)
    request = produce_request(topic, batch_of([bytes(4_096)], codec=codec))
    part = client.ask(request, 9).responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert "expands to more than 4096 bytes" in part.error_message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_a_search_by_time_opens(client: WireClient, codec: Codec) -> None:
    """A topic that is not compacted stores batches without decompressing them. So a batch can be
    too large to decompress for ListOffsets by time.

    Then the broker uses the timestamp in the batch header. An error would not help, because a retry
    would fail, too.
    """
    topic = f"searched-{codec.name.lower()}"
    create(client, topic)

    def found(timestamp_ms: int) -> tuple[int, int, int]:
        part = client.ask(list_request(topic, timestamp_ms), 7).topics[0].partitions[0]
        return part.error_code, part.offset, part.timestamp

    # Each batch has three records, and its header has the timestamp of the last one. The first
    # batch is small enough to decompress, the second one is not.
    for size, base_ms in ((1_300, TOO_LARGE_MS - 100), (1_400, TOO_LARGE_MS)):
        records = [NewRecord(None, bytes(size), base_ms + step) for step in range(3)]
        client.ask(produce_request(topic, build_batch(records, codec=codec)), 9)
    assert found(TOO_LARGE_MS - 99) == (ErrorCode.NONE, 1, TOO_LARGE_MS - 99)
    assert found(TOO_LARGE_MS + 1) == (ErrorCode.NONE, 3, TOO_LARGE_MS + 2)
    assert found(TOO_LARGE_MS + 3) == (ErrorCode.NONE, -1, -1)


def test_a_first_byte_and_a_last_one_are_waited_for_only_so_long(broker: BrokerProcess) -> None:
    address = ("127.0.0.1", broker.host_port)
    with socket.create_connection(address, 10) as silent, socket.create_connection(address) as slow:
        slow.settimeout(10)
        slow.sendall(b"\0\0\0\x20\0\3")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
    log = broker.log_text()
    # A client that connects early and sends nothing is normal, so it must cause no warning.
    assert "connection.first.byte.timeout.ms" not in log
    assert "connection.frame.timeout.ms 200" in log


def test_fetch_sessions(client: WireClient) -> None:
    create(client, "fetched")

    def session_of(partition_count: int) -> int:
        wanted = [FetchPartition(partition=index) for index in range(partition_count)]
        topics = [FetchTopic(topic="fetched", partitions=wanted)]
        found = client.ask(FetchRequest(session_epoch=0, topics=topics), 12).session_id
        assert isinstance(found, int)
        return found

    assert session_of(6) == 0
    first, second = session_of(1), session_of(1)
    assert 0 not in (first, second)
    # All sessions are in use. This is no error: session id 0 makes the client send full requests.
    assert session_of(1) == 0
    bye = fetch_request("fetched", session_epoch=-1)
    bye.session_id = first
    client.ask(bye, 12)
    assert session_of(5) == 0
    assert session_of(4) != 0


def test_new_connections_in_a_second(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"max.connection.creation.rate": 3}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as process:
        refusal = "max.connection.creation.rate 3 is reached"

        def flood() -> bool:
            for _ in range(4):
                socket.create_connection(("127.0.0.1", process.host_port), 10).close()
            return refusal in process.log_text()

        wait_until(flood, 10, refusal)

        def served() -> bool:
            with WireClient(process.bootstrap) as client:
                return bool(client.ask(ApiVersionsRequest(), 0).error_code == 0)

        wait_until(served, 10, "the next second has begun")
