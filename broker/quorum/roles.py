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
    Resigned     was leader; hands over, and starts an election only after the others
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
    """Know no leader in the epoch. A voter starts an election after the wait."""

    epoch: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class ToProspective:
    """Ask for pre-votes. If they are refused, follow `leader_id` again (-1: none)."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class ToCandidate:
    """A majority granted pre-votes: raise the epoch and ask for votes."""


@dataclass(frozen=True, slots=True)
class ToLeader:
    """These replicas have voted for this one."""

    granted: Sequence[ReplicaKey]


@dataclass(frozen=True, slots=True)
class ToFollower:
    """Follow the epoch's leader. With `wait_ms` the leader is suspected: start an election after
    it.
    """

    leader_id: int
    epoch: int
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToResigned:
    """Stop leading. The first of these has the longest log and should start an election at once."""

    preferred: tuple[ReplicaKey, ...]


Move = ToUnattached | ToProspective | ToCandidate | ToLeader | ToFollower | ToResigned


class Role(Protocol):
    """One role in one epoch. Its methods return the next move, if any."""

    leader_id: int
    """The leader of the epoch; -1 if this replica does not know it."""

    @property
    def deadline_ms(self) -> int:
        """The time to call `tick`."""

    @property
    def grants_pre_votes(self) -> bool:
        """True if this role allows an election. The log is checked separately."""

    def begin(self, now_ms: int) -> Move | None:
        """Do the first work of the role."""

    def tick(self, now_ms: int) -> Move | None:
        """Do what is due by now."""

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        """Handle an answer. Ids of requests that the role did not send are ignored."""

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        """Note that a request gets no answer."""

    def leave(self, leader_id: int) -> None:
        """Another role takes over, in an epoch led by `leader_id` (-1: unknown)."""
