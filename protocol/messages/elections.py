"""The messages for leader elections, and for moving partitions to other brokers.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class TopicPartitions(Struct):
    """The partitions of one topic that need a leader."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Message, api_key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2):
    """The partitions for which to elect leaders; None means all.

    `election_type` is 0 for the preferred leader and 1 for an unclean election.
    """

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    """The result for one partition of an ElectLeaders request."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class ReplicaElectionResult(Struct):
    """One topic of an ElectLeadersResponse."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, api_key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2):
    """The result of an ElectLeaders request by partition. Version 1 adds an error for all."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class ReassignablePartition(Struct):
    """One partition and its future replicas. None cancels a reassignment."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable=0)


class ReassignableTopic(Struct):
    """One topic of an AlterPartitionReassignmentsRequest."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0
):
    """Partitions to move to other brokers.

    `allow_replication_factor_change` False refuses another number of replicas (KIP-860).
    """

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """The result for one partition of an AlterPartitionReassignments request."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class ReassignableTopicResponse(Struct):
    """One topic of an AlterPartitionReassignmentsResponse."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0
):
    """The result of an AlterPartitionReassignments request by partition, or of the whole
    request."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(Struct):
    """One topic of a ListPartitionReassignmentsRequest."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0
):
    """Ask for the running reassignments. `topics` None means all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=0
    )


class OngoingPartitionReassignment(Struct):
    """One partition that is being reassigned."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Struct):
    """One topic of a ListPartitionReassignmentsResponse."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0
):
    """The partitions that are being reassigned."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
