"""The replication state of one partition on one broker: its role and its high watermark.

This module is pure. Only `assign` changes the role, from the replayed metadata log. The role is
Leader(epoch), Follower(leader, epoch), or Offline if there is no leader or this broker is not a
replica. State that other objects keep for a partition belongs to one role and epoch. These objects
must drop it when `assign` returns a RoleChange.

Read `high_watermark` and `low_watermark` after every call. Even a confirmed removal of an in-sync
replica, a fenced broker or a tick can move them. Within an epoch the high watermark never falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from broker.replication.isr import IsrProposal
from broker.replication.leader import (
    REPLICA_LAG_TIME_MAX_MS,
    Assignment,
    LeaderLedger,
    LogEnds,
)
from broker.replication.progress import FollowerStatus
from protocol.errors import ErrorCode
from protocol.types import NO_LEADER_EPOCH, NO_NODE, NO_OFFSET


@dataclass(frozen=True, slots=True)
class LeaderRole:
    """The role of a leader, which appends records and answers fetches."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FollowerRole:
    """The role of a follower, which fetches from the leader."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OfflineRole:
    """The role without a leader, or of a broker that is not a replica. The log stays as it is."""

    epoch: int


Role: TypeAlias = LeaderRole | FollowerRole | OfflineRole


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The end of one role and the start of another. The same leader in a later epoch is another
    role."""

    before: Role
    after: Role


