"""One partition on one broker: which role it has, and how far it is committed.

Floor: replication. Pure. A role begins and ends in `assign`, with the replayed metadata log as its
only source: Leader(epoch), Follower(leader, epoch), or Offline, where there is no leader or no
replica here. Whoever keeps something by partition keeps it by role and epoch, and drops it when
`assign` answers with a RoleChange.

`high_watermark` and `low_watermark` are read after every call: a confirmed shrink, a broker that
is fenced, even a tick may move them. Within an epoch the high watermark never falls.
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
from broker.replication.progress import FollowerStanding
from protocol.errors import ErrorCode
from protocol.types import NO_LEADER_EPOCH, NO_NODE, NO_OFFSET


@dataclass(frozen=True, slots=True)
class Leader:
    """Takes writes, answers fetches."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Follower:
    """Fetches from the leader."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Offline:
    """Nobody leads, or this broker holds no replica. The log stays as it is."""

    epoch: int


Role: TypeAlias = Leader | Follower | Offline


@dataclass(frozen=True, slots=True)
class RoleChange:
    """One role ended and another began; the same leader in a later epoch is another role."""

    before: Role
    after: Role


class PartitionState:
    """The state of one partition at one incarnation of a broker."""

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
        """`broker_epoch` is the offset at which this incarnation was registered."""
        self.role: Role = Offline(NO_LEADER_EPOCH)
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._lag_time_max_ms = lag_time_max_ms
        self._numbers = count()
        self._brokers: Mapping[int, int] = {}
        self._leading: LeaderLedger | None = None
        self._high_watermark = NO_OFFSET
        """While not leading; a leader's is in its ledger."""
        self._durable_end = NO_OFFSET
        self._seen_offset = NO_OFFSET

    @property
    def leader_epoch(self) -> int:
        return self.role.epoch

    @property
    def high_watermark(self) -> int:
        """Everything below it is held by all in-sync replicas; NO_OFFSET before any assignment."""
        return self._high_watermark if self._leading is None else self._leading.high_watermark

    @property
    def low_watermark(self) -> int:
        """On a leader, where the logs of all live replicas begin; NO_OFFSET where not known."""
        return NO_OFFSET if self._leading is None else self._leading.low_watermark

    @property
    def durable_end(self) -> int:
        """What counts in the own log, exclusive: for acks=1 on a leader."""
        return self._durable_end

    @property
    def is_high_watermark_floor(self) -> bool:
        """Whether the leader before may have committed more than is known here.

        Until the high watermark has passed the start of the epoch a client that asks for the
        latest offset gets OFFSET_NOT_AVAILABLE, or it would see the end go back (KIP-207).
        """
        leading = self._leading
        return leading is not None and leading.high_watermark < leading.epoch_start_offset

    @property
    def is_under_min_isr(self) -> bool:
        """Whether a write with acks=all is refused: NOT_ENOUGH_REPLICAS."""
        return self._leading is not None and self._leading.is_under_min_isr

    @property
    def in_sync_replicas(self) -> tuple[int, ...]:
        """On a leader, who is in sync by the replayed log."""
        return () if self._leading is None else self._leading.isr.committed

    @property
    def maximal_in_sync_replicas(self) -> tuple[int, ...]:
        """On a leader, who is or may be in sync."""
        return () if self._leading is None else self._leading.isr.maximal

    @property
    def has_outsiders(self) -> bool:
        """On a leader, whether a replica is not in sync by the replayed log."""
        leading = self._leading
        return leading is not None and len(leading.isr.committed) < len(leading.replicas)

    def followers(self, now_ms: int) -> tuple[FollowerStanding, ...]:
        """On a leader, where each follower is; nobody else knows."""
        return () if self._leading is None else self._leading.followers(now_ms)

    def refusal(self, current_leader_epoch: int) -> ErrorCode:
        """Why a request for the leader of that epoch is not served here; NONE where it is.

        The epoch is judged before the role: who knows an older leader must learn of the newer one,
        and who knows a newer one must wait for us. -1 asks for no judgement of the epoch.
        """
        if current_leader_epoch != NO_LEADER_EPOCH:
            if current_leader_epoch < self.role.epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > self.role.epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self._leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetched_end(self, node_id: int) -> int:
        """On a leader, where a follower's log ended at its last fetch; NO_OFFSET: not known."""
        leading = self._leading
        progress = None if leading is None else leading.progress.get(node_id)
        return NO_OFFSET if progress is None else progress.durable_end

    def is_replica(self, node_id: int) -> bool:
        """On a leader, whether another node is a replica by the replayed log."""
        return self._leading is not None and node_id in self._leading.progress

    def assign(self, seen: Assignment, ends: LogEnds, now_ms: int) -> RoleChange | None:
        """Follow the metadata log. None where the role stays, and where the news is old.

        What is older than the registration of this incarnation tells of its predecessor, which led
        and was in sync with another memory: it is ignored. So when the log first shows the own
        registration, every partition is assigned, also those that nothing later touches.
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
        self._leading = self._lead(seen, ends, floor, now_ms) if isinstance(role, Leader) else None
        return change

    def eligible(self, brokers: Mapping[int, int]) -> None:
        """Which brokers are unfenced and not stopping, each with its broker epoch."""
        self._brokers = brokers
        if self._leading is not None:
            self._leading.eligible(brokers)

    def advance_durable_end(self, end_offset: int) -> None:
        """The own log is synced up to here; with `flush=interval`, written."""
        self._durable_end = end_offset
        if self._leading is not None:
            self._leading.advance_durable_end(end_offset)

    def trimmed(self, log_start_offset: int) -> None:
        """The own log begins here: records were deleted."""
        if self._leading is not None:
            self._leading.trimmed(log_start_offset)

    def fetched(
        self, node_id: int, broker_epoch: int, durable_end: int, start_offset: int, now_ms: int
    ) -> None:
        """A follower's fetch that `refusal` let pass, and whose log does not part from ours."""
        if self._leading is not None:
            self._leading.fetched(node_id, broker_epoch, durable_end, start_offset, now_ms)

    def proposal(self, now_ms: int) -> IsrProposal | None:
        """Whom the in-sync replicas should lose or gain. At every tick and after a fetch."""
        return None if self._leading is None else self._leading.proposal(now_ms)

    def answered(self, number: int, code: ErrorCode) -> None:
        """The controller's answer to a proposal, or why there is none. Its ISR is not looked at:
        that comes with the log, in order with the other settings it must be judged by."""
        if self._leading is not None:
            self._leading.answered(number, code)

    def learned(self, high_watermark: int, end_offset: int) -> None:
        """A follower's answer names the leader's high watermark; ours ends with our log.

        After an unclean election the log may have been cut below what was committed once.
        """
        assert self._leading is None, "a leader learns its high watermark from nobody"
        known = min(high_watermark, end_offset)
        self._high_watermark = min(max(self._high_watermark, known), end_offset)

    def _role_in(self, seen: Assignment) -> Role:
        if seen.leader == NO_NODE or self._node_id not in seen.replicas:
            return Offline(seen.leader_epoch)
        if seen.leader == self._node_id:
            return Leader(seen.leader_epoch)
        return Follower(seen.leader, seen.leader_epoch)

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
