"""Runs a voter's watch over its leader: ended links, probes and deadlines.

The rule is in `leader_watch`. The watcher is notified of every answer of the leader to a fetch of
metadata, and of the end of every link for such fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.cluster.leader_watch import LeaderProbe, LeaderWatch
from broker.cluster.lived import LivedAlarm
from broker.cluster.probes import Probes
from broker.controller.suspicion import ProbeVerdict
from broker.quorum.events import LeaderDead
from broker.quorum.ready import FollowsLeader, RoleChange
from broker.sessions.peers import LinkKind
from broker.world import Address, End, World
from protocol.types import NO_LEADER_EPOCH, NO_NODE


class LeaderWatcher:
    """The watch of one voter. It calls `dead` with a leader that is dead."""

    def __init__(
        self,
        world: World,
        probes: Probes,
        address_of: Callable[[int], Address | None],
        dead: Callable[[LeaderDead], None],
    ) -> None:
        self._watch = LeaderWatch()
        self._probes = probes
        self._address_of = address_of
        self._dead = dead
        self._alarm = LivedAlarm(world, self._on_time)

    def role(self, role: RoleChange) -> None:
        """Handle a role change: the quorum elected this node or another node, or has no leader any
        more."""
        if isinstance(role, FollowsLeader):
            self._watch.follow(role.leader_id, role.epoch)
        else:
            self._watch.follow(NO_NODE, NO_LEADER_EPOCH)
        self._arm()

    def answered(self, leader_id: int, leader_epoch: int) -> None:
        """Handle an answer to a Fetch of the metadata log. The node that sent the answer is the
        leader of the epoch."""
        self._watch.answered(leader_id, leader_epoch)
        self._arm()

    def link_ended(self, node_id: int, kind: LinkKind, end: End) -> None:
        """Handle a link to a node that ended or could not connect."""
        if kind is not LinkKind.METADATA:
            return
        probe = self._watch.closed(node_id, end, self._alarm.now_ms)
        if probe is not None:
            self._probes.start(self._address_of(node_id), partial(self._probed, probe))
        self._arm()

    def stop(self) -> None:
        """Stop the watch."""
        self._alarm.stop()

    def _probed(self, probe: LeaderProbe, verdict: ProbeVerdict) -> None:
        self._tell(self._watch.probed(probe, verdict, self._alarm.now_ms))

    def _on_time(self) -> None:
        self._tell(self._watch.tick(self._alarm.now_ms))

    def _tell(self, dead: LeaderDead | None) -> None:
        self._arm()
        if dead is not None:
            self._dead(dead)

    def _arm(self) -> None:
        self._alarm.set(self._watch.next_deadline_ms)
