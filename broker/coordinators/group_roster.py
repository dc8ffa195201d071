"""The members of a group, its leader, and the protocols that all members support.

This module is pure and needs no time. Members are kept in the order of joining, which decides
between equal candidates. Invariants: a group instance id names one member; the leader, if any, is a
member; `waiting_count` is the number of members with a parked JoinGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from broker.coordinators.group_terms import JoinedMember, JoinRequest, Protocols
from broker.security.rights import EVERYTHING, Rights
from broker.timers import Timer


@dataclass(slots=True, eq=False)
class Member:
    """One member of a group.

    `join_token` and `sync_token` identify its requests that wait for an answer.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    join_token: object | None = None
    sync_token: object | None = None
    is_new: bool = False
    """True until the member is part of a generation. Before this, the client possibly does not know
    its member id."""
    deadline_ms: int = 0
    """The time at which the member's session ends, unless the member sends a request before."""
    timer: Timer[Any] | None = field(default=None, repr=False)
    rights: Rights = EVERYTHING
    """The rights of the member. The log does not contain them, so a restored member has all rights
    until its next JoinGroup. The broker checks each request by the rights of its connection in any
    case."""

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if the member does not support the
        protocol."""
        return next((said for name, said in self.protocols if name == protocol), b"")


class Roster:
    """The members of one group."""

    __slots__ = ("_support", "_waiting", "leader_id", "members", "static_ids")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """A map from each group instance id to its present member id."""
        self.leader_id: str | None = None
        self._support: Counter[str] = Counter()
        """The number of members that support each protocol."""
        self._waiting = 0

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self.members.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.members

    @property
    def waiting_count(self) -> int:
        """The number of members with a parked JoinGroup."""
        return self._waiting

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    # Joining, changing and leaving.

    def add(self, member: Member) -> None:
        """Add a member. The first one becomes the leader."""
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_ids
            self.static_ids[member.group_instance_id] = member.member_id
        self._support.update(_names(member.protocols))
        self._waiting += member.join_token is not None
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member. If it was the leader, the oldest remaining member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.group_instance_id is not None:
            del self.static_ids[member.group_instance_id]
        self._forget_protocols(member)
        self._waiting -= member.join_token is not None
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename_static(self, group_instance_id: str, member_id: str) -> Member:
        """Give a static member another member id.

        The member keeps its position in the order of joining, and its leadership.
        """
        old_id = self.static_ids[group_instance_id]
        member = self.members[old_id]
        member.member_id = member_id
        self.members = {one.member_id: one for one in self.members.values()}
        self.static_ids[group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        return member

    def update(self, member: Member, joining: JoinRequest) -> None:
        """Copy the values of a member's new JoinGroup into the member."""
        self.change(
            member,
            joining.protocols,
            joining.session_timeout_ms,
            joining.rebalance_timeout_ms,
        )
        member.client_id = joining.client_id
        member.client_host = joining.client_host
        member.rights = joining.rights

    def change(
        self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_ms: int
    ) -> None:
        """Set a member's protocols and timeouts."""
        self._forget_protocols(member)
        self._support.update(_names(protocols))
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_ms

    def _forget_protocols(self, member: Member) -> None:
        for name in _names(member.protocols):
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    # Waiting.

    def park_join(self, member: Member, token: object) -> object | None:
        """Park a member's JoinGroup.

        Return the token of the request that was parked before, if any.
        """
        old, member.join_token = member.join_token, token
        self._waiting += old is None
        return old

    def take_join(self, member: Member) -> object | None:
        """Return the token of a member's parked JoinGroup, which the caller must answer."""
        token, member.join_token = member.join_token, None
        self._waiting -= token is not None
        return token

    # Common protocols.

    def supports(self, protocols: Protocols) -> bool:
        """Return True if all members support at least one of these protocols."""
        size = len(self.members)
        return any(self._support[name] == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer, among the protocols that all members
        support."""
        size = len(self.members)
        common = {name for name, count in self._support.items() if count == size and size}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        # A Counter returns ties in the order of insertion, so the preference of the oldest member
        # is used.
        return votes.most_common(1)[0][0]

    def seen_by_leader(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """Return all members with their metadata for the chosen protocol, for the answer to the
        leader."""
        return tuple(
            JoinedMember(one.member_id, one.group_instance_id, one.metadata(protocol))
            for one in self.members.values()
        )


def _names(protocols: Protocols) -> Iterable[str]:
    return {name for name, _ in protocols}
