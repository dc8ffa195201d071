"""How a broker leaves its cluster: other brokers take its leaderships before it stops.

Room: node. There are two steps. First the controller moves this broker's leaderships, and this
broker tells its clients. The step ends when all other brokers have learned the new leaders
(`cluster/membership`). Then, if this node leads the quorum, it resigns (EndQuorumEpoch) and stays
until another node leads, because its vote can be needed. During both steps it serves other brokers
and clients.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.quorum_driver import QuorumDriver
from broker.quorum.events import Resign
from broker.quorum.ready import FollowsLeader, RoleChange
from broker.world import Cancel, World

SUCCESSOR_MS_MAX = 1_000
"""How long a resigned quorum leader waits for a new one. If none can lead, it stops anyway."""


class ClusterLeave:
    """The stop of one process. It begins only when the process is asked to stop."""

    def __init__(
        self, own_id: int, membership: MembershipDriver, quorum: QuorumDriver, world: World
    ) -> None:
        self._own_id = own_id
        self._membership = membership
        self._quorum = quorum
        self._world = world
        self._done: Callable[[], None] | None = None
        self._patience: Cancel | None = None
        """The timer that limits the wait for a new quorum leader."""

    @property
    def has_begun(self) -> bool:
        """True if this broker is leaving."""
        return self._done is not None

    def begin(self, done: Callable[[], None]) -> None:
        """Begin to leave. `done` is called once, in a later turn of the event loop."""
        self._done = done
        self._membership.want_stop()

    def may_stop(self) -> None:
        """Finish, because no other broker depends on this broker's leaderships."""
        if self._quorum.leader_id != self._own_id:
            self._finish()
            return
        self._patience = self._world.later(SUCCESSOR_MS_MAX, self._finish)
        self._quorum.handle(Resign())

    def role(self, role: RoleChange) -> None:
        """Finish when another node leads the quorum."""
        if self._patience is not None and isinstance(role, FollowsLeader):
            self._patience.cancel()
            self._finish()

    def _finish(self) -> None:
        assert self._done is not None, "it has not begun to leave"
        self._patience = None
        self._world.soon(self._done)
