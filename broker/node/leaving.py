"""A broker's way out of its cluster: others lead what it has led before it ends.

Floor: node. First the partitions: the controller takes their leaderships away, this broker tells
its clients so, and may go when all others have heard of it (`cluster/membership`). Then the quorum,
if this node leads it: it resigns (EndQuorumEpoch), and stays until another leads, for the vote of
this one may be needed. All the while it serves, other brokers as well as clients.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.quorum_driver import QuorumDriver
from broker.quorum.events import Resign
from broker.quorum.ready import FollowsLeader, RoleChange
from broker.world import Cancel, World

SUCCESSOR_MS_MAX = 1_000
"""How long a node that has led the quorum waits for another to lead it: where none can, it goes."""


class Leaving:
    """One process's, which may never begin."""

    def __init__(
        self, own_id: int, membership: MembershipDriver, quorum: QuorumDriver, world: World
    ) -> None:
        self._own_id = own_id
        self._membership = membership
        self._quorum = quorum
        self._world = world
        self._done: Callable[[], None] | None = None
        self._patience: Cancel | None = None
        """Runs out while a successor is waited for."""

    @property
    def has_begun(self) -> bool:
        """Whether this broker is on its way out."""
        return self._done is not None

    def begin(self, done: Callable[[], None]) -> None:
        """Set out; `done` comes once, in a turn of its own."""
        self._done = done
        self._membership.want_stop()

    def may_stop(self) -> None:
        """Nobody counts on what this broker has led."""
        if self._quorum.leader_id != self._own_id:
            self._finish()
            return
        self._patience = self._world.later(SUCCESSOR_MS_MAX, self._finish)
        self._quorum.handle(Resign())

    def role(self, role: RoleChange) -> None:
        """The quorum is led by another, or by nobody."""
        if self._patience is not None and isinstance(role, FollowsLeader):
            self._patience.cancel()
            self._finish()

    def _finish(self) -> None:
        assert self._done is not None, "nobody leaves without being told to"
        self._patience = None
        self._world.soon(self._done)
