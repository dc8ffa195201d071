"""What goes into a group and what comes out of it, apart from any version of the protocol.

Floor: coordinators. Data only. A request that cannot be answered at once is kept as its `token`,
which nobody in here looks into; it comes out again in exactly one `Answer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from broker.coordinators.outcome import CoordinatorRecord
from protocol.errors import ErrorCode

NO_MEMBER = ""
NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]
"""(name, what the member says to it), the member's favourite first."""


class Moment(NamedTuple):
    """The time, twice: deadlines need a clock that never jumps, records carry the date."""

    now_ms: int
    """Monotonic."""
    wall_ms: int
    """Since 1970."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the node's configuration says about groups with members."""

    initial_delay_ms: int
    """How long an empty group waits for more members."""
    size_max: int
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    group_count_max: int
    """Groups of one shard; a request that would make one more is refused."""
    pending_count_max: int
    """Member ids given out in one group that nobody has come with yet."""
    protocols_bytes_max: int
    """What one member may say about all its protocols."""


@dataclass(frozen=True, slots=True)
class Joining:
    """One JoinGroup."""

    token: object
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = False
    """A new member is first told its id and must come back with it (KIP-394, version 4 on)."""
    may_skip_assignment: bool = False
    """A static leader that comes back may be told not to assign (KIP-814, version 9 on)."""


@dataclass(frozen=True, slots=True)
class Syncing:
    """One SyncGroup; `protocol_type` and `protocol_name` None: not stated, not compared."""

    token: object
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class JoinedMember(NamedTuple):
    """One member as the leader gets to see it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What a JoinGroup is answered with; `members` for the leader alone."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a SyncGroup is answered with."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    """An effect: the request behind `token` gets its answer."""

    token: object
    reply: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """Why a group was stored: its leader has assigned the partitions of a generation."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementStored:
    """Why a group was stored: a static member has come back under another id.

    What it was before stands here too, for when the group could not be stored.
    """

    group_instance_id: str
    member_id: str
    answer: JoinAnswer
    old_member_id: str
    old_protocols: Protocols
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int


class Storing(Protocol):
    """A group that waits for its generation to be committed."""

    @property
    def group_id(self) -> str:
        """Its name."""

    def stored(self, store: Store, code: ErrorCode, moment: Moment) -> None:
        """The generation is committed, or could not be."""


class Store(NamedTuple):
    """An effect: write `record`; then `group.stored(store, error, moment)` with how it went."""

    group: Storing
    record: CoordinatorRecord
    cause: AssignmentStored | ReplacementStored | None
    """None when nothing waits for it."""


Effect = Answer | Store
