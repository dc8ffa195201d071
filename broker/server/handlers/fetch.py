"""Fetch and ListOffsets."""

from __future__ import annotations

from collections import Counter

from broker.server.connection import Call
from broker.server.reading import BROKER_LISTENER
from broker.server.services import Services
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log import Log
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    TopicPartition,
)

MAX_TIMESTAMP_SINCE = 7
"""ListOffsets -3; the special timestamps below it are not served in any version offered."""

LEADER_EPOCH_SINCE = 4


def fetch(services: Services, call: Call, request: FetchRequest) -> FetchResponse | None:
    """Answer with what there is, or park."""
    return services.fetches.start(call, request)


def list_offsets(
    services: Services, call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """The offset at a time, or at one of the special ones."""
    named = Counter(
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    response = ListOffsetsResponse()
    for topic in request.topics:
        answer = ListOffsetsTopicResponse(name=topic.name)
        for asked in topic.partitions:
            one = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            try:
                if named[TopicPartition(topic.name, asked.partition_index)] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "partition named twice")
                if request.replica_id >= 0 and call.listener_name != BROKER_LISTENER:
                    raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                _list_one(services, call.version, request.isolation_level, topic.name, asked, one)
            except ApiError as error:
                one.error_code = error.code
            except (DiskError, CorruptionError, WireError):
                one.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            answer.partitions.append(one)
        response.topics.append(answer)
    return response


def _list_one(
    services: Services,
    version: int,
    isolation_level: int,
    topic: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    partition = services.replicas.find(topic, asked.partition_index)
    partition.check_epoch(asked.current_leader_epoch)
    log = partition.log
    limit_offset = partition.readable_end(isolation_level)
    timestamp = asked.timestamp
    leader_epoch = NO_LEADER_EPOCH
    if timestamp == LATEST_TIMESTAMP:
        answer.offset = limit_offset
        leader_epoch = epoch_of(log, limit_offset - 1)
    elif timestamp == EARLIEST_TIMESTAMP:
        answer.offset = log.log_start_offset
        leader_epoch = epoch_of(log, log.log_start_offset)
    elif timestamp >= 0 or (timestamp == MAX_TIMESTAMP and version >= MAX_TIMESTAMP_SINCE):
        found = (
            log.max_timestamp_record(limit_offset)
            if timestamp == MAX_TIMESTAMP
            else log.offset_for_timestamp(timestamp, limit_offset)
        )
        if found is None:
            answer.offset, answer.timestamp = NO_OFFSET, NO_TIMESTAMP
            return
        answer.offset, answer.timestamp = found.offset, found.timestamp_ms
        leader_epoch = found.leader_epoch
    else:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp}")
    if version >= LEADER_EPOCH_SINCE:
        answer.leader_epoch = leader_epoch


def epoch_of(log: Log, offset: int) -> int:
    """The leader epoch in which the record at an offset was written; -1 when there is none.

    The epoch of the record, not the current one: on a quiet topic a client that knows an older
    epoch would take the current one for a truncation and wait for ever.
    """
    if not log.log_start_offset <= offset < log.log_end_offset:
        return NO_LEADER_EPOCH
    return log.leader_epochs.epoch_of(offset)
