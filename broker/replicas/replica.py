"""One replica of a partition: its log, its role, and the requests that wait for its offsets.

Room: replicas. `state` holds the role, the high watermark and the in-sync replicas; this class
connects it with the log. Requests wait in three sets: `durable` until the leader's own log is
durable (acks=1), `committed` until all in-sync replicas have the records (acks=all, coordinators,
markers), and `low_line` until all live replicas have deleted records.
"""

from __future__ import annotations

from broker.metadata.image import PartitionImage
from broker.metadata.records import RECOVERED
from broker.offset_waiters import OffsetWaiters
from broker.replication.follower_steps import PartitionId
from broker.replication.leader import Assignment, LogEnds
from broker.replication.partition import FollowerRole, LeaderRole, PartitionState, RoleChange
from broker.storage.log import Log
from protocol.errors import ErrorCode
from protocol.types import NO_LEADER_EPOCH, TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""The isolation levels of Fetch and ListOffsets."""


class Replica:
    """The log and the state of one partition. It exists as long as the partition's folder."""

    __slots__ = (
        "_low_line",
        "bytes_in",
        "bytes_out",
        "committed",
        "durable",
        "index",
        "is_busy",
        "is_internal",
        "is_shared",
        "leader_epoch",
        "log",
        "state",
        "topic",
        "topic_partition",
        "why_lost",
    )

    def __init__(
        self, topic_partition: TopicPartition, log: Log, state: PartitionState, is_internal: bool
    ) -> None:
        self.topic_partition = topic_partition
        self.topic = topic_partition.topic
        self.index = topic_partition.partition
        self.log = log
        self.state = state
        self.is_internal = is_internal
        self.is_shared = False
        """Whether the metadata names other replicas. Then listeners are notified of appends."""
        self.is_busy = False
        """Whether its log is being truncated. Then nothing is read or appended, and the role does
        not change.

        It takes the role of the newest metadata when the job is done. So each change of a role must
        go through `Replicas._assign`.
        """
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the present role. State kept by partition is kept by it too."""
        self.durable = OffsetWaiters()
        self.committed = OffsetWaiters()
        self._low_line = OffsetWaiters()
        self.why_lost = ErrorCode.NOT_LEADER_OR_FOLLOWER
        """The error for requests that waited here under a former role."""
        self.bytes_in = 0
        """Bytes that clients have written here since the start of the process."""
        self.bytes_out = 0
        """Bytes that clients have read here since the start of the process."""

    @property
    def partition_id(self) -> PartitionId:
        """The name of the partition between brokers."""
        return PartitionId(self.log.topic_id, self.index)

    @property
    def is_led(self) -> bool:
        """True if this broker leads the partition."""
        return isinstance(self.state.role, LeaderRole)

    def follows_in(self, leader_epoch: int) -> bool:
        """Return whether this broker still follows the leader of that epoch."""
        return leader_epoch == self.leader_epoch and isinstance(self.state.role, FollowerRole)

    def leads_in(self, leader_epoch: int) -> bool:
        """Return whether this broker still leads in that epoch, for work that continues in later
        turns.
        """
        return leader_epoch == self.leader_epoch and self.is_led

    def readable_end(self, isolation_level: int) -> int:
        """Return the end for a client's reads: the high watermark or the last stable offset."""
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which the record at an offset was written.

        It is the record's epoch, not the current one. On a quiet topic, a client that knows an
        older epoch would take the current one for a truncation and wait forever. At an offset
        without a record, it is the current epoch, which the next record there will have.
        """
        log = self.log
        if not log.log_start_offset <= offset < log.log_end_offset:
            return self.leader_epoch
        return log.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above the requested one, its end offset), or (-1, -1)."""
        return self.log.end_offset_for_epoch(leader_epoch, self.leader_epoch)

    # Changes.

    def assign(
        self, seen: PartitionImage, offset: int, min_in_sync_replicas: int, now_ms: int
    ) -> RoleChange | None:
        """Apply the metadata as of an offset. Return the role change, or None if the role stays.

        After a role change, requests that waited under the former role fail with
        NOT_LEADER_OR_FOLLOWER. The caller then calls `take_over`.
        """
        assignment = Assignment(
            offset=offset,
            leader=seen.leader,
            leader_epoch=seen.leader_epoch,
            partition_epoch=seen.partition_epoch,
            replicas=seen.replicas,
            in_sync_replicas=seen.in_sync_replicas,
            min_in_sync_replicas=min_in_sync_replicas,
            is_recovering=seen.leader_recovery_state != RECOVERED,
        )
        self.is_shared = len(seen.replicas) > 1
        change = self.state.assign(assignment, self._ends(), now_ms)
        self.leader_epoch = self.state.leader_epoch
        if change is not None:
            self._lose(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.durable.advanced(self.state.durable_end)
        return change

    def _ends(self) -> LogEnds:
        log = self.log
        return LogEnds(
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            durable_end=self.durable_end(),
            log_end_offset=log.log_end_offset,
        )

    def durable_end(self) -> int:
        """Return the durable end: what is fsynced, or what is written if the topic does not wait
        for fsyncs.
        """
        log = self.log
        if log.config.is_flushed_before_ack:
            # Staged bytes are not durable, even if the flusher was fast.
            return min(log.recovery_point, log.written_end_offset)
        return log.written_end_offset

    def advance_durable(self) -> bool:
        """Note that more of the log is durable. Return whether the high watermark has moved."""
        end_offset = self.durable_end()
        self.state.advance_durable_end(end_offset)
        self.durable.advanced(end_offset)
        return self.take_over()

    def take_over(self) -> bool:
        """Apply the watermarks to the log and to waiting requests. Return whether the high
        watermark has moved.
        """
        high_watermark = self.state.high_watermark
        has_moved = high_watermark > self.log.high_watermark
        if has_moved:
            self.log.advance_high_watermark(high_watermark)
        self.committed.advanced(high_watermark)
        if self._low_line:
            self._low_line.advanced(self.state.low_watermark)
        return has_moved

    def low_line(self) -> OffsetWaiters:
        """Return where requests wait until the logs of all live replicas start at or above an
        offset.

        It starts again at the present low watermark when no request waits, because that watermark
        falls when a replica returns that has not applied a deletion.
        """
        if not self._low_line:
            self._low_line = OffsetWaiters(self.state.low_watermark)
        return self._low_line

    @property
    def is_all_durable(self) -> bool:
        """True if the whole log is durable."""
        return self.durable_end() == self.log.log_end_offset

    def learned(self, high_watermark: int) -> bool:
        """Note the high watermark in a leader's response. Return whether this replica's own has
        moved.
        """
        self.state.learned(high_watermark, self.log.written_end_offset)
        return self.take_over()

    def truncated(self) -> None:
        """Note that a follower's log was truncated or reset."""
        self.state.advance_durable_end(self.durable_end())
        self.learned(self.log.high_watermark)

    def gone(self) -> None:
        """Fail all waiting requests, because the partition is deleted."""
        self.leader_epoch = NO_LEADER_EPOCH
        self._lose(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _lose(self, code: ErrorCode) -> None:
        self.why_lost = code
        self.durable.lose(code)
        self.committed.lose(code)
        self._low_line.lose(code)
