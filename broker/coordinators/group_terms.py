"""Inputs and outputs of a group, independent of protocol versions.

This module has only data classes. A request that cannot be answered at once is identified by an
opaque `token`. Exactly one `GroupAnswer` has the same token later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from broker.coordinators.outcome import CoordinatorRecord
from broker.security.rights import EVERYTHING, Rights
from protocol.errors import ErrorCode

NO_MEMBER = ""
NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols that a member supports, the preferred one first: (name, the member's metadata for
it)."""


class Moment(NamedTuple):
    """The time on two clocks. Deadlines need a clock that never jumps, and records need the
    date."""

    now_ms: int
    """The time on the monotonic clock."""
    wall_ms: int
    """The date, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's settings for groups with members."""

    initial_delay_ms: int
    """The time for which an empty group waits for more members."""
    size_max: int
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    group_count_max: int
    """The largest number of groups in one shard.

    A request that would create another group is refused.
    """
    pending_count_max: int
    """The largest number of unused member ids in one group."""
    protocols_bytes_max: int
    """The largest number of bytes of metadata that one member can send for all its protocols."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request."""

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
    """True if a new member first gets its id and must join again with this id (KIP-394, from
    version 4 on)."""
    may_skip_assignment: bool = False
    """True if a static leader that rejoins can be told not to assign partitions (KIP-814, from
    version 9 on)."""
    rights: Rights = EVERYTHING
    """The rights of the client, for as long as it is a member."""


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup request.

    `protocol_type` and `protocol_name` are not compared if they are None.
    """

    token: object
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class JoinedMember(NamedTuple):
    """One member of the group, as the leader gets it in its JoinGroup answer."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to a JoinGroup. Only the leader gets `members`."""

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
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class GroupAnswer(NamedTuple):
    """An effect: send the answer to the request with this `token`."""

    token: object
    reply: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The reason to store a group: its leader has assigned the partitions of a generation."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementStored:
    """The reason to store a group: a static member has rejoined under another member id.

    The member's former values are kept here, in case the group cannot be stored.
    """

    group_instance_id: str
    member_id: str
    answer: JoinAnswer
    old_member_id: str
    old_protocols: Protocols
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int


class StoringGroup(Protocol):
    """A group that waits until its generation is committed."""

    @property
    def group_id(self) -> str:
        """The group's id, as clients name it."""

    def stored(self, store: StoreGroup, code: ErrorCode, moment: Moment) -> None:
        """Handle the result of storing a generation: NONE if it is committed, or the error that
        prevented the commit."""


class StoreGroup(NamedTuple):
    """An effect: write `record`, then call `group.stored(store, error, moment)` with the result."""

    group: StoringGroup
    record: CoordinatorRecord
    cause: AssignmentStored | ReplacementStored | None
    """The reason to store the group; None if no request waits for the result."""


Effect = GroupAnswer | StoreGroup
