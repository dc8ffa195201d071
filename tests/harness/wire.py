"""A bare Kafka connection over one blocking socket, for tests that must control every request."""

import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

from protocol.messages.api import response_class
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.types import Uuid
from protocol.wire.records import NewRecord, build_batch, iterate_batches, iterate_records
from protocol.wire.schema import Message
from tests.harness.broker import BrokerProcess

M = TypeVar("M", bound=Message)

TIMEOUT_S = 15.0


class Hung(AssertionError):
    """The broker closed the connection instead of responding."""


class WireClient:
    """Sends requests and reads responses, in any order that a test needs."""

    def __init__(
        self, bootstrap: str, client_id: str = "test", tls: ssl.SSLContext | None = None
    ) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.client_id = client_id
        self._sent: list[tuple[int, int, int]] = []
        self._next_id = 1

    def send(self, message: Message, version: int, *, is_answered: bool = True) -> None:
        """Send one request. `receive` reads the answers in order."""
        self.socket.sendall(self.frame(message, version, is_answered=is_answered))

    def frame(self, message: Message, version: int, *, is_answered: bool = True) -> bytes:
        """Return one request as bytes and count it as sent. Tests use it to join several requests
        into one TCP segment."""
        correlation_id, self._next_id = self._next_id, self._next_id + 1
        if is_answered:
            self._sent.append((message.api_key, version, correlation_id))
        return encode_request(message, version, correlation_id, self.client_id)

    def receive(self) -> Any:
        """Return the answer to the oldest unanswered request. Its correlation id must match."""
        api_key, version, correlation_id = self._sent.pop(0)
        frame = self.receive_frame()
        found_id, position = decode_response_header(frame, api_key, version)
        assert found_id == correlation_id, "answers are out of order"
        message, end = response_class(api_key).decode(frame, version, position)
        assert end == len(frame), "bytes are left behind the answer"
        return message

    def receive_frame(self) -> bytes:
        """Return the next frame without its size. Raises Hung if the connection ends instead."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                chunk = self.socket.recv(count - len(data))
            except ConnectionError as error:
                raise Hung(str(error)) from error
            if not chunk:
                raise Hung(f"connection ended after {len(data)} of {count} bytes")
            data += chunk
        return bytes(data)

    def ask(self, message: Message, version: int) -> Any:
        """Send one request and read its answer."""
        self.send(message, version)
        return self.receive()

    def is_hung_up(self) -> bool:
        """Return True if the broker closes the connection, False if it sends a response."""
        try:
            self.receive_frame()
        except Hung:
            return True
        return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def produce_request(
    topic: str,
    batch: bytes | bytearray | None,
    *,
    partition: int = 0,
    required_acks: int = -1,
    timeout_ms: int = 10_000,
) -> ProduceRequest:
    """Return a Produce request with one batch."""
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=required_acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def batch_of(
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"k",
    timestamp_ms: int = 1_700_000_000_000,
    **options: Any,
) -> bytearray:
    """Return a batch of these values, a millisecond apart."""
    return build_batch(
        [NewRecord(key, value, timestamp_ms + step) for step, value in enumerate(values)],
        **options,
    )


@contextmanager
def serving(folder: Path, *topics: str) -> Iterator[BrokerProcess]:
    """Run a broker with these topics, each with two partitions."""
    with BrokerProcess(folder) as broker:
        with WireClient(broker.bootstrap) as client:
            for topic in topics:
                create(client, topic, 2)
        yield broker


def create(client: WireClient, topic: str, partitions: int = 1, **settings: str) -> Uuid:
    """Create a topic, and return its id. In the names of settings `_` stands for `.`."""
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    new = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, configs=configs
    )
    answer = cast(CreateTopicsResponse, client.ask(CreateTopicsRequest(topics=[new]), 7))
    assert answer.topics[0].error_code == 0, answer.topics[0]
    return answer.topics[0].topic_id


def produce(client: WireClient, topic: str, *values: bytes, **options: Any) -> int:
    """Write values as one batch. Return their base offset."""
    answer = cast(
        ProduceResponse, client.ask(produce_request(topic, batch_of(values, **options)), 9)
    )
    one = answer.responses[0].partition_responses[0]
    assert one.error_code == 0, one
    return one.base_offset


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_epoch: int = -1,
    current_leader_epoch: int = -1,
) -> FetchRequest:
    """Return a Fetch request for partition 0."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        current_leader_epoch=current_leader_epoch,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
    )


def list_request(topic: str, timestamp: int, *, isolation_level: int = 0) -> ListOffsetsRequest:
    """Return a ListOffsets request for partition 0."""
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
            )
        ],
    )


def read_values(records: memoryview | bytes) -> list[bytes | None]:
    """Return the values of all records in complete batches."""
    return [
        record.value for _, batch in iterate_batches(records) for record in iterate_records(batch)
    ]
