"""Whether the leader that a voter follows is dead, before the quorum's own time-out says so.

Floor: cluster. Pure. The controller's rule for brokers, as a voter holds it about its leader
(decision 0049). A link that has ended is no verdict: it asks for a probe. Refused: dead at once.
Anything else: dead when the same leader has not answered `RECONNECT_MS` after the end, unless the
probe shows that somebody accepts there, or shows nothing at all; then the quorum's own time-out
decides. All times are lived ms, and after a stall the driver reads the sockets first.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.controller.liveness import RECONNECT_MS, Verdict
from broker.quorum.events import LeaderDead
from broker.world import End
from protocol.types import NO_LEADER_EPOCH, NO_NODE

OWN_ENDS = frozenset({End.CLOSED, End.UNRESOLVED})
"""Ends that say something of this side, or of a name server, and nothing of the leader."""


class LeaderProbe(NamedTuple):
    """The leader's registered address is to be tried; the verdict comes back with this."""

    number: int
    leader_id: int


class LeaderWatch:
    """What a voter believes of the leader it follows."""

    def __init__(self) -> None:
        self._leader_id = NO_NODE
        self._leader_epoch = NO_LEADER_EPOCH
        self._doubted_ms: int | None = None
        """When the leader counts as dead, unless it has answered by then."""
        self._probes = 0
        self._probe: LeaderProbe | None = None

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` may have something to say; None while nothing is doubted."""
        return self._doubted_ms

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """The quorum follows that leader from here on, or with NO_NODE nobody."""
        if (leader_id, leader_epoch) != (self._leader_id, self._leader_epoch):
            self._leader_id, self._leader_epoch = leader_id, leader_epoch
            self._believe()

    def answered(self, leader_id: int, leader_epoch: int) -> None:
        """A node has answered as leader of the epoch: it is the process that won it, for none leads
        an epoch twice."""
        if (leader_id, leader_epoch) == (self._leader_id, self._leader_epoch):
            self._believe()

    def closed(self, node_id: int, end: End, now_ms: int) -> LeaderProbe | None:
        """A link to a node has ended, or could not be made; the probe that this asks for.

        A further end asks anew, and does not give the leader more time.
        """
        if node_id != self._leader_id or end in OWN_ENDS or self._probe is not None:
            return None
        if self._doubted_ms is None:
            self._doubted_ms = now_ms + RECONNECT_MS
        self._probes += 1
        self._probe = LeaderProbe(self._probes, node_id)
        return self._probe

    def probed(self, probe: LeaderProbe, verdict: Verdict) -> LeaderDead | None:
        """The verdict; without effect if the leader has answered since, or is another."""
        if probe != self._probe:
            return None
        self._probe = None
        if verdict is Verdict.REFUSED:
            return self._dead()
        if verdict in (Verdict.ACCEPTED, Verdict.UNRESOLVED):
            self._believe()
        return None

    def tick(self, now_ms: int) -> LeaderDead | None:
        """The deadline has come; the sockets have been read before."""
        if self._doubted_ms is None or now_ms < self._doubted_ms:
            return None
        return self._dead()

    def _dead(self) -> LeaderDead:
        self._believe()
        return LeaderDead(self._leader_id, self._leader_epoch)

    def _believe(self) -> None:
        """Nothing is doubted, and no verdict is waited for."""
        self._doubted_ms = None
        self._probe = None
