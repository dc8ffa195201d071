"""One replica of a partition: its log, its role, and the requests that wait for its offsets.

`state` has the role, the high watermark and the in-sync replicas. The class `Replica` connects it
with the log. A record takes the same calls on a leader and on a follower. `on_written` wakes the
followers and asks for an fsync, `on_durable` moves the high watermark, and `take_over` ends the
waits.

Requests wait for these offsets (`purgatory`):

- `durable`: the leader's own log is durable (acks=1).
- `committed`: all in-sync replicas have the records (acks=all, coordinators, markers).
- `readable`: a consumer can read more.
- `low_line`: all live replicas have deleted the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import RECOVERED
from broker.purgatory import OffsetKey
from broker.replicas.flusher import Flusher
from broker.replication.follower_steps import PartitionId
from broker.replication.leader import Assignment, LogEnds
from broker.replication.partition import FollowerRole, LeaderRole, PartitionState, RoleChange
from broker.storage.log import Log
from broker.world import Clock
from protocol.errors import ErrorCode
from protocol.types import NO_LEADER_EPOCH, TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""The isolation levels of Fetch and ListOffsets."""


class ReplicaListener(Protocol):
    """The interface to objects that are notified of events in partitions with several replicas,
    such as the followers of this broker and the service for its followers."""

    def changed(self, replica: Replica, change: RoleChange) -> None:
        """Handle a new role of the replica. The replica's log end offset is current.

        Requests that waited under the old role have been failed.
        """

    def gone(self, replica: Replica) -> None:
        """Handle that this broker has no replica of the partition any more."""

    def written(self, replica: Replica) -> None:
        """Handle appended records. This is called before their fsync on this broker starts."""

    def durable_advanced(self, replica: Replica) -> None:
        """Handle a longer durable part of this replica's log."""

    def moved(self, replica: Replica) -> None:
        """Handle a changed high watermark or log start offset."""

    def damaged(self, replica: Replica) -> None:
        """Handle a damaged log. It stays in service until another broker leads the partition."""


@dataclass(frozen=True, slots=True)
class ReplicaPorts:
    """The objects that a replica uses and notifies."""

    clock: Clock
    flusher: Flusher
    listeners: Sequence[ReplicaListener]
    """The listeners for partitions with several replicas. `Replicas` adds to them."""


