"""The interface of all roles of a replica, and the moves between roles.

This module is pure. The roles and their legal moves are Kafka's since KIP-996:

    Unattached   knows no leader; may have voted in the epoch (Kafka's former "Voted")
                 -> Prospective after its wait, Follower when it learns of a leader
    Prospective  asks for pre-votes, in its old epoch
                 -> Candidate with a majority, else back to Follower or Unattached
    Candidate    has raised the epoch, voted for itself and asks for votes
                 -> Leader with a majority, else Unattached
    Leader       appends, tracks what voters have, answers
                 -> Resigned on request, or when no majority fetches
    Resigned     was leader; lets the other voters start an election first
                 -> Unattached
    Follower     fetches from the leader of the epoch
                 -> Prospective when the leader is lost

From each role a newer epoch leads to Unattached or, if its leader is known, to Follower. An
observer does not vote. It is only ever Unattached (and asks for the leader) or Follower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.quorum.events import Answer
from broker.quorum.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class ToUnattached:
    """A move to Unattached: the replica knows no leader in the epoch.

    A voter starts an election after the wait.
    """

    epoch: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class ToProspective:
    """A move to Prospective: request pre-votes.

    If they are refused, follow `leader_id` again (-1: none).
    """

    leader_id: int


@dataclass(frozen=True, slots=True)
class ToCandidate:
    """A move to Candidate: a majority granted pre-votes, so raise the epoch and request votes."""


@dataclass(frozen=True, slots=True)
class ToLeader:
    """A move to Leader. The named replicas have voted for this replica."""

    granted: Sequence[ReplicaKey]


@dataclass(frozen=True, slots=True)
class ToFollower:
    """A move to Follower: follow the epoch's leader.

    If `wait_ms` is set, the leader may be dead: start an election after this wait.
    """

    leader_id: int
    epoch: int
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToResigned:
    """A move to Resigned: stop leading.

    The first of the named voters has the longest log and should start an election at once.
    """

    preferred: tuple[ReplicaKey, ...]


Move = ToUnattached | ToProspective | ToCandidate | ToLeader | ToFollower | ToResigned


class Role(Protocol):
    """The role of a replica in one epoch. Its methods return the next move, if any."""

    leader_id: int
    """The leader of the epoch; -1 if this replica does not know it."""

    @property
    def deadline_ms(self) -> int:
        """The time at which the caller must call `tick`."""

    @property
    def grants_pre_votes(self) -> bool:
        """True if this role lets other replicas start an election.

        The caller checks the log of the candidate separately.
        """

    def begin(self, now_ms: int) -> Move | None:
        """Do the first work of the role, when the replica has moved to it."""

    def tick(self, now_ms: int) -> Move | None:
        """Do the work that is due at this time."""

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        """Handle the answer to a request.

        An answer to a request that this role did not send is ignored.
        """

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        """Handle the failure of a request of this role, which gets no answer."""

    def leave(self, leader_id: int) -> None:
        """End this role, because the epoch is now led by `leader_id` (-1: unknown)."""
