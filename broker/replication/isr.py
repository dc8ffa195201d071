"""The in-sync replicas of one partition, as its leader knows them.

Room: replication. Pure. The *committed* in-sync replicas come only from the replayed metadata log.
A response to AlterPartition only ends the wait for it. A replica proposed under the present
partition epoch can already be in sync without the leader's knowledge. So it is *joining* until the
log shows a later partition epoch. Committed and joining replicas together are the maximal in-sync
replicas, and the high watermark waits for all of them (KIP-497 describes the race).

Only one response shows that a proposal changed nothing and never will: INELIGIBLE_REPLICA, if it
was the only proposal under this partition epoch. If another proposal got no response, its request
can still be in a socket and be accepted later, when its members are eligible again. Then the leader
proposes the committed replicas again. That uses up the partition epoch, so every older request is
refused (decision 0029).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import ErrorCode

PROPOSAL_RETRY_MS = 500
"""The least wait between two proposals under the same partition epoch."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A proposal for the active controller, sent by AlterPartition. Its answer comes by number.

    Its leader recovery state is RECOVERED, because only a leader that has taken over proposes.
    """

    number: int
    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]
    """Node id and broker epoch, in the order of ids; -1 for an unknown broker epoch."""


class Isr:
    """The committed and joining replicas, and the proposal that can be under way."""

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
        """Take the in-sync replicas of a partition epoch from the log. Older proposals are decided
        by it.
        """
        self.committed = tuple(sorted(committed))
        self.partition_epoch = partition_epoch
        self.joining: tuple[int, ...] = ()
        self._in_flight: int | None = None
        self._awaits_log = False
        self._is_unclear = False
        """Whether a proposal under this partition epoch can still be accepted without our
        knowledge.
        """
        self._retry_ms: int | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """All replicas that can be in sync, in the order of ids."""
        return tuple(sorted({*self.committed, *self.joining})) if self.joining else self.committed

    @property
    def needs_void(self) -> bool:
        """True if joining replicas can be removed only by a new partition epoch."""
        return bool(self.joining)

    def may_propose(self, now_ms: int) -> bool:
        """Return whether a proposal can be sent: none is pending, and the last one is long enough
        ago.
        """
        return (
            self._in_flight is None
            and not self._awaits_log
            and (self._retry_ms is None or now_ms >= self._retry_ms)
        )

    def proposed(self, number: int, members: Sequence[int], now_ms: int) -> None:
        """Note a proposal. From now on its members can be in sync."""
        known = {*self.committed, *self.joining}
        self.joining += tuple(member for member in members if member not in known)
        self._in_flight = number
        self._retry_ms = now_ms + PROPOSAL_RETRY_MS

    def answered(self, number: int, code: ErrorCode) -> None:
        """Note the response to a proposal, or the error without one; the module docstring has the
        rules.
        """
        if number != self._in_flight:
            return
        self._in_flight = None
        if code is ErrorCode.NONE:
            self._awaits_log = True
        elif code is ErrorCode.INELIGIBLE_REPLICA and not self._is_unclear:
            self.joining = ()
        elif code is not ErrorCode.INELIGIBLE_REPLICA:
            self._is_unclear = True
