"""Fetch: reads record batches, for consumers and followers, with fetch sessions.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import (
    Message,
    Records,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    uuid_,
)

HIGH_WATERMARK_NOT_SAID = 0x7FFF_FFFF_FFFF_FFFF
"""The high watermark assumed for a fetcher that does not send its own (KIP-1166). With this value
the leader never answers early.
"""


class FetchPartition(Struct):
    """One partition to read, with the leader epoch that the reader knows.

    `high_watermark` is the highest value that the reader knows, -1 if none. A leader with a higher
    value answers at once, because replicas of the metadata log must not wait for the next value
    (KIP-1166).
    """

    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid_(since=17, tag=0, ignorable=True)
    high_watermark: int = int64(since=18, tag=1, default=HIGH_WATERMARK_NOT_SAID, ignorable=True)


class FetchTopic(Struct):
    """One topic of a FetchRequest, by name up to version 12 and by id from 13 on (KIP-516)."""

    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid_(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions to remove from an incremental session."""

    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid_(since=13, ignorable=True)
    partitions: list[int] = array(int32)


class ReplicaState(Struct):
    """The follower that fetches, and its broker epoch. Both are -1 for a consumer (KIP-903)."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchRequest(Message, api_key=ApiKey.FETCH, versions=(4, 18), flexible=12):
    """The partitions to read. Version 7 adds sessions, 9 leader epochs, 11 racks, 12 divergence by
    epoch.

    Versions above 12 are used only between brokers: 13 names topics by id, 15 adds the broker
    epoch, 17 the directory, 18 the high watermark. `replica_id` is -1 for consumers.
    `session_epoch` -1 without a `session_id` asks for no session.
    """

    cluster_id: str | None = string(since=12, nullable=12, tag=0, default=None, ignorable=True)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    isolation_level: int = int8()
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


class EpochEndOffset(Struct):
    """The last epoch that the reader's log and the leader's log share, and its end offset."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    """The current leader, to which the reader must send its requests."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotToFetch(Struct):
    """The snapshot that a follower must fetch first. Kafka's name is SnapshotId."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """An aborted transaction of a producer, by its first offset."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """The records of one partition, and its log start offset, high watermark and last stable
    offset.

    `aborted_transactions` is None unless the request was READ_COMMITTED. They are sorted by first
    offset.
    """

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotToFetch | None = struct(SnapshotToFetch, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=0)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Records = records_(nullable=0)


class FetchableTopicResponse(Struct):
    """One topic of a FetchResponse."""

    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid_(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """The address of a leader. Partitions of the same answer refer to it by the node id."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=16, default=None)


class FetchResponse(Message, api_key=ApiKey.FETCH, versions=(4, 18), flexible=12):
    """The records read.

    A `session_id` of 0 means that there is no session. Version 16 adds the addresses of leaders.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
