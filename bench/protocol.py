"""How fast the protocol layer is: `python -m bench.protocol` prints one JSON line per measurement.

Times are the best of several runs, in microseconds per call, on one core; peers run in the same
process on the same data where they can.
"""

import json
import sys
import timeit
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from protocol.messages import headers
from protocol.messages.api import ApiKey
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.wire.compression import Codec, compress, decompress
from protocol.wire.frame import FrameBuffer
from protocol.wire.records import (
    NewRecord,
    build_batch,
    check_batch,
    iterate_batches,
    iterate_records,
    read_header,
    stamp_producer,
)
from protocol.wire.schema import Message

RUNS = 7
RUN_SECONDS = 0.05


def best_us(call: Callable[[], object]) -> float:
    """The best time of one call, in microseconds."""
    timer = timeit.Timer(call)
    number = 1
    while (seconds := timer.timeit(number)) < RUN_SECONDS:
        number = max(number * 2, int(number * RUN_SECONDS / max(seconds, 1e-9)))
    return min(timer.repeat(RUNS, number)) / number * 1e6


def messages() -> Iterator[tuple[str, Message, int]]:
    """What a broker and its clients send most."""
    batch = build_batch([NewRecord(b"access/access.log", b"x" * 120, 1_700_000_000_000)] * 115)
    yield (
        "Produce request, 1 topic, 1 partition, one 16 KiB batch",
        ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name="logs.access",
                    partition_data=[PartitionProduceData(index=0, records=batch)],
                )
            ],
        ),
        9,
    )
    produced = PartitionProduceResponse(index=0, base_offset=1234, log_start_offset=0)
    yield (
        "Produce response, 1 partition",
        ProduceResponse(
            responses=[TopicProduceResponse(name="logs.access", partition_responses=[produced])]
        ),
        9,
    )
    yield "Fetch request, 1 topic, 1 partition", fetch_request(1), 12
    yield "Fetch response, 1 topic, 1 partition, 16 KiB", fetch_response(1, bytes(batch)), 12
    yield "Fetch response, 1 topic, 10 partitions of 1 KiB", fetch_response(10, bytes(1024)), 12
    yield "Metadata response, 50 topics of 6 partitions", metadata_response(), 12
    yield "OffsetCommit request, 20 partitions", offset_commit(), 8


def fetch_request(partitions: int) -> FetchRequest:
    """A consumer's full fetch."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=10**9, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=55 << 20,
        topics=[FetchTopic(topic="logs.access", partitions=wanted)],
    )


def fetch_response(partitions: int, records: bytes) -> FetchResponse:
    """Its answer, with data for every partition."""
    data = [
        PartitionData(
            partition_index=index,
            high_watermark=10**9,
            last_stable_offset=10**9,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )
        for index in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="logs.access", partitions=data)])


def metadata_response() -> MetadataResponse:
    """A cluster of three brokers."""
    brokers = [
        MetadataResponseBroker(node_id=n, host="127.0.0.1", port=9091 + n) for n in (1, 2, 3)
    ]
    topics = [
        MetadataResponseTopic(
            name=f"logs.topic-{number}",
            topic_id=uuid.UUID(int=number + 1),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=1 + index % 3,
                    leader_epoch=5,
                    replica_nodes=[1, 2, 3],
                    isr_nodes=[1, 2, 3],
                )
                for index in range(6)
            ],
        )
        for number in range(50)
    ]
    return MetadataResponse(
        brokers=brokers, cluster_id="Zm9vYmFyYmF6cXV4cXV1eA", controller_id=1, topics=topics
    )


def offset_commit() -> OffsetCommitRequest:
    """A reader's commit."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=10**9 + index, committed_leader_epoch=3
        )
        for index in range(20)
    ]
    return OffsetCommitRequest(
        group_id="millrace-stream",
        topics=[OffsetCommitRequestTopic(name="logs.access", partitions=partitions)],
    )


