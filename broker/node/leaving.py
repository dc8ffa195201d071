"""Lets other brokers take this broker's leaderships before it stops.

There are three steps, and the broker serves clients and other brokers during all of them. First the
controller moves this broker's leaderships, and this broker's clients get the new leaders. The step
ends when all other brokers know the new leaders (`cluster/membership`). In the second step, a
broker that leads the quorum resigns (EndQuorumEpoch). It stays until another node leads the quorum,
because its vote can be needed. In the third step, the broker answers the clients that look for the
new leaders and coordinators. Some client libraries report an error to the application if the
connection closes before the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.quorum_driver import QuorumDriver
from broker.quorum.events import Resign
from broker.quorum.ready import FollowsLeader, RoleChange
from broker.world import Cancel, World

SUCCESSOR_MS_MAX = 1_000
"""The longest time in milliseconds that a resigned quorum leader waits for a new leader before it
stops."""

LAST_ANSWERS_MS = 300
"""The time in milliseconds for which the broker answers clients after others have taken over.
Clients repeat a refused request after 100 to 300 ms."""


class ClusterLeave:
    """The stop of one broker process. It begins when the process receives the signal to stop."""

    def __init__(
        self, own_id: int, membership: MembershipDriver, quorum: QuorumDriver, world: World
    ) -> None:
        self._own_id = own_id
        self._membership = membership
        self._quorum = quorum
        self._world = world
        self._done: Callable[[], None] | None = None
        self._patience: Cancel | None = None
        """The timer that ends the wait for a new quorum leader."""

    @property
    def has_begun(self) -> bool:
        """True if the stop has begun."""
        return self._done is not None

    def begin(self, done: Callable[[], None]) -> None:
        """Begin the stop. `done` is called once, in a later iteration of the event loop."""
        self._done = done
        self._membership.want_stop()

    def may_stop(self) -> None:
        """Begin the second step, because no other broker needs a leadership of this broker any
        more."""
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
        if self._membership.has_others:
            self._world.later(LAST_ANSWERS_MS, self._done)
        else:
            self._world.soon(self._done)
