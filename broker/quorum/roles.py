"""What every role of a replica can be asked, and how it asks to become another.

Floor: quorum. Pure. The roles and the legal moves between them, which are Kafka's since KIP-996:

    Unattached   knows no leader; may have voted in the epoch (Kafka's former "Voted")
                     -> Prospective when its wait is over, Follower when it hears of a leader
    Prospective  asks for pre-votes, in its old epoch
                     -> Candidate with a majority, else back to Follower or Unattached
    Candidate    has raised the epoch, voted for itself and asks for votes
                     -> Leader with a majority, else Unattached
    Leader       appends, counts what voters hold, answers
                     -> Resigned on order, or when no majority fetches
    Resigned     was leader; hands over, and tries again only after the others
                     -> Unattached
    Follower     fetches from the leader of the epoch
                     -> Prospective when the leader is lost

From each of them a newer epoch leads to Unattached or, where its leader is known, to Follower. An
observer, which is no voter, is only ever Unattached (and asks around) or Follower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.quorum.events import Answer
from broker.quorum.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class ToUnattached:
    """Know no leader in the epoch; as a voter, try to become one after the wait."""

    epoch: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class ToProspective:
    """Ask for pre-votes; `leader_id` is followed again if they are refused, -1: nobody."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class ToCandidate:
    """A majority would vote for us: raise the epoch and ask in earnest."""


@dataclass(frozen=True, slots=True)
class ToLeader:
    """These have voted for us."""

    granted: Sequence[ReplicaKey]


@dataclass(frozen=True, slots=True)
class ToFollower:
    """Follow the epoch's leader; `wait_ms`: it is in doubt, try to replace it after the wait."""

    leader_id: int
    epoch: int
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToResigned:
    """Stop to lead; the first of these holds the most and is to try at once."""

    preferred: tuple[ReplicaKey, ...]


Move = ToUnattached | ToProspective | ToCandidate | ToLeader | ToFollower | ToResigned


class Role(Protocol):
    """One role in one epoch. Its methods return the move that is due, if any."""

    leader_id: int
    """Who leads the epoch, -1 when this replica does not know."""

    @property
    def deadline_ms(self) -> int:
        """When `tick` has something to do."""

    @property
    def grants_pre_votes(self) -> bool:
        """Whether it sees no reason against an election, its log aside."""

    def begin(self, now_ms: int) -> Move | None:
        """What the role does first."""

    def tick(self, now_ms: int) -> Move | None:
        """What is due by now."""

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        """An answer came; ids that the role did not give out mean nothing to it."""

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        """A request will not be answered."""

    def leave(self, leader_id: int) -> None:
        """Another role takes over, in an epoch led by `leader_id` (-1: not known)."""
