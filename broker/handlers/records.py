"""DeleteRecords and OffsetForLeaderEpoch: from where a log can be read, and where epochs end."""

from __future__ import annotations

from broker.commitments import Waits
from broker.replicas.checkpoint_queue import CheckpointQueue
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.world import Clock
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


class _Trimmed:
    """A partition whose log begins elsewhere on its leader; waits for the other live replicas."""

    __slots__ = ("_deletion", "leader_epoch", "offset", "replica", "result")

    def __init__(
        self,
        deletion: _Deletion,
        replica: Replica,
        offset: int,
        result: DeleteRecordsPartitionResult,
    ) -> None:
        self._deletion = deletion
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        """In which the leader has deleted."""
        self.offset = offset
        """Below which all of them are to have deleted."""
        self.result = result

    def reached(self) -> None:
        self.result.low_watermark = self.replica.state.low_watermark
        self._deletion.part_ended()

    def lost(self, code: ErrorCode) -> None:
        self.result.error_code = code
        self._deletion.part_ended()


class _Deletion:
    """A DeleteRecords: answered when all that it waits for has ended."""

    __slots__ = ("_open_count", "call", "deadline_ms", "response", "trimmed")

    def __init__(self, call: Call, deadline_ms: int) -> None:
        self.call = call
        self.deadline_ms = deadline_ms
        self.response = DeleteRecordsResponse()
        self.trimmed: list[_Trimmed] = []
        self._open_count = 0

    def settle(self, waits: Waits) -> None:
        """The leader's own deletions are durable: answer, now or when the others have followed."""
        # One more, so that it is not answered between two of its parts.
        self._open_count = 1 + len(self.trimmed)
        for one in self.trimmed:
            if one.replica.leads_in(one.leader_epoch):
                waits.await_(one.replica.low_line(), one.offset, one, self.deadline_ms)
            else:
                one.lost(one.replica.why_lost)
        self.part_ended()

    def refuse(self, code: ErrorCode) -> None:
        """What the leader has deleted is not on its disk, and may come back."""
        for one in self.trimmed:
            one.result.error_code = code
        self.call.answer(self.response)

    def part_ended(self) -> None:
        """One wait less; the last one lets the answer leave."""
        self._open_count -= 1
        if not self._open_count:
            self.call.answer(self.response)


class RecordHandlers:
    """Records deleted, and the ends of epochs."""

    def __init__(
        self, replicas: Replicas, checkpoints: CheckpointQueue, waits: Waits, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._waits = waits
        self._clock = clock

    def delete_records(self, call: Call, request: DeleteRecordsRequest) -> None:
        """DeleteRecords: answered once the new start of each log is on the disk here, and all live
        replicas begin there or behind it.

        Else a crash could bring back records that somebody was told are gone. A follower that has
        not followed within the request's time: REQUEST_TIMED_OUT, though the leader has deleted.
        """
        deletion = _Deletion(call, self._clock.monotonic_ms() + request.timeout_ms)
        deletion.response.topics = [
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[self._deleted(topic.name, one, deletion) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        self._checkpoints.write(
            lambda: deletion.settle(self._waits),
            lambda _: deletion.refuse(ErrorCode.KAFKA_STORAGE_ERROR),
            frees_room=True,
        )

    def _deleted(
        self, topic: str, asked: DeleteRecordsPartition, deletion: _Deletion
    ) -> DeleteRecordsPartitionResult:
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
            self._replicas.counting.trimmed(partition)
            deletion.trimmed.append(_Trimmed(deletion, partition, offset, result))
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
