"""Frames between brokers as Kafka 4.4.0's own classes write them, and one of our own."""

import uuid

import pytest

from protocol.errors import ErrorCode
from protocol.messages import headers
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
    SnapshotToFetch,
)
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerState,
    EnvelopeRequest,
    RegistrationFeature,
    RegistrationListener,
)
from protocol.messages.quorum import (
    EndQuorumEpochPartition,
    EndQuorumEpochRequest,
    EndQuorumEpochTopic,
    FetchSnapshotPartition,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    LeaderEndpoint,
    ReplicaInfo,
    SnapshotLeader,
    SnapshotOfPartition,
    SnapshotPartition,
    SnapshotTopic,
    VoteRequest,
    VoteRequestPartition,
    VoteRequestTopic,
    VoteResponse,
    VoteResponsePartition,
    VoteResponseTopic,
)
from protocol.messages.quorum import QuorumLeaderEndpoint as QuorumEndpoint
from protocol.messages.replica_report import (
    ReplicaReportResponse,
    ReportedPartition,
    ReportedTopicState,
    ReportedVoter,
)
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.types import Uuid
from protocol.wire.schema import Message
from tests.unit.protocol import vectors

CLUSTER = "bWlsbHJhY2UtY2x1c3Rlcg"
METADATA_TOPIC = "__cluster_metadata"
METADATA_ID = Uuid(int=1)
DISK_1 = uuid.UUID("11111111-2222-4333-8444-555555555501")
DISK_2 = uuid.UUID("11111111-2222-4333-8444-555555555502")
TOPIC_ID = uuid.UUID("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")

REQUESTS: dict[str, tuple[int, Message]] = {
    "vote_request_v2": (
        2,
        VoteRequest(
            cluster_id=CLUSTER,
            voter_id=2,
            topics=[
                VoteRequestTopic(
                    topic_name=METADATA_TOPIC,
                    partitions=[
                        VoteRequestPartition(
                            replica_epoch=7,
                            replica_id=1,
                            replica_directory_id=DISK_1,
                            voter_directory_id=DISK_2,
                            last_offset_epoch=6,
                            last_offset=1234,
                            pre_vote=True,
                        )
                    ],
                )
            ],
        ),
    ),
    "end_quorum_epoch_request_v1": (
        1,
        EndQuorumEpochRequest(
            cluster_id=CLUSTER,
            topics=[
                EndQuorumEpochTopic(
                    topic_name=METADATA_TOPIC,
                    partitions=[
                        EndQuorumEpochPartition(
                            leader_id=1,
                            leader_epoch=7,
                            preferred_candidates=[
                                ReplicaInfo(candidate_id=2, candidate_directory_id=DISK_2)
                            ],
                        )
                    ],
                )
            ],
            leader_endpoints=[LeaderEndpoint(name="BROKER", host="mill-1", port=65_001)],
        ),
    ),
    "fetch_request_v18": (
        18,
        FetchRequest(
            cluster_id=CLUSTER,
            replica_state=ReplicaState(replica_id=2, replica_epoch=1003),
            max_wait_ms=500,
            min_bytes=1,
            session_id=5,
            session_epoch=2,
            topics=[
                FetchTopic(
                    topic_id=METADATA_ID,
                    partitions=[
                        FetchPartition(
                            current_leader_epoch=7,
                            fetch_offset=1234,
                            last_fetched_epoch=6,
                            log_start_offset=0,
                            partition_max_bytes=1 << 20,
                            replica_directory_id=DISK_2,
                            high_watermark=1200,
                        )
                    ],
                )
            ],
        ),
    ),
    "fetch_snapshot_request_v1": (
        1,
        FetchSnapshotRequest(
            cluster_id=CLUSTER,
            replica_id=2,
            max_bytes=1 << 20,
            topics=[
                FetchSnapshotTopic(
                    name=METADATA_TOPIC,
                    partitions=[
                        FetchSnapshotPartition(
                            current_leader_epoch=7,
                            snapshot_id=SnapshotOfPartition(end_offset=900, epoch=5),
                            position=4096,
                            replica_directory_id=DISK_2,
                        )
                    ],
                )
            ],
        ),
    ),
    "alter_partition_request_v3": (
        3,
        AlterPartitionRequest(
            broker_id=1,
            broker_epoch=1001,
            topics=[
                AlterPartitionRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        AlterPartitionRequestPartition(
                            partition_index=2,
                            leader_epoch=4,
                            new_isr_with_epochs=[
                                BrokerState(broker_id=1, broker_epoch=1001),
                                BrokerState(broker_id=3, broker_epoch=1007),
                            ],
                            partition_epoch=11,
                        )
                    ],
                )
            ],
        ),
    ),
    "broker_registration_request_v4": (
        4,
        BrokerRegistrationRequest(
            broker_id=2,
            cluster_id=CLUSTER,
            incarnation_id=TOPIC_ID,
            listeners=[
                RegistrationListener(name="BROKER", host="mill-2", port=19_092, security_protocol=0)
            ],
            features=[
                RegistrationFeature(
                    name="metadata.version", min_supported_version=1, max_supported_version=1
                )
            ],
            rack=None,
            log_dirs=[DISK_2],
            previous_broker_epoch=1003,
        ),
    ),
    "broker_heartbeat_request_v1": (
        1,
        BrokerHeartbeatRequest(
            broker_id=2,
            broker_epoch=1003,
            current_metadata_offset=1233,
            want_shut_down=True,
            offline_log_dirs=[DISK_2],
        ),
    ),
    "add_partitions_to_txn_request_v4": (
        4,
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="mill",
                    producer_id=4000,
                    producer_epoch=2,
                    verify_only=True,
                    topics=[AddPartitionsToTxnTopic(name="logs.access", partitions=[0, 3])],
                )
            ]
        ),
    ),
    "envelope_request_v0": (
        0,
        EnvelopeRequest(
            request_data=b"a request",
            request_principal=None,
            client_host_address=bytes((127, 0, 0, 1)),
        ),
    ),
}

