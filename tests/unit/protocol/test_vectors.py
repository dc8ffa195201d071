"""Frames that real clients sent, and responses of another encoder: decoded and encoded byte for
byte."""

import uuid

import pytest

from protocol.messages import headers
from protocol.messages.api import request_class
from protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    FindCoordinatorRequest,
    SupportedFeatureKey,
)
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.wire.compression import Codec
from protocol.wire.records import (
    Marker,
    NewRecord,
    build_batch,
    check_batch,
    check_crc,
    iterate_batches,
    iterate_records,
    read_header,
    read_marker,
)
from protocol.wire.schema import Message
from tests.unit.protocol import test_vectors_brokers, vectors

TIME_MS = 1_785_571_200_000
HELLO = bytes(
    build_batch([NewRecord(b"k", b"hello", TIME_MS)], base_offset=41, partition_leader_epoch=3)
)

REQUESTS: dict[str, tuple[int, str | None, Message]] = {
    "api_versions_request_v0": (0, "aiokafka", ApiVersionsRequest()),
    "api_versions_request_v3": (
        3,
        "rdkafka-none",
        ApiVersionsRequest(
            client_software_name="confluent-kafka-python",
            client_software_version="2.16.1-rdkafka-2.16.0",
        ),
    ),
    "metadata_request_v5": (5, "aiokafka", MetadataRequest(topics=[])),
    "metadata_request_v12": (
        12,
        "rdkafka-none",
        MetadataRequest(topics=[MetadataRequestTopic(name="logs.access")]),
    ),
    "init_producer_id_request_v4": (
        4,
        "rdkafka-none",
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1),
    ),
    "find_coordinator_request_v2": (2, "rdkafka-c", FindCoordinatorRequest(key="g")),
    "fetch_request_v12": (
        12,
        "rdkafka-c",
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic="logs.access",
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=0,
                            fetch_offset=0,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        ),
    ),
}

RESPONSES: dict[str, tuple[int, Message]] = {
    "api_versions_response_v0_error_35": (
        0,
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
    ),
    "api_versions_response_v4": (
        4,
        ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=0, min_version=0, max_version=9),
                ApiVersion(api_key=18, min_version=0, max_version=4),
            ],
            supported_features=[
                SupportedFeatureKey(name="metadata.version", min_version=1, max_version=11)
            ],
            finalized_features_epoch=7,
            finalized_features=[
                FinalizedFeatureKey(
                    name="metadata.version", max_version_level=11, min_version_level=11
                )
            ],
        ),
    ),
    "metadata_response_v1": (
        1,
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092, rack="a")],
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name="logs.access",
                    partitions=[
                        MetadataResponsePartition(leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])
                    ],
                )
            ],
        ),
    ),
    "metadata_response_v12": (
        12,
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
            cluster_id="4L6g3nShT-eMCtK--X86sw",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name="logs.access",
                    topic_id=uuid.UUID("8f6c1a52-35cd-4d2c-9b0e-0a51b1c5a9e1"),
                    partitions=[
                        MetadataResponsePartition(
                            leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
                        )
                    ],
                ),
                MetadataResponseTopic(error_code=3, name="größe"),
            ],
        ),
    ),
    "fetch_response_v4": (
        4,
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="logs.access",
                    partitions=[
                        PartitionData(
                            high_watermark=42,
                            last_stable_offset=42,
                            aborted_transactions=None,
                            records=HELLO,
                        )
                    ],
                )
            ]
        ),
    ),
    "fetch_response_v12": (
        12,
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="logs.access",
                    partitions=[
                        PartitionData(
                            high_watermark=42,
                            last_stable_offset=42,
                            log_start_offset=0,
                            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
                            aborted_transactions=[
                                AbortedTransaction(producer_id=4000, first_offset=7)
                            ],
                            records=HELLO,
                        ),
                        PartitionData(
                            partition_index=1,
                            error_code=1,
                            high_watermark=5,
                            diverging_epoch=EpochEndOffset(epoch=2, end_offset=5),
                            aborted_transactions=None,
                            records=b"",
                        ),
                    ],
                )
            ]
        ),
    ),
    "offset_fetch_response_v8": (
        8,
        OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id="millrace-stream",
                    topics=[
                        OffsetFetchResponseTopics(
                            name="logs.access",
                            partitions=[
                                OffsetFetchResponsePartitions(
                                    committed_offset=42, committed_leader_epoch=3
                                ),
                                OffsetFetchResponsePartitions(
                                    partition_index=1, committed_offset=-1, metadata=None
                                ),
                            ],
                        )
                    ],
                )
            ]
        ),
    ),
    "produce_response_v9": (
        9,
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="logs.access",
                    partition_responses=[
                        PartitionProduceResponse(base_offset=41, log_start_offset=0),
                        PartitionProduceResponse(
                            index=1,
                            error_code=87,
                            base_offset=-1,
                            record_errors=[
                                BatchIndexAndErrorMessage(
                                    batch_index=2, batch_index_error_message="no key"
                                )
                            ],
                            error_message="invalid record",
                        ),
                    ],
                )
            ]
        ),
    ),
}

