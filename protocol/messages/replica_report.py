"""The report of the replicas on a broker's disks. This message is our own; Kafka does not have it.

This module has only data classes. The report has two uses. Before a new cluster is created, each
broker asks all configured brokers. A voter set is created only if all of them answer and are empty.
And when a partition has lost all in-sync replicas, the report shows which log is longest before the
partition gets a leader again.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid_


class ReportedTopic(Struct):
    """The partitions of one topic to report."""

    topic_id: Uuid = uuid_()
    partitions: list[int] = array(int32)


class ReplicaReportRequest(Message, api_key=ApiKey.REPLICA_REPORT, versions=(0, 0), flexible=0):
    """The asking broker, and the partitions to report.

    `configured_ids` are the ids of the brokers in its configuration, in ascending order. `topics`
    None means every partition, an empty list none.
    """

    cluster_id: str = string()
    broker_id: int = int32()
    directory_id: Uuid = uuid_()
    configured_ids: list[int] = array(int32)
    topics: list[ReportedTopic] | None = array(ReportedTopic, nullable=0)


class ReportedVoter(Struct):
    """A voter in the broker's metadata log or bootstrap snapshot."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_()


class ReportedPartition(Struct):
    """The log of one replica.

    `last_epoch` is the leader epoch of its last batch, -1 without a batch. `end_offset` is
    exclusive and covers only durable records. `damage` describes a log that has lost durable
    records; None for an undamaged log. A missing replica is left out.
    """

    partition_index: int = int32()
    last_epoch: int = int32(default=-1)
    end_offset: int = int64()
    damage: str | None = string(nullable=0, default=None)


class ReportedTopicState(Struct):
    """One topic of a ReplicaReportResponse."""

    topic_id: Uuid = uuid_()
    partitions: list[ReportedPartition] = array(ReportedPartition)


class ReplicaReportResponse(Message, api_key=ApiKey.REPLICA_REPORT, versions=(0, 0), flexible=0):
    """The identity of the broker's disk and its content.

    `metadata_end_offset` is the exclusive end of the metadata log, `metadata_last_epoch` the epoch
    of its last batch, and `metadata_snapshot_end_offset` the end of its newest snapshot. Without
    them they are 0, -1 and 0. A broker is empty if its disk has no metadata, no voter set and no
    partition.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    cluster_id: str = string()
    broker_id: int = int32()
    directory_id: Uuid = uuid_()
    configured_ids: list[int] = array(int32)
    metadata_end_offset: int = int64()
    metadata_last_epoch: int = int32(default=-1)
    metadata_snapshot_end_offset: int = int64()
    voters: list[ReportedVoter] = array(ReportedVoter)
    topics: list[ReportedTopicState] = array(ReportedTopicState)
