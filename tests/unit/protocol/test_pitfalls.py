"""The pitfalls of a new broker in the protocol layer, by their numbers in the fact sheet.

Other files test the pitfalls of other layers, with the same names: `test_pitfall_NN`. Numbers 12
and 43 are about SCRAM credentials, which tests/unit/broker/handlers/test_credentials.py tests.
Number 9, the error codes that old clients know, is tested in
tests/unit/broker/shards/test_transactions.py.
"""

import pytest

from protocol.errors import EncodeError, ErrorCode, UnknownVersion
from protocol.messages import headers
from protocol.messages.api import DECLARED, SERVED, ApiKey, request_class, response_class
from protocol.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from protocol.types import MAX_TIMESTAMP
from protocol.wire.schema import Struct
from tests.unit.protocol import vectors


def test_pitfall_01_produce_is_offered_from_0_and_readable_from_3() -> None:
    assert SERVED[ApiKey.PRODUCE] == range(10)
    for version in (0, 1, 2):
        with pytest.raises(UnknownVersion):
            ProduceRequest.decode(b"", version)


def test_pitfall_02_join_group_keeps_its_first_versions() -> None:
    assert {0, 1} <= set(ApiKey.JOIN_GROUP.valid_versions)


def test_pitfall_02_the_first_join_group_has_no_rebalance_timeout() -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"x")
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=7000, protocols=[protocol]
    )
    assert JoinGroupRequest.decode(request.encode(0), 0)[0].rebalance_timeout_ms == -1
    assert JoinGroupRequest.decode(request.encode(1), 1)[0].rebalance_timeout_ms == 7000


def test_pitfall_03_versions_that_librdkafka_tests_for_lie_inside() -> None:
    tested = {
        ApiKey.PRODUCE: {3, 7},
        ApiKey.FETCH: {4, 10},
        ApiKey.LIST_OFFSETS: {1},
        ApiKey.OFFSET_COMMIT: {2},
        ApiKey.OFFSET_FETCH: {1},
        ApiKey.FIND_COORDINATOR: {0},
        ApiKey.INIT_PRODUCER_ID: {0},
        ApiKey.SASL_HANDSHAKE: {0, 1},
    }
    for key, versions in tested.items():
        assert versions <= set(key.valid_versions), key


def test_pitfall_04_offset_for_leader_epoch_2_is_in_range() -> None:
    assert 2 in ApiKey.OFFSET_FOR_LEADER_EPOCH.valid_versions


def test_pitfall_05_settings_of_a_created_topic_are_empty_not_null() -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
    decoded, _ = CreateTopicsResponse.decode(response.encode(7), 7)
    assert decoded.topics[0].configs == []


def test_pitfall_06_eligible_leaders_are_empty_not_null() -> None:
    topic = DescribeTopicPartitionsResponseTopic(
        name="t", partitions=[DescribeTopicPartitionsResponsePartition()]
    )
    response = DescribeTopicPartitionsResponse(topics=[topic])
    decoded, _ = DescribeTopicPartitionsResponse.decode(response.encode(0), 0)
    assert decoded.topics[0].partitions[0].eligible_leader_replicas == []
    assert decoded.topics[0].partitions[0].last_known_elr == []


def test_pitfall_07_arrays_that_may_be_null_are_not_null_by_default() -> None:
    def check(cls: type[Struct]) -> None:
        value = cls()
        for field in cls.fields:
            if field.kind == "array":
                assert getattr(value, field.name) == [], f"{cls.__name__}.{field.name}"
            if isinstance(field.element, type):
                check(field.element)

    for key in DECLARED:
        check(request_class(key))
        check(response_class(key))


def test_pitfall_10_the_largest_timestamp_may_be_asked_for_from_7_on() -> None:
    assert 7 in SERVED[ApiKey.LIST_OFFSETS]
    partition = ListOffsetsPartition(timestamp=MAX_TIMESTAMP)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    decoded, _ = ListOffsetsRequest.decode(request.encode(7), 7)
    assert decoded.topics[0].partitions[0].timestamp == -3