PRODUCED = {f"produce_request_v9_{codec.name.lower()}": codec for codec in Codec}


def test_every_vector_is_used() -> None:
    others = {"produce_request_v7", "batch_commit_marker"}
    others |= {*test_vectors_brokers.REQUESTS, *test_vectors_brokers.RESPONSES}
    assert set(vectors.names()) == {*REQUESTS, *RESPONSES, *PRODUCED, *others}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    version, client_id, expected = REQUESTS[name]
    frame = vectors.load(name)
    header, position = headers.decode_request_header(frame, 4)
    assert header.request_api_key == expected.api_key
    assert (header.request_api_version, header.client_id) == (version, client_id)
    assert type(expected).decode(frame, version, position) == (expected, len(frame))
    encoded = headers.encode_request(expected, version, header.correlation_id, client_id)
    assert encoded == frame


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(name: str) -> None:
    version, expected = RESPONSES[name]
    frame = vectors.load(name)
    correlation_id, position = headers.decode_response_header(frame, expected.api_key, version, 4)
    assert correlation_id == 9
    assert type(expected).decode(frame, version, position) == (expected, len(frame))
    assert headers.encode_response(expected, version, 9, expected.api_key) == frame


def produced_batch(name: str) -> memoryview:
    """Return the only batch of a Produce frame, after a round trip of the whole frame."""
    frame = bytearray(vectors.load(name))
    header, position = headers.decode_request_header(frame, 4)
    cls = request_class(header.request_api_key)
    request, end = cls.decode(frame, header.request_api_version, position)
    assert isinstance(request, ProduceRequest)
    assert end == len(frame)
    version = header.request_api_version
    encoded = headers.encode_request(request, version, header.correlation_id, header.client_id)
    assert encoded == frame
    batch = request.topic_data[0].partition_data[0].records
    assert isinstance(batch, memoryview)
    return batch


@pytest.mark.parametrize("name", PRODUCED)
def test_batches_of_librdkafka(name: str) -> None:
    batch = produced_batch(name)
    header = check_batch(batch)
    assert header.codec == PRODUCED[name]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 0, 0)
    assert (header.base_timestamp, header.max_timestamp) == (TIME_MS, TIME_MS + 2)
    records = list(iterate_records(batch))
    assert [record.value for record in records] == [
        b"GET /index.html %d " % n * 4 for n in range(3)
    ]
    assert {record.key for record in records} == {b"access/a.log"}
    assert [record.timestamp_ms for record in records] == [TIME_MS, TIME_MS + 1, TIME_MS + 2]
    assert [record.offset for record in records] == [0, 1, 2]
    assert [record.sequence for record in records] == [0, 1, 2]
    assert [list(record.headers) for record in records] == [[], [], [("file", b"a")]]


def test_batch_of_aiokafka_has_a_sequence_without_a_producer() -> None:
    batch = produced_batch("produce_request_v7")
    header = check_batch(batch)
    assert (header.producer_id, header.base_sequence) == (-1, 0)
    (record,) = iterate_records(batch)
    assert (record.key, record.value, record.sequence) == (b"k", b"hello", -1)


def test_commit_marker() -> None:
    batch = vectors.load("batch_commit_marker")
    ((header, view),) = iterate_batches(batch)
    assert header == read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert check_crc(view)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (4000, 2, -1)
    (record,) = iterate_records(view)
    assert record.offset == 99
    assert read_marker(record) == Marker(is_commit=True, coordinator_epoch=5)
