"""The requests that the broker's cases replay, and the checks of their answers."""

from bench.librdkafka import Lost
from protocol.messages.api import ApiKey
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.wire.records import NewRecord, build_batch

PRODUCE_VERSION, FETCH_VERSION = 9, 11
SMALL_RECORD_BYTES = 100
FETCH_BYTES = 1 << 20
FETCH_WAIT_MS = 500

NO_SESSION = -1
NEW_SESSION = 0


def produce_frame(topic: str, partition: int, acks: str) -> bytes:
    """Return a Produce request with a single record of 100 bytes, as a frame."""
    record = NewRecord(None, bytes(SMALL_RECORD_BYTES), 1_700_000_000_000)
    data = PartitionProduceData(index=partition, records=build_batch([record]))
    request = ProduceRequest(
        acks=-1 if acks == "all" else int(acks),
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return encode_request(request, PRODUCE_VERSION, 1, "bench")


def check_produced(answer: bytes) -> None:
    """Raise Lost unless the answer acknowledges the record. The answer comes without its size
    prefix."""
    _, position = decode_response_header(answer, ApiKey.PRODUCE, PRODUCE_VERSION)
    response, _ = ProduceResponse.decode(answer, PRODUCE_VERSION, position)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise Lost(f"the broker refused a record: error {code}")


def fetch_request(
    topic: str,
    offsets: dict[int, int],
    *,
    session_id: int = 0,
    session_epoch: int = NO_SESSION,
) -> FetchRequest:
    """Return a Fetch of these partitions at these offsets that waits half a second for data."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
    )


def fetch_frame(request: FetchRequest) -> bytes:
    """Return the Fetch request as a frame."""
    return encode_request(request, FETCH_VERSION, 1, "bench")
