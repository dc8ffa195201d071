"""The messages among the voters of the metadata quorum: votes, epochs, snapshots.

This module has only data classes. Every request names the cluster, the intended voter and the
sender. Voters are named by id and directory, because a voter with another disk is another voter
(KIP-853). The quorum has one partition, but Kafka's format nests it in arrays of topics and
partitions.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import (
    Message,
    Records,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    uint16,
    uuid_,
)


class VoteRequestPartition(Struct):
    """The election of one partition's leader. Kafka's name is PartitionData.

    `last_offset` is the end of the candidate's log, and `last_offset_epoch` the epoch of its last
    batch. A `pre_vote` only asks whether the vote would be granted, so nothing is stored (KIP-996).
    Then `replica_epoch` is the current epoch, not the next.
    """

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid_()
    voter_directory_id: Uuid = uuid_()
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean()


class VoteRequestTopic(Struct):
    """One topic of a VoteRequest. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[VoteRequestPartition] = array(VoteRequestPartition)


class VoteRequest(Message, api_key=ApiKey.VOTE, versions=(2, 2), flexible=0):
    """A candidate's request for a voter's vote, or the question whether the vote would be
    granted."""

    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(default=-1)
    topics: list[VoteRequestTopic] = array(VoteRequestTopic)


class VoteResponsePartition(Struct):
    """The vote for one partition; a `leader_id` of -1 means no known leader.

    Kafka's name is PartitionData.
    """

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class VoteResponseTopic(Struct):
    """One topic of a VoteResponse. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[VoteResponsePartition] = array(VoteResponsePartition)


class QuorumLeaderEndpoint(Struct):
    """The address of the leader that the same answer names. Kafka's name is NodeEndpoint."""

    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class VoteResponse(Message, api_key=ApiKey.VOTE, versions=(2, 2), flexible=0):
    """The answer of a voter: whether it grants the vote, and its epoch."""

    error_code: int = int16()
    topics: list[VoteResponseTopic] = array(VoteResponseTopic)
    node_endpoints: list[QuorumLeaderEndpoint] = array(QuorumLeaderEndpoint, tag=0)


class LeaderEndpoint(Struct):
    """One listener of the leader that sends the request."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochPartition(Struct):
    """The new leader of one partition. Kafka's name is PartitionData."""

    partition_index: int = int32()
    voter_directory_id: Uuid = uuid_()
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochTopic(Struct):
    """One topic of a BeginQuorumEpochRequest. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochPartition] = array(BeginQuorumEpochPartition)


class BeginQuorumEpochRequest(
    Message, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions=(1, 1), flexible=1
):
    """The elected leader's announcement to a voter, so that the voter fetches before its
    time-out."""

    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(default=-1)
    topics: list[BeginQuorumEpochTopic] = array(BeginQuorumEpochTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint)


class QuorumEpochPartition(Struct):
    """A voter's answer to the start or end of an epoch. Kafka's name is PartitionData."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class QuorumEpochTopic(Struct):
    """One topic of the answer to the start or end of an epoch. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[QuorumEpochPartition] = array(QuorumEpochPartition)


class BeginQuorumEpochResponse(
    Message, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions=(1, 1), flexible=1
):
    """The voter's epoch, which can be newer than the leader's."""

    error_code: int = int16()
    topics: list[QuorumEpochTopic] = array(QuorumEpochTopic)
    node_endpoints: list[QuorumLeaderEndpoint] = array(QuorumLeaderEndpoint, tag=0)


class ReplicaInfo(Struct):
    """A voter that should start an election."""

    candidate_id: int = int32()
    candidate_directory_id: Uuid = uuid_()


class EndQuorumEpochPartition(Struct):
    """The leader of one partition that resigns. Kafka's name is PartitionData.

    `preferred_candidates` are sorted: the voter with the longest log comes first, and later voters
    wait longer.
    """

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo)


class EndQuorumEpochTopic(Struct):
    """One topic of an EndQuorumEpochRequest. Kafka's name is TopicData."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochPartition] = array(EndQuorumEpochPartition)


class EndQuorumEpochRequest(Message, api_key=ApiKey.END_QUORUM_EPOCH, versions=(1, 1), flexible=1):
    """The leader's resignation, so that another leader is elected at once, without a time-out."""

    cluster_id: str | None = string(nullable=0, default=None)
    topics: list[EndQuorumEpochTopic] = array(EndQuorumEpochTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint)


class EndQuorumEpochResponse(Message, api_key=ApiKey.END_QUORUM_EPOCH, versions=(1, 1), flexible=1):
    """The voter's epoch."""

    error_code: int = int16()
    topics: list[QuorumEpochTopic] = array(QuorumEpochTopic)
    node_endpoints: list[QuorumLeaderEndpoint] = array(QuorumLeaderEndpoint, tag=0)


class SnapshotOfPartition(Struct):
    """A snapshot, named by its end offset and the epoch of that offset.

    Kafka's name is SnapshotId.
    """

    end_offset: int = int64()
    epoch: int = int32()


class FetchSnapshotPartition(Struct):
    """A snapshot and the byte position to read from. Kafka's name is PartitionSnapshot."""

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotOfPartition = struct(SnapshotOfPartition)
    position: int = int64()
    replica_directory_id: Uuid = uuid_(tag=0)


class FetchSnapshotTopic(Struct):
    """One topic of a FetchSnapshotRequest. Kafka's name is TopicSnapshot."""

    name: str = string()
    partitions: list[FetchSnapshotPartition] = array(FetchSnapshotPartition)


class FetchSnapshotRequest(Message, api_key=ApiKey.FETCH_SNAPSHOT, versions=(1, 1), flexible=0):
    """Ask for the next bytes of a snapshot, because the leader's log starts after the needed
    offset."""

    cluster_id: str | None = string(nullable=0, tag=0, default=None)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[FetchSnapshotTopic] = array(FetchSnapshotTopic)


class SnapshotLeader(Struct):
    """The current leader, to which the replica must send its requests.

    Kafka's name is LeaderIdAndEpoch.
    """

    leader_id: int = int32()
    leader_epoch: int = int32()


class SnapshotPartition(Struct):
    """Some bytes of one snapshot. Kafka's name is PartitionSnapshot.

    `size` is the size of the whole snapshot in bytes. The returned bytes can start and end inside a
    batch.
    """

    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotOfPartition = struct(SnapshotOfPartition)
    current_leader: SnapshotLeader | None = struct(SnapshotLeader, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records = records_(default=b"")


class SnapshotTopic(Struct):
    """One topic of a FetchSnapshotResponse. Kafka's name is TopicSnapshot."""

    name: str = string()
    partitions: list[SnapshotPartition] = array(SnapshotPartition)


class FetchSnapshotResponse(Message, api_key=ApiKey.FETCH_SNAPSHOT, versions=(1, 1), flexible=0):
    """Bytes of the requested snapshots."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[SnapshotTopic] = array(SnapshotTopic)
    node_endpoints: list[QuorumLeaderEndpoint] = array(QuorumLeaderEndpoint, tag=0)
