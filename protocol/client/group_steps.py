"""The phases of a group member, its settings, and the steps that its driver performs.

This module has only data classes.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from protocol.client.assignors import Assignor
from protocol.messages.group import JoinGroupRequest, SyncGroupRequest
from protocol.types import TopicPartition


class MemberPhase(Enum):
    """The phase of a member in a rebalance."""

    UNJOINED = 1
    JOINING = 2
    SYNCING = 3
    ADOPTING = 4
    STABLE = 5
    FAILED = 6


class GroupMembership(NamedTuple):
    """One member in one generation. A commit names both, so a late commit is fenced."""

    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of one group member.

    - `assignors`: in order of preference; the group uses an assignor that all members have.
    - `session_timeout_ms`: a member without heartbeats for this long is removed.
    - `max_poll_interval_ms`: a member without polls for this long leaves. In a rebalance the other
      members wait this long for it.
    """

    group_id: str
    assignors: tuple[Assignor, ...]
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: tuple[int, int] = (100, 1_000)

    def __post_init__(self) -> None:
        if not self.assignors:
            raise ValueError("found no assignors, expected at least one")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms is {self.heartbeat_interval_ms}, expected less than"
                f" session_timeout_ms, {self.session_timeout_ms}"
            )

    @property
    def is_cooperative(self) -> bool:
        """True if members keep their partitions while they rejoin, because every assignor allows
        it."""
        return all(assignor.is_cooperative for assignor in self.assignors)


@dataclass(frozen=True, slots=True)
class RevokePartitions:
    """Stop reading these partitions, call the listener, then call `revoked`.

    Commit unless `is_lost`.
    """

    partitions: frozenset[TopicPartition]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Send this JoinGroup request, and report the result to `on_join` or `on_join_lost`."""

    request: JoinGroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Count:
    """Find out how many partitions these topics have, and report that to `counted`."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sync:
    """Send this SyncGroup request, and report the result to `on_sync` or `on_sync_lost`."""

    request: SyncGroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """Prepare `added` for reading, call the listener, then call `adopted`."""

    added: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Leave:
    """Send LeaveGroup for this member, because it was not polled for too long. Report nothing."""

    member_id: str


Step = RevokePartitions | Join | Count | Sync | Adopt | Leave
