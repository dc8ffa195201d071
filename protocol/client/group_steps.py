"""Where a member of a group is, what it is told, and what it is to do next.

Floor: client. Data only; `group_core` decides.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from protocol.client.assignors import Assignor
from protocol.messages.group import JoinGroupRequest, SyncGroupRequest
from protocol.types import TopicPartition


class Phase(Enum):
    """Where in a round the member is."""

    UNJOINED = 1
    JOINING = 2
    SYNCING = 3
    ADOPTING = 4
    STABLE = 5
    FAILED = 6


class GroupMembership(NamedTuple):
    """One member in one generation: what a commit names, and what fences a late one."""

    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What one member was told.

    assignors: in order of preference; the group uses one that all members have.
    session_timeout_ms: without a heartbeat for so long the member is thrown out.
    max_poll_interval_ms: without a poll for so long it leaves by itself; also how long the others
        wait for it in a rebalance.
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
            raise ValueError("a group needs at least one assignor")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be below session_timeout_ms")

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they own while they rejoin: only if every assignor allows."""
        return all(assignor.is_cooperative for assignor in self.assignors)


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Stop reading these, tell the listener, then call `given_back`. Commit unless `is_lost`."""

    partitions: frozenset[TopicPartition]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Send this; report `on_join` or `on_join_lost`."""

    request: JoinGroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Count:
    """Find out how many partitions these topics have, and call `counted`."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sync:
    """Send this; report `on_sync` or `on_sync_lost`."""

    request: SyncGroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make `added` ready to be read, tell the listener, then call `adopted`."""

    added: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Leave:
    """Send LeaveGroup for this member: it was not polled for too long. Nothing to report."""

    member_id: str


Step = GiveBack | Join | Count | Sync | Adopt | Leave
