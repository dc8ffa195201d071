"""The in-sync replicas of one partition, as its leader knows them.

This module is pure. The *committed* in-sync replicas come only from the replayed metadata log. A
response to AlterPartition only ends the wait for this response. The controller can already have
accepted a proposed replica before the leader learns this. So such a replica is *joining* until the
log shows a later partition epoch. Committed and joining replicas together are the maximal in-sync
replicas, and the high watermark waits for all of them (KIP-497 describes the race).

Only one response shows that a proposal has changed nothing and never will: INELIGIBLE_REPLICA, if
it was the only proposal in this partition epoch. If another proposal got no response, its request
can still be in a socket. It can be accepted later, when its members are eligible again. So the
leader proposes the committed replicas again. This uses up the partition epoch, so every older
request is refused (decision 0029).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import ErrorCode

PROPOSAL_RETRY_MS = 500
"""The shortest wait in milliseconds between two proposals in the same partition epoch."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A proposal for the active controller, which is sent in AlterPartition. `number` identifies
    its answer.

    Its leader recovery state is RECOVERED, because only a leader that has recovered proposes.
    """

    number: int
    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]
    """The node id and broker epoch of each replica, in the order of ids. -1 means an unknown
    epoch."""


class Isr:
    """The committed and the joining replicas, and the proposal that is in progress, if any."""

    __slots__ = (
        "_awaits_log",
        "_in_flight",
        "_is_unclear",
        "_retry_ms",
        "committed",
        "joining",
        "partition_epoch",
    )

    def __init__(self, committed: Sequence[int], partition_epoch: int) -> None:
        self.settle(committed, partition_epoch)

    def settle(self, committed: Sequence[int], partition_epoch: int) -> None:
        """Set the in-sync replicas of a partition epoch, as the log has them. All older proposals
        are void."""
        self.committed = tuple(sorted(committed))
        self.partition_epoch = partition_epoch
        self.joining: tuple[int, ...] = ()
        self._in_flight: int | None = None
        self._awaits_log = False
        self._is_unclear = False
        """True if a proposal in this partition epoch got no clear answer and can still be
        accepted."""
        self._retry_ms: int | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """All replicas that can be in sync, in the order of ids."""
        return tuple(sorted({*self.committed, *self.joining})) if self.joining else self.committed

    @property
    def needs_void(self) -> bool:
        """True if there are joining replicas, which only a new partition epoch can remove."""
        return bool(self.joining)

    def may_propose(self, now_ms: int) -> bool:
        """Return True if a proposal can be sent: none is pending, and the last one was long enough
        ago."""
        return (
            self._in_flight is None
            and not self._awaits_log
            and (self._retry_ms is None or now_ms >= self._retry_ms)
        )

    def proposed(self, number: int, members: Sequence[int], now_ms: int) -> None:
        """Record a proposal that was sent. From now on its members can be in sync."""
        known = {*self.committed, *self.joining}
        self.joining += tuple(member for member in members if member not in known)
        self._in_flight = number
        self._retry_ms = now_ms + PROPOSAL_RETRY_MS

    def answered(self, number: int, code: ErrorCode) -> None:
        """Handle the response to a proposal, or the error if there was no response. The module
        docstring has the rules."""
        if number != self._in_flight:
            return
        self._in_flight = None
        if code is ErrorCode.NONE:
            self._awaits_log = True
        elif code is ErrorCode.INELIGIBLE_REPLICA and not self._is_unclear:
            self.joining = ()
        elif code is not ErrorCode.INELIGIBLE_REPLICA:
            self._is_unclear = True
