"""Decides from addresses whether a broker's disk can be an old copy.

This module is pure. A disk knows the address at which its broker last registered. If the broker is
configured at another address, the disk was moved, or it is a copy that was made earlier. A copy has
forgotten votes, and lacks records that the true disk has acknowledged. If the other voters are
where the disk expects them, the disk was *moved alone*, and is not believed (decision 0220). If
none of them is there, the whole cluster got other addresses or was restored elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.quorum.voters import majority_of
from broker.world import Address


class Move(NamedTuple):
    """A broker that is configured at another address than the one at which it was registered."""

    node_id: int
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.node_id} (from {self.before} to {self.now})"


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves that a broker finds when it starts."""

    own: Move | None = None
    """The move of this broker, if it was moved alone."""
    voters: tuple[Move, ...] = ()
    """The voters that were moved, in the order of their ids."""
    leaves_no_majority: bool = False
    """True if too few voters are at their old addresses to elect a leader, and at least one is, so
    that none of the others is believed."""


def find_moves(
    own_id: int,
    voter_ids: Collection[int],
    registered: Mapping[int, Address],
    configured: Mapping[int, Address],
) -> Moves:
    """Compare the addresses in the log of this broker with the configured ones.

    A broker that is in only one of the two has not moved.
    """
    moved = {
        one: Move(one, str(registered[one]), str(configured[one]))
        for one in sorted({*voter_ids, own_id})
        if one in registered and one in configured and registered[one] != configured[one]
    }
    stayed = [
        one for one in voter_ids if one in registered and registered[one] == configured.get(one)
    ]
    voters = tuple(move for one, move in moved.items() if one in voter_ids)
    left_count = len(voter_ids) - len(voters)
    return Moves(
        moved.get(own_id) if stayed else None,
        voters,
        leaves_no_majority=bool(stayed) and left_count < majority_of(len(voter_ids)),
    )