RESPONSES: dict[str, tuple[int, Message]] = {
    "vote_response_v2": (
        2,
        VoteResponse(
            topics=[
                VoteResponseTopic(
                    topic_name=METADATA_TOPIC,
                    partitions=[VoteResponsePartition(leader_id=3, leader_epoch=7)],
                )
            ],
            node_endpoints=[QuorumEndpoint(node_id=3, host="mill-3", port=19_092)],
        ),
    ),
    "fetch_response_v18": (
        18,
        FetchResponse(
            session_id=5,
            responses=[
                FetchableTopicResponse(
                    topic_id=METADATA_ID,
                    partitions=[
                        PartitionData(
                            high_watermark=1210,
                            last_stable_offset=1210,
                            log_start_offset=0,
                            diverging_epoch=EpochEndOffset(epoch=5, end_offset=1100),
                            records=b"",
                        ),
                        PartitionData(
                            partition_index=1,
                            error_code=ErrorCode.FENCED_LEADER_EPOCH,
                            high_watermark=-1,
                            snapshot_id=SnapshotToFetch(end_offset=900, epoch=5),
                            records=b"",
                        ),
                    ],
                )
            ],
            node_endpoints=[NodeEndpoint(node_id=3, host="mill-3", port=19_092, rack="r1")],
        ),
    ),
    "fetch_snapshot_response_v1": (
        1,
        FetchSnapshotResponse(
            topics=[
                SnapshotTopic(
                    name=METADATA_TOPIC,
                    partitions=[
                        SnapshotPartition(
                            snapshot_id=SnapshotOfPartition(end_offset=900, epoch=5),
                            current_leader=SnapshotLeader(leader_id=1, leader_epoch=7),
                            size=9000,
                            position=4096,
                            unaligned_records=b"half a batch",
                        )
                    ],
                )
            ],
        ),
    ),
    "replica_report_response_v0": (
        0,
        ReplicaReportResponse(
            cluster_id=CLUSTER,
            broker_id=2,
            directory_id=DISK_2,
            configured_ids=[1, 2, 3],
            metadata_end_offset=1234,
            metadata_last_epoch=7,
            metadata_snapshot_end_offset=900,
            voters=[
                ReportedVoter(voter_id=1, voter_directory_id=DISK_1),
                ReportedVoter(voter_id=2, voter_directory_id=DISK_2),
            ],
            topics=[
                ReportedTopicState(
                    topic_id=TOPIC_ID,
                    partitions=[
                        ReportedPartition(partition_index=0, last_epoch=4, end_offset=77),
                        ReportedPartition(
                            partition_index=1, last_epoch=4, end_offset=70, damage="a checksum"
                        ),
                    ],
                )
            ],
        ),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    version, expected = REQUESTS[name]
    frame = vectors.load(name)
    header, position = headers.decode_request_header(frame, 4)
    assert (header.request_api_key, header.request_api_version) == (expected.api_key, version)
    assert type(expected).decode(frame, version, position) == (expected, len(frame))
    assert headers.encode_request(expected, version, header.correlation_id, "broker-1") == frame


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(name: str) -> None:
    version, expected = RESPONSES[name]
    frame = vectors.load(name)
    correlation_id, position = headers.decode_response_header(frame, expected.api_key, version, 4)
    assert correlation_id == 9
    assert type(expected).decode(frame, version, position) == (expected, len(frame))
    assert headers.encode_response(expected, version, 9, expected.api_key) == frame
