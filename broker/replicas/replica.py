"""One partition as this broker holds it: its log, its role, and who waits for what of it.

Floor: replicas. The role, the high watermark and the in-sync replicas are `state`'s; here they meet
the log, and the lines of those who wait: for what the leader's own disk has (`durable`, acks=1),
for what all in-sync replicas have (`committed`: acks=all, coordinators, markers), and for what all
live replicas have deleted (`low_line`).
"""

from __future__ import annotations

from broker.metadata.image import PartitionImage
from broker.metadata.records import RECOVERED
from broker.offset_waiters import OffsetWaiters
from broker.replication.follower_steps import PartitionId
from broker.replication.leader import Assignment, LogEnds
from broker.replication.partition import Follower, Leader, PartitionState, RoleChange
from broker.storage.log import Log
from protocol.errors import ErrorCode
from protocol.types import NO_LEADER_EPOCH, TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""The isolation levels of Fetch and ListOffsets."""


class Replica:
    """The log and the state of one partition. Made when its folder is there, until that goes."""

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
        """Whether the metadata names other replicas: they have to hear of what is written here."""
        self.is_busy = False
        """Whether its log is being cut: nothing is read or written, and no role begins.

        The partition keeps its role until the job is done. Then it takes the role of the newest
        metadata. So every change of a role must go through `Replicas._assign`."""
        self.leader_epoch = NO_LEADER_EPOCH
        """Of the present role. What is kept by partition is kept by this epoch too."""
        self.durable = OffsetWaiters()
        self.committed = OffsetWaiters()
        self._low_line = OffsetWaiters()
        self.why_lost = ErrorCode.NOT_LEADER_OR_FOLLOWER
        """What is told to those who have written here in a role that is over."""
        self.bytes_in = 0
        """What clients have written here since the start of the process."""
        self.bytes_out = 0
        """What they have been sent from here."""

    @property
    def partition_id(self) -> PartitionId:
        """What it is called between brokers."""
        return PartitionId(self.log.topic_id, self.index)

    @property
    def is_led(self) -> bool:
        """Whether this broker is the partition's leader."""
        return isinstance(self.state.role, Leader)

    def follows_in(self, leader_epoch: int) -> bool:
        """Whether it still follows the leader of that epoch."""
        return leader_epoch == self.leader_epoch and isinstance(self.state.role, Follower)

    def leads_in(self, leader_epoch: int) -> bool:
        """Whether it is still the leader of that epoch, for what goes on in later turns."""
        return leader_epoch == self.leader_epoch and self.is_led

    def readable_end(self, isolation_level: int) -> int:
        """Where a client's reading ends: at the high watermark, or before what is undecided."""
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at an offset was written.

        The epoch of the record, not the current one: on a quiet topic a client that knows an older
        epoch would take the current one for a truncation and wait for ever. Where there is no
        record, the next one there will be of the current epoch.
        """
        log = self.log
        if not log.log_start_offset <= offset < log.log_end_offset:
            return self.leader_epoch
        return log.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the one asked for, its end offset), or (-1, -1)."""
        return self.log.end_offset_for_epoch(leader_epoch, self.leader_epoch)

    # What moves it.

    def assign(
        self, seen: PartitionImage, offset: int, min_in_sync_replicas: int, now_ms: int
    ) -> RoleChange | None:
        """Follow the metadata log as it is at an offset; None where the role stays.

        Whoever waits here under the role before is told: nothing is known of it any more. Then
        `take_over` is due.
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
        """The end of what is durable as the topic's settings ask: fsynced, or only written."""
        log = self.log
        if log.config.is_flushed_before_ack:
            # What is staged does not count, even if the flusher has been fast.
            return min(log.recovery_point, log.written_end_offset)
        return log.written_end_offset

    def advance_durable(self) -> bool:
        """More of the own log counts: tell it on. Whether the high watermark has moved."""
        end_offset = self.durable_end()
        self.state.advance_durable_end(end_offset)
        self.durable.advanced(end_offset)
        return self.take_over()

    def take_over(self) -> bool:
        """Bring the log, and who waits, to the watermarks. Whether the high one has moved."""
        high_watermark = self.state.high_watermark
        has_moved = high_watermark > self.log.high_watermark
        if has_moved:
            self.log.advance_high_watermark(high_watermark)
        self.committed.advanced(high_watermark)
        if self._low_line:
            self._low_line.advanced(self.state.low_watermark)
        return has_moved

    def low_line(self) -> OffsetWaiters:
        """Where to wait for the logs of all live replicas to begin at an offset or behind it.

        Its mark is taken anew when nobody stands in it: this watermark falls when a replica comes
        back that has not heard of a deletion.
        """
        if not self._low_line:
            self._low_line = OffsetWaiters(self.state.low_watermark)
        return self._low_line

    @property
    def is_all_durable(self) -> bool:
        """Whether nothing that is written still waits to count."""
        return self.durable_end() == self.log.log_end_offset

    def learned(self, high_watermark: int) -> bool:
        """A follower's answer names the leader's high watermark. Whether the own one has moved."""
        self.state.learned(high_watermark, self.log.written_end_offset)
        return self.take_over()

    def truncated(self) -> None:
        """The log of a follower ends, or begins, elsewhere: what was known of it goes by that."""
        self.state.advance_durable_end(self.durable_end())
        self.learned(self.log.high_watermark)

    def gone(self) -> None:
        """The partition is no more: nothing that was begun here goes on."""
        self.leader_epoch = NO_LEADER_EPOCH
        self._lose(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _lose(self, code: ErrorCode) -> None:
        self.why_lost = code
        self.durable.lose(code)
        self.committed.lose(code)
        self._low_line.lose(code)
