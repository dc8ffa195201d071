"""DeleteRecords and OffsetForLeaderEpoch: from where a log can be read, and where epochs end."""

from __future__ import annotations

from broker.replicas.checkpoint_queue import CheckpointQueue
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.types import NO_OFFSET

TO_HIGH_WATERMARK = -1
"""In DeleteRecords: everything that is committed."""


class RecordHandlers:
    """Records deleted, and the ends of epochs."""

    def __init__(self, replicas: Replicas, checkpoints: CheckpointQueue) -> None:
        self._replicas = replicas
        self._checkpoints = checkpoints

    def delete_records(self, call: Call, request: DeleteRecordsRequest) -> None:
        """DeleteRecords: answered once the new start of each log is on the disk.

        Else a crash could bring back records that somebody was told are gone.
        """
        results = [
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[self._deleted(topic.name, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        answer = DeleteRecordsResponse(topics=results)

        def failed(_: Exception) -> None:
            for topic in results:
                for one in topic.partitions:
                    if one.error_code == ErrorCode.NONE:
                        one.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                        one.low_watermark = NO_OFFSET
            call.answer(answer)

        self._checkpoints.write(lambda: call.answer(answer), failed, frees_room=True)

    def _deleted(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=NO_OFFSET
        )
        try:
            partition = self._replicas.find(topic, asked.partition_index)
            log = partition.log
            if partition.is_internal:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            if not log.config.is_deleted:
                raise ApiError(ErrorCode.POLICY_VIOLATION)
            offset = log.high_watermark if asked.offset == TO_HIGH_WATERMARK else asked.offset
            if offset < 0:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
            log.advance_log_start(offset)
            self._replicas.trimmed(partition)
            result.low_watermark = log.log_start_offset
        except ApiError as error:
            result.error_code = error.code
        return result

    def offset_for_leader_epoch(
        self, call: Call, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Where the epoch of a client's last record ends: beyond it the client must truncate."""
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answer = OffsetForLeaderTopicResult(topic=topic.topic)
            for asked in topic.partitions:
                one = OffsetForLeaderEpochEndOffset(partition=asked.partition)
                try:
                    partition = self._replicas.find_readable(
                        topic.topic, asked.partition, asked.current_leader_epoch
                    )
                    found = partition.end_offset_for_epoch(asked.leader_epoch)
                    one.leader_epoch, one.end_offset = found
                except ApiError as error:
                    one.error_code = error.code
                answer.partitions.append(one)
            response.topics.append(answer)
        return response
