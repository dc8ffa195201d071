"""The speed of the protocol layer: microseconds per call, on one core, in this process.

If kafka-python is installed, its messages are the peer. Both are measured alternately on the same
data.
"""

import timeit
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.machine import Watch
from bench.measurement import Goal, Measurement, Peer, Run
from bench.session import Bench
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

PART = "protocol"
RUNS = 7
RUN_SECONDS = 0.05
HEADER_GOALS = (Goal("us", at_most=10.0),)
"""The goal for the decoding of the header of a Produce or Fetch request: the microseconds that it
may take."""

Call = Callable[[], object]


def timed(case: str, call: Call, *, divide_by: int = 1, peer: Call | None = None) -> Measurement:
    """Time a call over several runs, alternately with the peer's call. One call processes
    `divide_by` items."""
    timers = [_Timer(one, divide_by) for one in (call, peer) if one is not None]
    with Watch() as watch:
        times = [[timer.run_us() for timer in timers] for _ in range(RUNS)]
    ours, *theirs = (
        [Run({"us": us}, watch.other_load) for us in one] for one in zip(*times, strict=True)
    )
    beside = Peer("kafka-python", theirs[0]) if theirs else None
    goals = HEADER_GOALS if "1 topic, 1 partition" in case else ()
    return Measurement(PART, case, ours, beside, goals)


class _Timer:
    """Repeats a call so often that a run is long enough for the resolution of the clock."""

    def __init__(self, call: Call, divide_by: int) -> None:
        self._timer = timeit.Timer(call)
        self._divide_by = divide_by
        self._number = 1
        while (seconds := self._timer.timeit(self._number)) < RUN_SECONDS:
            wanted = int(self._number * RUN_SECONDS / max(seconds, 1e-9))
            self._number = max(self._number * 2, wanted)

    def run_us(self) -> float:
        """Time one run, and return the microseconds per item."""
        return self._timer.timeit(self._number) / self._number / self._divide_by * 1e6


def messages() -> Iterator[tuple[str, Message, int]]:
    """Return the messages that a broker and its clients send most."""
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
    """Return a consumer's Fetch request that names all its partitions."""
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
    """Return the response to `fetch_request`, with data for every partition."""
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
    """Return the Metadata response of a cluster of three brokers."""
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
    """Return a consumer's OffsetCommit request."""
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


def measure_messages() -> Iterator[Measurement]:
    """Measure the encoding and decoding of messages. If kafka-python is installed, measure its
    messages too."""
    for name, message, version in messages():
        cls = type(message)
        encoded = message.encode(version)
        assert cls.decode(encoded, version)[0].encode(version) == encoded
        view = memoryview(bytearray(encoded))
        peer = kafka_python_class(cls.__name__)
        their_encode = their_decode = None
        if peer is not None:
            theirs = peer.decode(encoded, version=version)
            theirs._header = None
            their_encode = partial(theirs.encode, version=version)
            their_decode = partial(peer.decode, encoded, version=version)
        yield timed(f"{name}: encode", partial(message.encode, version), peer=their_encode)
        yield timed(f"{name}: decode", partial(cls.decode, view, version), peer=their_decode)


def kafka_python_class(name: str) -> Any:
    """Return kafka-python's class for a message; None if kafka-python is not installed."""
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


def measure_frames() -> Iterator[Measurement]:
    """Measure the coding of headers, and the splitting of a buffer into frames."""
    request = fetch_request(1)
    frame = memoryview(headers.encode_request(request, 12, 7, "mill"))[4:]
    yield timed("request header: decode", lambda: headers.decode_request_header(frame))
    yield timed("Fetch frame: encode", lambda: headers.encode_request(request, 12, 7, "m"))
    answer = ProduceResponse()
    yield timed(
        "empty Produce answer frame: encode",
        lambda: headers.encode_response(answer, 9, 7, ApiKey.PRODUCE),
    )
    frames = FrameBuffer(10 << 20)
    stream = headers.encode_request(request, 12, 7, "mill") * 100

    def hundred_frames() -> None:
        frames.get_buffer()[: len(stream)] = stream
        for _ in frames.received(len(stream)):
            pass

    yield timed("one of 100 frames in a read: cut out", hundred_frames, divide_by=100)


def measure_records() -> Iterator[Measurement]:
    """Measure batches as the broker checks them, and records as a consumer reads them."""
    records = [NewRecord(b"access/access.log", b"x" * 120, 1_700_000_000_000)] * 1000
    batch = build_batch(records)
    one = build_batch(records[:1])
    many = bytes(build_batch(records[:1])) * 100
    yield timed("batch header: read", lambda: read_header(batch))
    yield timed("batch of one record, CRC included: check", lambda: check_batch(one))
    yield timed("one of 100 batches: iterate", lambda: list(iterate_batches(many)), divide_by=100)
    stamp = f"batch of {len(batch):,} bytes: stamp producer"
    yield timed(stamp, lambda: stamp_producer(batch, 1, 2, 3))
    thousand = "one of 1000 records of 120 bytes"
    yield timed(f"{thousand}: build", lambda: build_batch(records), divide_by=1000)
    yield timed(f"{thousand}: read", lambda: list(iterate_records(batch)), divide_by=1000)


def measure_codecs() -> Iterator[Measurement]:
    """Compress and decompress a mebibyte of access log with every codec."""
    text = b"".join(
        b'10.0.%d.%d - - [01/Aug/2026:10:00:%02d +0000] "GET /a/%d HTTP/1.1" 200 %d\n'
        % (n % 251, n * 7 % 253, n % 60, n * 7919 % 1000, n * 104729 % 30000)
        for n in range(14_000)
    )[: 1 << 20]
    for codec in list(Codec)[1:]:
        packed = compress(codec, text)
        name = f"{codec.name.lower()}, 1 MiB to {len(packed) / (1 << 20):.3f} MiB"
        yield timed(f"{name}: compress", partial(compress, codec, text))
        yield timed(f"{name}: decompress", partial(decompress, codec, packed, 2 << 20))


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure everything. The quick form leaves out messages and codecs, because they rarely
    change."""
    yield from measure_frames()
    yield from measure_records()
    if not bench.options.quick:
        yield from measure_messages()
        yield from measure_codecs()
