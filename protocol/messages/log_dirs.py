"""The messages to describe log directories, and to move replicas between them.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class AlterReplicaLogDirTopic(Struct):
    """The partitions of one topic to move."""

    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(Struct):
    """One directory, and the partitions to move into it."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(
    Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2
):
    """Replicas to move between the directories of one broker."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """The result for one partition of an AlterReplicaLogDirs request."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """One topic of an AlterReplicaLogDirsResponse."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(
    Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2
):
    """The result of an AlterReplicaLogDirs request by partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


class DescribableLogDirTopic(Struct):
    """One topic of a DescribeLogDirsRequest."""

    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(
    Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), flexible=2
):
    """Log directories to describe; topics None means all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


class DescribeLogDirsPartition(Struct):
    """One replica: its size in bytes, and how many offsets it lags behind."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """One topic of a DescribeLogDirsResult."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One log directory. Version 4 adds the total and free bytes of its volume; -1 if unknown."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)


class DescribeLogDirsResponse(
    Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), flexible=2
):
    """The log directories. Version 3 adds an error for the whole request."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
