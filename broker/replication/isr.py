"""The in-sync replicas of one partition, as its leader holds them.

Floor: replication. Pure. What is *committed* comes from the replayed metadata log and from nowhere
else: an answer to AlterPartition only ends the wait for it. Whoever was proposed under the present
partition epoch may have been let in without our knowing, so it counts as *joining* until the log
shows a later partition epoch. Committed and joining together are the maximal in-sync replicas, for
which the high watermark waits (KIP-497 names the race this closes).

Only one answer says that a proposal has changed nothing and never will: INELIGIBLE_REPLICA, if it
was the only one made under this partition epoch. A copy whose answer never came may still lie in a
socket and be taken later, when its members are eligible again. Then the leader proposes what is
committed already: that uses up the partition epoch, and every older copy is refused by it
(decision 0029).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import ErrorCode

PROPOSAL_RETRY_MS = 500
"""At least between two proposals under the same partition epoch."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What to ask of the active controller by AlterPartition; answered by its number.

    The leader recovery state that goes with it is RECOVERED: whoever proposes has taken over.
    """

    number: int
    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]
    """Node id and broker epoch, by rising id; -1 for a broker epoch that is not known."""


class Isr:
    """Committed members, joining ones, and the one proposal that may be under way."""

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
        """The log says who is in sync as of a partition epoch; older proposals are decided."""
        self.committed = tuple(sorted(committed))
        self.partition_epoch = partition_epoch
        self.joining: tuple[int, ...] = ()
        self._in_flight: int | None = None
        self._awaits_log = False
        self._is_unclear = False
        """Whether a proposal under this partition epoch may be taken without our knowing."""
        self._retry_ms: int | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """Everybody who may be in sync, by rising id."""
        return tuple(sorted({*self.committed, *self.joining})) if self.joining else self.committed

    @property
    def needs_void(self) -> bool:
        """Whether somebody counts as joining who can be let go only by a new partition epoch."""
        return bool(self.joining)

    def may_propose(self, now_ms: int) -> bool:
        """Whether no answer and no replay is awaited, and the last proposal is long enough ago."""
        return (
            self._in_flight is None
            and not self._awaits_log
            and (self._retry_ms is None or now_ms >= self._retry_ms)
        )

    def proposed(self, number: int, members: Sequence[int], now_ms: int) -> None:
        """A proposal leaves: from this moment on its members may be in sync."""
        known = {*self.committed, *self.joining}
        self.joining += tuple(member for member in members if member not in known)
        self._in_flight = number
        self._retry_ms = now_ms + PROPOSAL_RETRY_MS

    def answered(self, number: int, code: ErrorCode) -> None:
        """The answer to a proposal, or the reason why there is none; see the module's head."""
        if number != self._in_flight:
            return
        self._in_flight = None
        if code is ErrorCode.NONE:
            self._awaits_log = True
        elif code is ErrorCode.INELIGIBLE_REPLICA and not self._is_unclear:
            self.joining = ()
        elif code is not ErrorCode.INELIGIBLE_REPLICA:
            self._is_unclear = True
