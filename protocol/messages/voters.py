"""The messages about the voters of the metadata quorum: their progress, and changes of the set
(KIP-853).

This module has only data classes. A voter is identified by an id and a directory together.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid_,
)


class DescribeQuorumRequestPartition(Struct):
    """A partition by its index. Kafka's name is PartitionData."""

    partition_index: int = int32()


class DescribeQuorumRequestTopic(Struct):
    """One topic of a DescribeQuorumRequest. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartition] = array(DescribeQuorumRequestPartition)


class DescribeQuorumRequest(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    """Ask for the leader of the metadata quorum and the progress of all replicas."""

    topics: list[DescribeQuorumRequestTopic] = array(DescribeQuorumRequestTopic)


class QuorumReplicaState(Struct):
    """The progress of one replica; -1 if unknown, times in Unix ms.

    Kafka's name is ReplicaState.
    """

    replica_id: int = int32()
    replica_directory_id: Uuid = uuid_(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64(since=1, default=-1, ignorable=True)


class DescribeQuorumPartition(Struct):
    """The quorum of one partition. Kafka's name is PartitionData."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, default=None, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[QuorumReplicaState] = array(QuorumReplicaState)
    observers: list[QuorumReplicaState] = array(QuorumReplicaState)


class DescribeQuorumTopic(Struct):
    """One topic of a DescribeQuorumResponse. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition)


class QuorumListener(Struct):
    """One address of a node. Kafka's name is Listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class QuorumNode(Struct):
    """The addresses of one node. Kafka's name is Node."""

    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


class DescribeQuorumResponse(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    """The quorum as its leader sees it."""

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, default=None, ignorable=True)
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, since=2)


class AddRaftVoterRequest(Message, api_key=ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0):
    """Make an observer that has caught up a voter.

    The answer comes when the change is committed or, if `ack_when_committed` is false, when it is
    written at the leader.
    """

    cluster_id: str | None = string(nullable=0)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_()
    listeners: list[QuorumListener] = array(QuorumListener)
    ack_when_committed: bool = boolean(since=1, default=True)


class AddRaftVoterResponse(Message, api_key=ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0):
    """The error code that tells whether the node is a voter now."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None, ignorable=True)


class RemoveRaftVoterRequest(
    Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0
):
    """Remove a voter from the set, for example after the loss of its disk."""

    cluster_id: str | None = string(nullable=0)
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_()


class RemoveRaftVoterResponse(
    Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0
):
    """The error code that tells whether the voter is removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None, ignorable=True)


class VoterVersions(Struct):
    """The range of `kraft.version` that a voter supports, both ends included.

    Kafka's name is KRaftVersionFeature.
    """

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(
    Message, api_key=ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), flexible=0
):
    """Write the present addresses and versions of the sending voter into the record of the
    voters."""

    cluster_id: str | None = string(nullable=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_()
    listeners: list[QuorumListener] = array(QuorumListener)
    k_raft_version_feature: VoterVersions = struct(VoterVersions)


class VoterUpdateLeader(Struct):
    """The leader of the quorum as the answering node knows it. Kafka's name is CurrentLeader."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(
    Message, api_key=ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), flexible=0
):
    """The error code that tells whether the record names the addresses now."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: VoterUpdateLeader | None = struct(VoterUpdateLeader, tag=0)
