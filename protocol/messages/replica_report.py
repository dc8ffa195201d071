"""The report of a replica: what stands on a broker's disks. Our own message, not Kafka's.

Floor: messages. Data only. It serves twice. Before a cluster is born each broker asks all
configured ones: only where every one of them answers, and is empty, may a voter set be made. And
before a partition whose in-sync replicas were all lost is led again, it tells which log is longest.
"""

from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid_


class ReportedTopic(Struct):
    """Partitions to report on."""

    topic_id: Uuid = uuid_()
    partitions: list[int] = array(int32)


class ReplicaReportRequest(Message, api_key=ApiKey.REPLICA_REPORT, versions=(0, 0), flexible=0):
    """Who asks, and about which partitions.

    `configured_ids` are the ids of the brokers in the asker's configuration, rising. `topics` None
    asks about every partition there is, an empty list about none.
    """

    cluster_id: str = string()
    broker_id: int = int32()
    directory_id: Uuid = uuid_()
    configured_ids: list[int] = array(int32)
    topics: list[ReportedTopic] | None = array(ReportedTopic, nullable=0)


class ReportedVoter(Struct):
    """A voter as the broker's log or bootstrap snapshot names it."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_()


class ReportedPartition(Struct):
    """One replica's log.

    `last_epoch` is the leader epoch of its last batch, -1 if it has none; `end_offset` is exclusive
    and counts only what is on the disk. `damage` says what is wrong with a log that has lost
    something below what was once on the disk, and is None for a sound one. A replica that is not
    there is left out.
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
    """Whose disk it is and what it holds.

    `metadata_end_offset` is the exclusive end of the metadata log, `metadata_last_epoch` the epoch
    of its last batch and `metadata_snapshot_end_offset` the end of its newest snapshot: 0, -1 and 0
    where there is nothing. A broker is empty if its disk holds none of them, no voter set and no
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