def measure_messages() -> Iterator[dict[str, Any]]:
    """Encode and decode, beside kafka-python where it is installed."""
    for name, message, version in messages():
        cls = type(message)
        encoded = message.encode(version)
        assert cls.decode(encoded, version)[0].encode(version) == encoded
        yield line(name, "encode", best_us(partial(message.encode, version)), len(encoded))
        view = memoryview(bytearray(encoded))
        yield line(name, "decode", best_us(partial(cls.decode, view, version)), len(encoded))
        peer = kafka_python_class(cls.__name__)
        if peer is not None:
            theirs = peer.decode(encoded, version=version)
            theirs._header = None
            own = f"{name} (kafka-python)"
            yield line(own, "encode", best_us(partial(theirs.encode, version=version)))
            yield line(own, "decode", best_us(partial(peer.decode, encoded, version=version)))


def kafka_python_class(name: str) -> Any:
    """The peer's class, or None without kafka-python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from kafka.protocol import consumer, metadata, producer
        except ImportError:
            return None
    for package in (producer, consumer, metadata):
        if hasattr(package, name):
            return getattr(package, name)
    return None


def measure_frames() -> Iterator[dict[str, Any]]:
    """Headers, and frames out of a buffer."""
    request = fetch_request(1)
    frame = memoryview(headers.encode_request(request, 12, 7, "mill"))[4:]
    yield line("request header", "decode", best_us(lambda: headers.decode_request_header(frame)))
    yield line(
        "Fetch frame", "encode", best_us(lambda: headers.encode_request(request, 12, 7, "m"))
    )
    answer = ProduceResponse()
    yield line(
        "empty Produce answer frame",
        "encode",
        best_us(lambda: headers.encode_response(answer, 9, 7, ApiKey.PRODUCE)),
    )
    frames = FrameBuffer(10 << 20)
    stream = headers.encode_request(request, 12, 7, "mill") * 100

    def hundred_frames() -> None:
        frames.get_buffer()[: len(stream)] = stream
        for _ in frames.received(len(stream)):
            pass

    yield line("one of 100 frames in a read", "cut out", best_us(hundred_frames) / 100)


def measure_records() -> Iterator[dict[str, Any]]:
    """Batches as the broker sees them, and records as a consumer does."""
    records = [NewRecord(b"access/access.log", b"x" * 120, 1_700_000_000_000)] * 1000
    batch = build_batch(records)
    one = build_batch(records[:1])
    many = bytes(build_batch(records[:1])) * 100
    yield line("batch header", "read", best_us(lambda: read_header(batch)))
    yield line("batch of one record, CRC included", "check", best_us(lambda: check_batch(one)))
    yield line("one of 100 batches", "iterate", best_us(lambda: list(iterate_batches(many))) / 100)
    yield line(
        f"batch of {len(batch)} bytes",
        "stamp producer",
        best_us(lambda: stamp_producer(batch, 1, 2, 3)),
    )
    yield line(
        "one of 1000 records of 120 bytes", "build", best_us(lambda: build_batch(records)) / 1e3
    )
    yield line(
        "one of 1000 records of 120 bytes",
        "read",
        best_us(lambda: list(iterate_records(batch))) / 1e3,
    )
    text = b"".join(
        b'10.0.%d.%d - - [01/Aug/2026:10:00:%02d +0000] "GET /a/%d HTTP/1.1" 200 %d\n'
        % (n % 251, n * 7 % 253, n % 60, n * 7919 % 1000, n * 104729 % 30000)
        for n in range(14_000)
    )[: 1 << 20]
    for codec in list(Codec)[1:]:
        packed = compress(codec, text)
        yield line(
            f"{codec.name.lower()}, 1 MiB",
            "compress",
            best_us(partial(compress, codec, text)),
            len(packed),
        )
        yield line(
            f"{codec.name.lower()}, 1 MiB",
            "decompress",
            best_us(partial(decompress, codec, packed, 2 << 20)),
            len(packed),
        )


def line(what: str, action: str, microseconds: float, size: int | None = None) -> dict[str, Any]:
    """One measurement."""
    values: dict[str, Any] = {"bench": "protocol", "what": what, "action": action}
    values["us"] = round(microseconds, 3)
    if size is not None:
        values["bytes"] = size
    return values


def main() -> None:
    """Print all measurements."""
    for measure in (measure_messages, measure_frames, measure_records):
        for values in measure():
            sys.stdout.write(json.dumps(values) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
