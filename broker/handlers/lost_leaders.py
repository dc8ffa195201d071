"""Holds back answers that would name a leader which has probably just died.

After the death of a leader, its clients ask the other brokers for the new leader at once. If the
answer names the dead leader, the client waits for its own backoff before it asks again; librdkafka
waits for a second. A broker notices the death on its own links to the leader, before the controller
has elected another leader. So the answer waits until the leadership has moved, but at most for
`HOLD_MS` after a link to the leader ended. After this time the answer names the leader in the
metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.cluster.metadata import Metadata
from broker.controller.suspicion import RECONNECT_MS
from broker.sessions.peers import Peers
from broker.world import World

DECIDE_MS = 250
"""The milliseconds within which the controller fences a dead broker and commits the new leaders."""

HOLD_MS = RECONNECT_MS + DECIDE_MS

Leaders = Callable[[], Iterable[int]]
"""A function that returns the ids of the leaders that an answer would name now."""


@dataclass(frozen=True, slots=True)
class _HeldAnswer:
    """An answer that waits for new leaders."""

    leaders: Leaders
    answer: Callable[[], None]
    deadline_ms: int


class LostLeaders:
    """The answers that wait for new leaders. A broker without a cluster has no `peers`."""

    def __init__(self, world: World, metadata: Metadata, peers: Peers | None) -> None:
        self._world = world
        self._metadata = metadata
        self._peers = peers
        self._held: list[_HeldAnswer] = []

    def hold(self, leaders: Leaders, answer: Callable[[], None]) -> bool:
        """If one of these leaders was lost a moment ago, call `answer` later and return True.

        Returns False if the answer can be sent now.
        """
        left_ms = self._left_ms()
        if not left_ms:
            # The usual case, in which the partitions are not looked through.
            return False
        wait_ms = max((left_ms.get(leader, 0) for leader in leaders()), default=0)
        if not wait_ms:
            return False
        deadline_ms = self._world.clock.monotonic_ms() + wait_ms
        self._held.append(_HeldAnswer(leaders, answer, deadline_ms))
        self._world.later(wait_ms, self.give_due)
        return True

    def give_due(self) -> None:
        """Send the answers whose new leaders are known now, and the answers that have waited long
        enough.

        Call this method when the image has changed.
        """
        if not self._held:
            return
        lost, now_ms = self._left_ms(), self._world.clock.monotonic_ms()
        held, self._held = self._held, []
        for one in held:
            if now_ms < one.deadline_ms and any(leader in lost for leader in one.leaders()):
                self._held.append(one)
            else:
                one.answer()

    def _left_ms(self) -> dict[int, int]:
        """Return the remaining part of `HOLD_MS` in milliseconds, for each node that was lost
        within this time."""
        found: dict[int, int] = {}
        if self._peers is None:
            return found
        now_ms = self._world.clock.monotonic_ms()
        for node_id in self._metadata.image.brokers:
            lost_ms = self._peers.lost_ms(node_id)
            if lost_ms is not None and now_ms < lost_ms + HOLD_MS:
                found[node_id] = lost_ms + HOLD_MS - now_ms
        return found
