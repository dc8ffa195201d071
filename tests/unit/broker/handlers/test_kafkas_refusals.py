"""Invalid requests for which Kafka has special responses that tools check."""

import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.transactions import (
    DescribeTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.broker.cluster.kit import Cluster
from tests.unit.broker.rig import Rig


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_a_wrong_timeout_is_said_before_there_is_any_coordinator(timeout_ms: int) -> None:
    """A retriable error code would make the client look for a coordinator for ever."""
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=timeout_ms)
    assert Rig().ask(request, 4).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_the_empty_transactional_id_belongs_to_no_producer() -> None:
    answer = Rig().ask(DescribeTransactionsRequest(transactional_ids=["", "t"]), 0)
    codes = [ErrorCode(one.error_code) for one in answer.transaction_states]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_cluster_is_described_for_brokers_only(endpoint_type: int, code: ErrorCode) -> None:
    answer = Rig().ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert ErrorCode(answer.error_code) is code


def test_of_a_setting_given_twice_the_last_value_holds() -> None:
    cluster = Cluster()
    values = ("1", "77")
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value=value) for value in values],
    )  # fmt: skip
    (made,) = cluster.submit(CreateTopicsRequest(topics=[topic])).topics
    assert ErrorCode(made.error_code) is ErrorCode.NONE
    assert cluster.image.settings(2, "t") == {"retention.ms": "77"}


@pytest.mark.parametrize(
    ("coordinator_epoch", "code"),
    [
        (-2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
    ],
)
def test_a_marker_comes_from_a_coordinator_that_can_be(
    coordinator_epoch: int, code: ErrorCode
) -> None:
    """DescribeProducers reports coordinator epoch -1 for a producer without a marker, so tools may
    send -1."""
    rig = Rig()
    rig.create("t")
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=5, producer_epoch=0, transaction_result=False, topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )  # fmt: skip
    answer = rig.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    (part,) = answer.markers[0].topics[0].partitions
    assert ErrorCode(part.error_code) is code