def test_pitfall_11_nothing_that_new_is_minus_one_by_default() -> None:
    for version in ListOffsetsResponse.valid_versions:
        topic = ListOffsetsTopicResponse(name="t", partitions=[ListOffsetsPartitionResponse()])
        encoded = ListOffsetsResponse(topics=[topic]).encode(version)
        (found,) = ListOffsetsResponse.decode(encoded, version)[0].topics[0].partitions
        assert (found.offset, found.timestamp, found.error_code) == (-1, -1, 0)


def test_pitfall_15_the_index_of_a_bad_record_is_told_from_8_on() -> None:
    errors = [BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key")]
    partition = PartitionProduceResponse(
        error_code=ErrorCode.INVALID_RECORD, record_errors=errors, error_message="bad"
    )
    topic = TopicProduceResponse(name="t", partition_responses=[partition])
    for version in ProduceResponse.valid_versions:
        encoded = ProduceResponse(responses=[topic]).encode(version)
        (found,) = ProduceResponse.decode(encoded, version)[0].responses[0].partition_responses
        assert found.record_errors == (errors if version >= 8 else [])


def test_pitfall_18_telemetry_is_not_offered() -> None:
    assert not {71, 72} & {int(key) for key in SERVED}


def test_pitfall_19_an_unknown_api_versions_version_can_be_answered() -> None:
    asked = headers.encode_request(ApiVersionsRequest(), 4, 7, "from the future")
    frame = bytearray(asked[4:])
    frame[2:4] = (99).to_bytes(2, "big")
    header, _ = headers.decode_request_header(frame)
    assert (header.request_api_key, header.request_api_version) == (18, 99)
    assert header.correlation_id == 7
    own = ApiVersion(
        api_key=18,
        min_version=SERVED[ApiKey.API_VERSIONS][0],
        max_version=SERVED[ApiKey.API_VERSIONS][-1],
    )
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    answer = headers.encode_response(refusal, 0, 9, ApiKey.API_VERSIONS)
    assert answer == vectors.load("api_versions_response_v0_error_35")


def test_pitfall_19_the_header_of_api_versions_is_never_flexible() -> None:
    for version in SERVED[ApiKey.API_VERSIONS]:
        answer = headers.encode_response(ApiVersionsResponse(), version, 9, ApiKey.API_VERSIONS)
        assert answer[4:10] == b"\0\0\0\x09\0\0"


def test_pitfall_20_fetch_12_is_offered() -> None:
    assert SERVED[ApiKey.FETCH][-1] >= 12


def test_pitfall_23_aborted_transactions_can_be_null() -> None:
    for version in FetchResponse.valid_versions:
        partition = PartitionData(aborted_transactions=None, records=b"")
        response = FetchResponse(
            responses=[FetchableTopicResponse(topic="t", partitions=[partition])]
        )
        decoded, _ = FetchResponse.decode(response.encode(version), version)
        assert decoded.responses[0].partitions[0].aborted_transactions is None


def test_pitfall_27_the_id_and_epoch_to_resume_with_are_told_from_3_on() -> None:
    request = InitProducerIdRequest(transactional_id="t", producer_id=7, producer_epoch=3)
    for version in (3, 4):
        assert InitProducerIdRequest.decode(request.encode(version), version)[0] == request
    # Version 2 cannot carry the id and the epoch, so a coordinator could not resume the producer.
    with pytest.raises(EncodeError):
        request.encode(2)


def test_pitfall_30_metadata_and_leader_epoch_of_a_commit_are_kept() -> None:
    partition = OffsetCommitRequestPartition(
        committed_offset=7, committed_leader_epoch=3, committed_metadata='{"größe": "\u0000"}'
    )
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    for version in range(6, 9):
        decoded, _ = OffsetCommitRequest.decode(request.encode(version), version)
        assert decoded.topics[0].partitions[0] == partition


def test_pitfall_42_flexible_metadata_equals_what_others_write() -> None:
    frame = vectors.load("metadata_response_v12")
    _, position = headers.decode_response_header(frame, ApiKey.METADATA, 12, 4)
    response, end = MetadataResponse.decode(frame, 12, position)
    assert end == len(frame)
    assert [type(topic) for topic in response.topics] == [MetadataResponseTopic] * 2


def test_no_version_is_missing_between_the_first_and_the_last() -> None:
    for key in DECLARED:
        for cls in (request_class(key), response_class(key)):
            assert cls.valid_versions[-1] >= key.valid_versions[-1]
            assert cls.valid_versions.step == 1