class Replica:
    """The log and the state of one partition, while the replica is in service."""

    __slots__ = (
        "_low_line",
        "_ports",
        "bytes_in",
        "bytes_out",
        "committed",
        "durable",
        "index",
        "is_busy",
        "is_in_sync",
        "is_internal",
        "is_shared",
        "leader_epoch",
        "log",
        "readable",
        "state",
        "topic",
        "topic_partition",
        "why_lost",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        state: PartitionState,
        ports: ReplicaPorts,
        *,
        is_internal: bool,
    ) -> None:
        self._ports = ports
        self.topic_partition = topic_partition
        self.topic = topic_partition.topic
        self.index = topic_partition.partition
        self.log = log
        self.state = state
        self.is_internal = is_internal
        self.is_shared = False
        """True if the metadata names other replicas too. In this case the listeners are notified of
        appends."""
        self.is_busy = False
        """True while the log is being truncated. In the meantime nothing is read or appended, and
        the role does not change.

        The replica takes the role in the newest metadata when the job is done. So each change of a
        role must go through `Replicas._assign`.
        """
        self.is_in_sync = False
        """True if the replayed metadata names this broker as an in-sync replica."""
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the present role. Other objects that keep state by partition keep it
        by this epoch too."""
        self.durable = OffsetKey()
        self.committed = OffsetKey()
        self.readable = OffsetKey(), OffsetKey()
        """The keys for readers, by isolation level."""
        self._low_line = OffsetKey()
        self.why_lost = ErrorCode.NOT_LEADER_OR_FOLLOWER
        """The error for requests that waited under a former role."""
        self.bytes_in = 0
        """The number of bytes that clients have written to this replica since the start of the
        process."""
        self.bytes_out = 0
        """The number of bytes that clients have read from this replica since the start of the
        process."""

    @property
    def partition_id(self) -> PartitionId:
        """The id of the partition in requests between brokers."""
        return PartitionId(self.log.topic_id, self.index)

    @property
    def is_led(self) -> bool:
        """True if this broker leads the partition."""
        return isinstance(self.state.role, LeaderRole)

    def follows_in(self, leader_epoch: int) -> bool:
        """Return True if this broker still follows the leader of this epoch."""
        return leader_epoch == self.leader_epoch and isinstance(self.state.role, FollowerRole)

    def leads_in(self, leader_epoch: int) -> bool:
        """Return True if this broker still leads in this epoch, for work that continues later."""
        return leader_epoch == self.leader_epoch and self.is_led

    def readable_end(self, isolation_level: int) -> int:
        """Return the end for a client's reads: the high watermark or the last stable offset."""
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which the record at an offset was written.

        This is not always the current epoch. If a client that knows an older epoch got the current
        one, it would assume that the log was truncated, and on a topic without writes it would wait
        forever. At an offset without a record, return the current epoch, which the next record at
        this offset will have.
        """
        log = self.log
        if not log.log_start_offset <= offset < log.log_end_offset:
            return self.leader_epoch
        return log.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above the requested one, and its end offset; (-1, -1) if
        unknown."""
        return self.log.end_offset_for_epoch(leader_epoch, self.leader_epoch)

    # Changes.

    def assign(
        self, seen: PartitionImage, offset: int, min_in_sync_replicas: int, now_ms: int
    ) -> RoleChange | None:
        """Apply the metadata up to an offset. Return the role change; None if the role stays.

        After a role change, requests that waited under the former role fail with
        NOT_LEADER_OR_FOLLOWER. The caller must then call `take_over`.
        """
        assignment = Assignment(
            offset=offset,
            leader=seen.leader,
            leader_epoch=seen.leader_epoch,
            partition_epoch=seen.partition_epoch,
            replicas=seen.replicas,
            in_sync_replicas=seen.in_sync_replicas,
            min_in_sync_replicas=min_in_sync_replicas,
            adding_replicas=seen.adding_replicas,
            is_recovering=seen.leader_recovery_state != RECOVERED,
        )
        self.is_shared = len(seen.replicas) > 1
        change = self.state.assign(assignment, self._ends(), now_ms)
        self.leader_epoch = self.state.leader_epoch
        if change is not None:
            self._lose(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.durable.reached(self.state.durable_end)
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
        """Return the exclusive end of the durable records. If the topic does not wait for fsyncs,
        this is the end of the written records."""
        log = self.log
        if log.config.is_flushed_before_ack:
            # Staged bytes are not durable, even if the flusher was fast.
            return min(log.recovery_point, log.written_end_offset)
        return log.written_end_offset

    def on_written(self) -> None:
        """Handle an append. It is durable after the fsync, or at once if the topic does not wait
        for fsyncs."""
        if self.is_shared:
            # Notify the listeners before the fsync on this broker, so that all replicas fsync at
            # the same time.
            for listener in self._ports.listeners:
                listener.written(self)
        if self.log.config.is_flushed_before_ack:
            self._ports.flusher.mark(self.log)
            return
        self.on_durable()
        self.flush_if_due(self._ports.clock.now_ms())

    def flush_if_due(self, now_ms: int) -> None:
        """Fsync the log if its `flush.ms` or `flush.messages` requires it."""
        if self.log.is_flush_due(now_ms):
            self._ports.flusher.mark(self.log)

    def on_durable(self) -> None:
        """Handle that more of the log is durable. Move the high watermark if it waited for this."""
        end_offset = self.durable_end()
        self.state.advance_durable_end(end_offset)
        self.durable.reached(end_offset)
        self.take_over()
        if self.is_shared:
            for listener in self._ports.listeners:
                listener.durable_advanced(self)

    def take_over(self) -> None:
        """Apply the watermarks to the log, end the waits for them, and notify the listeners."""
        high_watermark = self.state.high_watermark
        has_moved = high_watermark > self.log.high_watermark
        if has_moved:
            self.log.advance_high_watermark(high_watermark)
        self.committed.reached(high_watermark)
        if self._low_line:
            self._low_line.reached(self.state.low_watermark)
        if has_moved:
            for isolation_level, readers in enumerate(self.readable):
                if readers:
                    readers.reached(self.readable_end(isolation_level))
            if self.is_shared:
                self._moved()

    def on_trimmed(self) -> None:
        """Handle a new log start offset after records were deleted."""
        self.state.trimmed(self.log.log_start_offset)
        if self.is_shared:
            self._moved()

    def _moved(self) -> None:
        for listener in self._ports.listeners:
            listener.moved(self)

    def low_line(self) -> OffsetKey:
        """Return the key on which requests wait until the logs of all live replicas start at or
        above an offset.

        The key is new if no request waits. It begins at the present low watermark, because that
        falls when a replica returns that has not applied a deletion.
        """
        if not self._low_line:
            self._low_line = OffsetKey(self.state.low_watermark)
        return self._low_line

    @property
    def is_all_durable(self) -> bool:
        """True if the whole log is durable."""
        return self.durable_end() == self.log.log_end_offset

    def on_learned(self, high_watermark: int) -> None:
        """Handle the high watermark in a leader's response."""
        self.state.learned(high_watermark, self.log.written_end_offset)
        self.take_over()

    def truncated(self) -> None:
        """Handle the end of a truncation or reset of a follower's log."""
        self.state.advance_durable_end(self.durable_end())
        self.on_learned(self.log.high_watermark)

    def gone(self, code: ErrorCode) -> None:
        """Fail all waiting requests with this error, because the replica goes out of service."""
        self.leader_epoch = NO_LEADER_EPOCH
        self._lose(code)

    def _lose(self, code: ErrorCode) -> None:
        self.why_lost = code
        self.durable.lost(code)
        self.committed.lost(code)
        self._low_line.lost(code)
