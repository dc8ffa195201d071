"""Builds the active controller's answer to DescribeQuorum (KIP-595, KIP-836, KIP-853).

This module is pure. Timestamps in the answer are wall time. As in Kafka, the leader reports the
present time as its own last fetch and last caught-up time.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.cluster.voter_orders import registered_address
from broker.metadata.image import METADATA_TOPIC, MetadataImage
from broker.quorum.quorum_status import QuorumReplicaStatus, QuorumStatus
from broker.quorum.voters import ReplicaKey
from protocol.errors import ErrorCode
from protocol.messages.voters import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumListener,
    QuorumNode,
    QuorumReplicaState,
)

NO_TIMESTAMP = -1


def describe_quorum(
    request: DescribeQuorumRequest, status: QuorumStatus, image: MetadataImage, now_ms: int
) -> DescribeQuorumResponse:
    """Return the answer with the fields of the latest version. `now_ms` is wall time.

    If the request names anything besides the metadata log, all its partitions get
    UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
    """
    asked = [(topic.topic_name, one.partition_index) for topic in request.topics
             for one in topic.partitions]  # fmt: skip
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(request)
    described = DescribeQuorumPartition(
        partition_index=0,
        leader_id=status.leader_id,
        leader_epoch=status.epoch,
        high_watermark=status.committed_offset,
        current_voters=_states(status.voters, now_ms),
        observers=_states(status.observers, now_ms),
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[described])],
        nodes=[_node(one.key, status, image) for one in status.voters],
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumTopic(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumPartition(
                        partition_index=one.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _states(replicas: Sequence[QuorumReplicaStatus], now_ms: int) -> list[QuorumReplicaState]:
    return [
        QuorumReplicaState(
            replica_id=one.key.node_id,
            replica_directory_id=one.key.directory_id,
            log_end_offset=one.end_offset,
            last_fetch_timestamp=_moment(one.fetched_ago_ms, now_ms),
            last_caught_up_timestamp=_moment(one.caught_up_ago_ms, now_ms),
        )
        for one in replicas
    ]


def _moment(ago_ms: int | None, now_ms: int) -> int:
    return NO_TIMESTAMP if ago_ms is None else now_ms - ago_ms


def _node(key: ReplicaKey, status: QuorumStatus, image: MetadataImage) -> QuorumNode:
    """Return a voter with its addresses in the voter set, as Kafka does. A voter set of a cluster
    that was made by 1.0.0-rc1 has none, so then use the address in the broker registration."""
    named = (one.endpoints for one in status.members if one.key == key)
    endpoints = next(named, ()) or registered_address(key, image)
    return QuorumNode(
        node_id=key.node_id,
        listeners=[
            QuorumListener(name=one.name, host=one.host, port=one.port) for one in endpoints
        ],
    )
