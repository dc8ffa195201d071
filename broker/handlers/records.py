"""Handles DeleteRecords and OffsetForLeaderEpoch, which concern the start of a log and the ends of
epochs."""

from __future__ import annotations

from broker.purgatory import Purgatory
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
from protocol.security.acl import AclOperation, AclResource
from protocol.types import NO_OFFSET

TO_HIGH_WATERMARK = -1
"""The offset in DeleteRecords that means the high watermark: delete all committed records."""


class _Trimmed:
    """A partition whose leader has deleted records, while the other live replicas have not done so
    yet."""

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
        """The leader epoch in which the leader has deleted the records."""
        self.offset = offset
        """All replicas must delete the records below this offset."""
        self.result = result

    def reached(self) -> None:
        self.result.low_watermark = self.replica.state.low_watermark
        self._deletion.wait_ended()

    def lost(self, code: ErrorCode) -> None:
        self.result.error_code = code
        self._deletion.wait_ended()


class _Deletion:
    """A DeleteRecords request. It is answered when all its waits have ended."""

    __slots__ = ("_open_count", "call", "deadline_ms", "response", "trimmed")

    def __init__(self, call: Call, deadline_ms: int) -> None:
        self.call = call
        self.deadline_ms = deadline_ms
        self.response = DeleteRecordsResponse()
        self.trimmed: list[_Trimmed] = []
        self._open_count = 0

    def settle(self, waits: Purgatory) -> None:
        """When the leader's own deletions are durable, wait for the followers, and then answer."""
        # One extra wait, so that it is not answered while its waits are still being added.
        self._open_count = 1 + len(self.trimmed)
        for one in self.trimmed:
            if one.replica.leads_in(one.leader_epoch):
                waits.await_(one.replica.low_line(), one.offset, one, self.deadline_ms)
            else:
                one.lost(one.replica.why_lost)
        self.wait_ended()

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error, because the deletion is not durable and a crash can undo it."""
        for one in self.trimmed:
            one.result.error_code = code
        self.call.answer(self.response)

    def wait_ended(self) -> None:
        """End one wait of the request. Send the answer if it was the last wait."""
        self._open_count -= 1
        if not self._open_count:
            self.call.answer(self.response)


class RecordHandlers:
    """Handles requests that delete records or ask for the ends of leader epochs."""

    def __init__(
        self, replicas: Replicas, checkpoints: CheckpointQueue, waits: Purgatory, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._waits = waits
        self._clock = clock

    def delete_records(self, call: Call, request: DeleteRecordsRequest) -> None:
        """Handle DeleteRecords. The answer is sent when each log's new start is durable on this
        broker, and all live replicas start at this offset or later.

        Otherwise a crash could bring back records after the client got the answer that they are
        deleted. If a follower is too slow for the request's timeout, the answer is
        REQUEST_TIMED_OUT, although the leader has deleted the records.
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
            if not deletion.call.may(AclOperation.DELETE, AclResource.TOPIC, topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
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
            partition.on_trimmed()
            deletion.trimmed.append(_Trimmed(deletion, partition, offset, result))
        except ApiError as error:
            result.error_code = error.code
        return result

    def offset_for_leader_epoch(
        self, call: Call, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Return the end offset of the epoch of a client's last record.

        The client must truncate its records above this offset.
        """
        # Kafka's brokers and tools ask with the right CLUSTER_ACTION.
        sees_all = call.may_with_cluster(AclOperation.CLUSTER_ACTION, is_logged=False)
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answer = OffsetForLeaderTopicResult(topic=topic.topic)
            for asked in topic.partitions:
                one = OffsetForLeaderEpochEndOffset(partition=asked.partition)
                try:
                    if not sees_all and not call.may_describe_topic(topic.topic):
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
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