class PartitionState:
    """The state of one partition in one incarnation of a broker."""

    __slots__ = (
        "_broker_epoch",
        "_brokers",
        "_durable_end",
        "_high_watermark",
        "_lag_time_max_ms",
        "_leading",
        "_node_id",
        "_numbers",
        "_seen_offset",
        "role",
    )

    def __init__(
        self,
        node_id: int,
        broker_epoch: int,
        lag_time_max_ms: int = REPLICA_LAG_TIME_MAX_MS,
    ) -> None:
        """`broker_epoch` is the offset in the metadata log at which this incarnation was
        registered."""
        self.role: Role = OfflineRole(NO_LEADER_EPOCH)
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._lag_time_max_ms = lag_time_max_ms
        self._numbers = count()
        self._brokers: Mapping[int, int] = {}
        self._leading: LeaderLedger | None = None
        self._high_watermark = NO_OFFSET
        """The high watermark of a broker that does not lead. A leader's is in its ledger."""
        self._durable_end = NO_OFFSET
        self._seen_offset = NO_OFFSET

    @property
    def leader_epoch(self) -> int:
        return self.role.epoch

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have the records; NO_OFFSET before the first
        assignment."""
        return self._high_watermark if self._leading is None else self._leading.high_watermark

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas; NO_OFFSET if it is unknown or this
        broker does not lead."""
        return NO_OFFSET if self._leading is None else self._leading.low_watermark

    @property
    def durable_end(self) -> int:
        """The exclusive end of the durable records in this replica's log. On a leader, acks=1 waits
        for it."""
        return self._durable_end

    @property
    def is_high_watermark_floor(self) -> bool:
        """True if the former leader can have committed more than this leader knows.

        Until the high watermark has passed the start of the epoch, a client that asks for the
        latest offset gets OFFSET_NOT_AVAILABLE. Otherwise it would see the end go back (KIP-207).
        """
        leading = self._leading
        return leading is not None and leading.high_watermark < leading.epoch_start_offset

    @property
    def is_under_min_isr(self) -> bool:
        """True if an append with acks=all is refused with NOT_ENOUGH_REPLICAS."""
        return self._leading is not None and self._leading.is_under_min_isr

    @property
    def in_sync_replicas(self) -> tuple[int, ...]:
        """The in-sync replicas in the replayed metadata log; empty if this broker does not lead."""
        return () if self._leading is None else self._leading.isr.committed

    @property
    def maximal_in_sync_replicas(self) -> tuple[int, ...]:
        """All replicas that are or can be in sync; empty if this broker does not lead."""
        return () if self._leading is None else self._leading.isr.maximal

    @property
    def has_outsiders(self) -> bool:
        """True if this broker leads and a replica is not in sync in the replayed metadata log."""
        leading = self._leading
        return leading is not None and len(leading.isr.committed) < len(leading.replicas)

    @property
    def is_under_replicated(self) -> bool:
        """True if this broker leads and an original replica is not in sync in the replayed metadata
        log."""
        return self._leading is not None and self._leading.is_under_replicated

    def followers(self, now_ms: int) -> tuple[FollowerStatus, ...]:
        """Return the state of each follower; empty if this broker does not lead."""
        return () if self._leading is None else self._leading.followers(now_ms)

    def refusal(self, current_leader_epoch: int) -> ErrorCode:
        """Return the error for a request to the leader of an epoch; NONE if this broker serves it.

        The epoch is checked before the role. A client that knows an older leader must learn of the
        newer one, and a client that knows a newer leader must wait for this broker. With -1 the
        epoch is not checked.
        """
        if current_leader_epoch != NO_LEADER_EPOCH:
            if current_leader_epoch < self.role.epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > self.role.epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self._leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetched_end(self, node_id: int) -> int:
        """Return the end of a follower's log at its last fetch; NO_OFFSET if it is unknown or this
        broker does not lead."""
        leading = self._leading
        progress = None if leading is None else leading.progress.get(node_id)
        return NO_OFFSET if progress is None else progress.durable_end

    def is_replica(self, node_id: int) -> bool:
        """Return True if this broker leads and another node is a replica in the replayed metadata
        log."""
        return self._leading is not None and node_id in self._leading.progress

    def waits_for(self, node_id: int) -> bool:
        """Return True if this broker leads and the high watermark waits for a follower."""
        return self._leading is not None and self._leading.waits_for(node_id)

    def assign(self, seen: Assignment, ends: LogEnds, now_ms: int) -> RoleChange | None:
        """Apply the metadata of one partition. Return the role change; None if the role stays or
        the metadata is old.

        Metadata older than this incarnation's registration describes the former incarnation, which
        led and was in sync with other data. Such metadata is ignored. So when the log first shows
        this registration, the caller must assign every partition, also those that later records do
        not change.
        """
        if seen.offset <= self._broker_epoch or seen.offset < self._seen_offset:
            return None
        self._seen_offset = seen.offset
        role = self._role_in(seen)
        if role == self.role:
            if self._leading is not None:
                self._leading.assigned(seen, now_ms)
            return None
        change = RoleChange(self.role, role)
        floor = min(max(self.high_watermark, ends.high_watermark), ends.log_end_offset)
        self.role = role
        self._high_watermark = floor
        self._durable_end = ends.durable_end
        self._leading = (
            self._lead(seen, ends, floor, now_ms) if isinstance(role, LeaderRole) else None
        )
        return change

    def eligible(self, brokers: Mapping[int, int]) -> None:
        """Set the brokers that are unfenced and not stopping, each with its broker epoch."""
        self._brokers = brokers
        if self._leading is not None:
            self._leading.eligible(brokers)

    def advance_durable_end(self, end_offset: int) -> None:
        """Set the end up to which this replica's log is durable. If the topic does not wait for
        fsyncs, written records are treated as durable."""
        self._durable_end = end_offset
        if self._leading is not None:
            self._leading.advance_durable_end(end_offset)

    def trimmed(self, log_start_offset: int) -> None:
        """Set this replica's log start offset after records were deleted."""
        if self._leading is not None:
            self._leading.trimmed(log_start_offset)

    def fetched(
        self, node_id: int, broker_epoch: int, durable_end: int, start_offset: int, now_ms: int
    ) -> None:
        """Record a follower's fetch that `refusal` allowed and whose log agrees with the
        leader's."""
        if self._leading is not None:
            self._leading.fetched(node_id, broker_epoch, durable_end, start_offset, now_ms)

    def proposal(self, now_ms: int) -> IsrProposal | None:
        """Return the change of the in-sync replicas to propose; None if there is none. Call this at
        every tick and after a fetch."""
        return None if self._leading is None else self._leading.proposal(now_ms)

    def answered(self, number: int, code: ErrorCode) -> None:
        """Handle the controller's answer to a proposal, or the error if there was no answer.

        The in-sync replicas in the answer are ignored. They come with the metadata log, in order
        with the other metadata that their check needs.
        """
        if self._leading is not None:
            self._leading.answered(number, code)

    def learned(self, high_watermark: int, end_offset: int) -> None:
        """Set the leader's high watermark from a response to this follower. It is limited to the
        end of this log.

        After an unclean election the log can have been truncated below records that were once
        committed.
        """
        assert self._leading is None, "a leader does not learn its high watermark"
        known = min(high_watermark, end_offset)
        self._high_watermark = min(max(self._high_watermark, known), end_offset)

    def _role_in(self, seen: Assignment) -> Role:
        if seen.leader == NO_NODE or self._node_id not in seen.replicas:
            return OfflineRole(seen.leader_epoch)
        if seen.leader == self._node_id:
            return LeaderRole(seen.leader_epoch)
        return FollowerRole(seen.leader, seen.leader_epoch)

    def _lead(self, seen: Assignment, ends: LogEnds, floor: int, now_ms: int) -> LeaderLedger:
        return LeaderLedger(
            self._node_id,
            self._broker_epoch,
            seen,
            ends,
            floor,
            self._brokers,
            self._lag_time_max_ms,
            self._numbers,
            now_ms,
        )
