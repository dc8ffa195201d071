"""Detects the death of the quorum leader before the quorum's own timeout does.

This module is pure. A voter applies to its leader the rule that the controller applies to brokers
(`controller/suspicion`, decision 0049). All times are lived milliseconds (`lived`). After a stall
the driver reads the sockets before it calls `tick`.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.controller.suspicion import ProbeVerdict, Suspicion
from broker.quorum.events import LeaderDead
from broker.world import End
from protocol.types import NO_LEADER_EPOCH, NO_NODE

OWN_ENDS = frozenset({End.CLOSED, End.UNRESOLVED})
"""The ends of links that say nothing about the leader, because this node or a name server caused
them."""


class LeaderProbe(NamedTuple):
    """A request to probe the leader's registered address. The caller reports the verdict to
    `probed`."""

    number: int
    leader_id: int


class LeaderWatch:
    """A voter's watch over the leader that it follows."""

    def __init__(self) -> None:
        self._leader_id = NO_NODE
        self._leader_epoch = NO_LEADER_EPOCH
        self._suspicion = Suspicion()
        self._probes = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """The time to call `tick`; None while the leader is not suspected."""
        return self._suspicion.deadline_ms

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Watch this leader. With NO_NODE, watch no leader."""
        if (leader_id, leader_epoch) != (self._leader_id, self._leader_epoch):
            self._leader_id, self._leader_epoch = leader_id, leader_epoch
            self._suspicion.end()

    def answered(self, leader_id: int, leader_epoch: int) -> None:
        """Record an answer from the leader of the epoch.

        The answer proves that the elected process is alive, because no second process leads the
        same epoch.
        """
        if (leader_id, leader_epoch) == (self._leader_id, self._leader_epoch):
            self._suspicion.end()

    def closed(self, node_id: int, end: End, now_ms: int) -> LeaderProbe | None:
        """Handle a link that ended or could not connect. Return the probe to start, if any.

        Another ended link can cause another probe, but it does not extend the leader's deadline.
        """
        suspicion = self._suspicion
        if node_id != self._leader_id or end in OWN_ENDS or suspicion.probe is not None:
            return None
        suspicion.begin(now_ms)
        self._probes += 1
        suspicion.probe = self._probes
        return LeaderProbe(self._probes, node_id)

    def probed(self, probe: LeaderProbe, verdict: ProbeVerdict, now_ms: int) -> LeaderDead | None:
        """Handle the verdict of a probe. Return the leader if it is dead.

        The verdict is ignored if the leader has answered in the meantime or has changed.
        """
        if probe.number != self._suspicion.probe:
            return None
        return self._dead() if self._suspicion.probed(probe.number, verdict, now_ms) else None

    def tick(self, now_ms: int) -> LeaderDead | None:
        """Return the leader as dead if its deadline has passed.

        The caller has read the sockets before.
        """
        return self._dead() if self._suspicion.is_over(now_ms) else None

    def _dead(self) -> LeaderDead:
        self._suspicion.end()
        return LeaderDead(self._leader_id, self._leader_epoch)
