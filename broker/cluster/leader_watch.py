"""Detects the death of the quorum leader before the quorum's own time-out does.

Room: cluster. Pure. A voter applies to its leader the rule that the controller applies to brokers
(decision 0049). A lost link proves nothing, so it starts a probe. If the leader's address refuses
the connection, the leader is dead at once. Otherwise the leader counts as dead if it has not
answered within `RECONNECT_MS` after the link was lost. There are two exceptions: the address
accepts the connection, or the probe could not be made. Then only the quorum's own time-out decides.
All times are lived ms, and after a stall the driver reads the sockets before it calls `tick`.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.controller.liveness import RECONNECT_MS, ProbeVerdict
from broker.quorum.events import LeaderDead
from broker.world import End
from protocol.types import NO_LEADER_EPOCH, NO_NODE

OWN_ENDS = frozenset({End.CLOSED, End.UNRESOLVED})
"""Link ends caused by this node or by a name server, which say nothing about the leader."""


class LeaderProbe(NamedTuple):
    """A request to probe the leader's registered address. The caller returns it with a verdict."""

    number: int
    leader_id: int


class LeaderWatch:
    """A voter's view of the health of the leader that it follows."""

    def __init__(self) -> None:
        self._leader_id = NO_NODE
        self._leader_epoch = NO_LEADER_EPOCH
        self._doubted_ms: int | None = None
        """When the leader counts as dead unless it answers before; None while the leader is not
        suspected.
        """
        self._probes = 0
        self._probe: LeaderProbe | None = None

    @property
    def next_deadline_ms(self) -> int | None:
        """The time to call `tick`; None while the leader is not suspected."""
        return self._doubted_ms

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Watch this leader from now on; NO_NODE means that there is no leader."""
        if (leader_id, leader_epoch) != (self._leader_id, self._leader_epoch):
            self._leader_id, self._leader_epoch = leader_id, leader_epoch
            self._believe()

    def answered(self, leader_id: int, leader_epoch: int) -> None:
        """Note an answer from the leader of the epoch. The answer proves that the process that won
        the election is alive, because no second process leads the same epoch.
        """
        if (leader_id, leader_epoch) == (self._leader_id, self._leader_epoch):
            self._believe()

    def closed(self, node_id: int, end: End, now_ms: int) -> LeaderProbe | None:
        """Note that a link to a node was lost or could not be made; return the probe to start, if
        any.

        A second lost link can start another probe, but does not extend the leader's deadline.
        """
        if node_id != self._leader_id or end in OWN_ENDS or self._probe is not None:
            return None
        if self._doubted_ms is None:
            self._doubted_ms = now_ms + RECONNECT_MS
        self._probes += 1
        self._probe = LeaderProbe(self._probes, node_id)
        return self._probe

    def probed(self, probe: LeaderProbe, verdict: ProbeVerdict) -> LeaderDead | None:
        """Note the verdict. It is ignored if the leader has answered in the meantime or has
        changed.
        """
        if probe != self._probe:
            return None
        self._probe = None
        if verdict is ProbeVerdict.REFUSED:
            return self._dead()
        if verdict in (ProbeVerdict.ACCEPTED, ProbeVerdict.UNRESOLVED):
            self._believe()
        return None

    def tick(self, now_ms: int) -> LeaderDead | None:
        """Report the leader as dead if its deadline has passed. The caller has read the sockets
        before.
        """
        if self._doubted_ms is None or now_ms < self._doubted_ms:
            return None
        return self._dead()

    def _dead(self) -> LeaderDead:
        self._believe()
        return LeaderDead(self._leader_id, self._leader_epoch)

    def _believe(self) -> None:
        """Stop suspecting the leader, and ignore the verdict of a probe that is under way."""
        self._doubted_ms = None
        self._probe = None
