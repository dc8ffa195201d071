"""The voters, identified by node and directory, and the voter set at the end of the log.

This module is pure. A voter is a node *and* the directory on its disk (KIP-853). A node whose disk
was emptied returns under its old id, but it is not the same voter any more. The voter set is in the
log and in its snapshots, never in the configuration. A voter set is valid once its record is
appended, committed or not. It is undone when the record is truncated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.types import NO_OFFSET, Uuid

KRAFT_VERSION = 1
"""The first version of the quorum's protocol with the voters in the log.

Older versions are not supported.
"""


class ReplicaKey(NamedTuple):
    """The identity of a replica of the metadata log: a node and the directory on its disk."""

    node_id: int
    directory_id: Uuid


class Endpoint(NamedTuple):
    """The address of one listener of a voter, with the listener's name."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter with the addresses and the range of versions in its record."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = KRAFT_VERSION
    kraft_version_max: int = KRAFT_VERSION


class VoterSet:
    """The voters in the order of their ids. A majority is more than half of them."""

    __slots__ = ("voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.key.node_id))
        if len({voter.key.node_id for voter in self.voters}) != len(self.voters):
            raise ValueError(f"a node is twice in the voter set {self}")

    def __contains__(self, key: ReplicaKey) -> bool:
        return any(voter.key == key for voter in self.voters)

    def __iter__(self) -> Iterator[ReplicaKey]:
        return (voter.key for voter in self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(key.node_id) for key in self) or 'empty'})"

    @property
    def majority(self) -> int:
        """The smallest number of voters that is more than half of them."""
        return majority_of(len(self.voters))

    def voter(self, node_id: int) -> Voter | None:
        """Return the voter with this node id; None if there is none."""
        return next((one for one in self.voters if one.key.node_id == node_id), None)

    def others(self, me: ReplicaKey) -> list[ReplicaKey]:
        """Return all voters except this replica."""
        return [key for key in self if key != me]

    def rank(self, me: ReplicaKey, lost_leader_id: int) -> int:
        """Return this voter's rank among the voters without the lost leader.

        Rank 0 starts an election at once.
        """
        left = [key for key in self if key.node_id != lost_leader_id]
        return left.index(me) if me in left else len(left)


def majority_of(voter_count: int) -> int:
    """Return the smallest number of voters that is more than half of them."""
    return voter_count // 2 + 1


def reached_by_majority(values: Sequence[int]) -> int:
    """Return the greatest value that a majority of voters has reached, given each voter's value."""
    return sorted(values, reverse=True)[len(values) // 2]


class _VoterSetRecord(NamedTuple):
    """A voter set, and the offset of the record that names this set."""

    offset: int
    voters: VoterSet


class VoterHistory:
    """The voter sets by the offsets of their records. The newest set is valid."""

    __slots__ = ("_entries",)

    def __init__(self, voters: VoterSet, offset: int = NO_OFFSET) -> None:
        """Start with the first voter set.

        `offset` is the offset of its record; -1 if the set comes from a snapshot.
        """
        self._entries = [_VoterSetRecord(offset, voters)]

    @property
    def latest(self) -> VoterSet:
        """The voter set that is valid at the end of the log."""
        return self._entries[-1].voters

    @property
    def latest_offset(self) -> int:
        """The offset of the valid set's record; -1 if the set comes from a snapshot."""
        return self._entries[-1].offset

    @property
    def previous(self) -> VoterSet:
        """The voter set before the valid one; the valid set if no earlier set is known.

        Voters change one at a time. If the record of the valid set is never committed, the previous
        set is in force again.
        """
        return self._entries[-2 if len(self._entries) > 1 else -1].voters

    @property
    def is_from_snapshot(self) -> bool:
        """True if the valid voter set comes from a snapshot and not from a record in the log."""
        return self._entries[-1].offset == NO_OFFSET

    def at(self, end_offset: int) -> VoterSet:
        """Return the voter set that was valid when the log ended at the offset."""
        return next(one.voters for one in reversed(self._entries) if one.offset < end_offset)

    def append(self, offset: int, voters: VoterSet) -> None:
        """Add the voter set of a record at the offset."""
        assert offset > self._entries[-1].offset, "voter records come in the log's order"
        self._entries.append(_VoterSetRecord(offset, voters))

    def truncate_to(self, end_offset: int) -> None:
        """Remove the voter sets whose records are at or above the offset."""
        while len(self._entries) > 1 and self._entries[-1].offset >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the voter sets that had been replaced below the offset."""
        while len(self._entries) > 1 and self._entries[1].offset < start_offset:
            self._entries.pop(0)
