"""Decides from addresses whether a broker's disk can be an old copy.

This module is pure. A disk knows the address at which its broker last registered. If the broker is
configured at another address, the disk was moved, or it is a copy that was made earlier. A copy has
forgotten votes, and lacks records that the true disk has acknowledged.

If another voter still has the address that the disk knows, the disk was *moved alone*. Its broker
must then catch up before it votes (decision 0220). If no voter has, the whole cluster got other
addresses or was restored elsewhere. A voter that moved to its configured address after this broker
last registered is not such a voter: when a whole cluster moves, one broker is the first to move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.quorum.voters import majority_of
from broker.world import Address


class MovedBroker(NamedTuple):
    """A broker that is configured at another address than the one at which it was registered."""

    node_id: int
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.node_id} (from {self.before} to {self.now})"


@dataclass(frozen=True, slots=True)
class MovedBrokers:
    """The moves that a broker finds when it starts."""

    own: MovedBroker | None = None
    """The move of this broker, if it was moved alone."""
    voters: tuple[MovedBroker, ...] = ()
    """The voters that were moved alone, in the order of their ids."""
    leaves_no_majority: bool = False
    """True if so many voters were moved alone that the others cannot elect a leader."""
    others: tuple[MovedBroker, ...] = ()
    """All other brokers that are configured at another address than the registered one, in the
    order of their ids. They can still run at the registered address."""


class AddressBook:
    """The address of each registered broker, and the addresses of the other brokers at the time of
    its registration. The caller enters the registrations in the order of the log."""

    def __init__(self) -> None:
        self.addresses: dict[int, Address] = {}
        self._others: dict[int, dict[int, Address]] = {}

    def register(self, node_id: int, address: Address) -> None:
        """Enter a registration."""
        self.addresses[node_id] = address
        self._others[node_id] = dict(self.addresses)

    def unregister(self, node_id: int) -> None:
        """Remove a broker."""
        self.addresses.pop(node_id, None)
        self._others.pop(node_id, None)

    def end_snapshot(self) -> None:
        """Forget the order of the registrations so far, because a snapshot does not have it."""
        self._others = {node_id: dict(self.addresses) for node_id in self.addresses}

    def has_stayed(self, node_id: int, address: Address | None, since: int) -> bool:
        """Return True if a broker is registered at the address, and has not moved since the
        broker `since` registered."""
        if address is None or self.addresses.get(node_id) != address:
            return False
        return self._others[since].get(node_id, address) == address


def find_moves(
    own_id: int, voter_ids: Collection[int], book: AddressBook, configured: Mapping[int, Address]
) -> MovedBrokers:
    """Compare the addresses in the log of this broker with the configured ones.

    A broker that only the log or only the configuration names has not moved.
    """
    moved = {
        one: MovedBroker(one, str(before), str(configured[one]))
        for one, before in sorted(book.addresses.items())
        if one in configured and before != configured[one]
    }
    alone = [
        one
        for one in moved
        if any(book.has_stayed(other, configured.get(other), since=one) for other in voter_ids)
    ]
    voters = tuple(moved[one] for one in alone if one in voter_ids)
    return MovedBrokers(
        moved[own_id] if own_id in alone else None,
        voters,
        leaves_no_majority=bool(voters)
        and len(voter_ids) - len(voters) < majority_of(len(voter_ids)),
        others=tuple(one for one in moved.values() if one.node_id != own_id),
    )
