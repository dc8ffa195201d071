"""Holds back answers that would name a leader which has probably just died.

After the death of a leader its clients ask the other brokers for the new one at once. A client that
gets the old one as an answer waits for its own backoff before it asks again: librdkafka for a
second. A broker notices the death on its own links to the leader, before the controller has elected
another leader. So the answer waits until the leadership has moved, for at most `HOLD_MS` after a
link to the leader ended. Then it names the leader that the metadata has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.cluster.metadata import Metadata
from broker.controller.suspicion import RECONNECT_MS
from broker.sessions.peers import Peers
from broker.world import World

DECIDE_MS = 250
"""The time in which the controller fences a dead broker and commits the new leaders."""

HOLD_MS = RECONNECT_MS + DECIDE_MS

Leaders = Callable[[], Iterable[int]]
"""Returns the ids of the leaders that an answer would name now."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An answer that waits for other leaders."""

    leaders: Leaders
    answer: Callable[[], None]


class LostLeaders:
    """The answers that wait for new leaders. A broker without a cluster has no `peers`."""

    def __init__(self, world: World, metadata: Metadata, peers: Peers | None) -> None:
        self._world = world
        self._metadata = metadata
        self._peers = peers
        self._held: list[_Held] = []
        self._is_waking = False

    def hold(self, leaders: Leaders, answer: Callable[[], None]) -> bool:
        """Call `answer` later if one of these leaders has just been lost.

        Returns False if the answer can be given now.
        """
        if self._peers is None or not self._is_lost(leaders):
            return False
        self._held.append(_Held(leaders, answer))
        self._wake_later()
        return True

    def moved(self) -> None:
        """Give the answers whose leaders are known now. Call it when the image has changed."""
        held, self._held = self._held, []
        for one in held:
            if self._is_lost(one.leaders):
                self._held.append(one)
            else:
                one.answer()

    def _is_lost(self, leaders: Leaders) -> bool:
        lost = self._lost_nodes()
        return bool(lost) and any(leader in lost for leader in leaders())

    def _lost_nodes(self) -> dict[int, int]:
        """Map each node that was lost within `HOLD_MS` to the ms that are left of it."""
        assert self._peers is not None
        now_ms = self._world.clock.monotonic_ms()
        found = {}
        for node_id in self._metadata.image.brokers:
            lost_ms = self._peers.lost_ms(node_id)
            if lost_ms is not None and now_ms < lost_ms + HOLD_MS:
                found[node_id] = lost_ms + HOLD_MS - now_ms
        return found

    def _wake_later(self) -> None:
        if self._held and not self._is_waking:
            self._is_waking = True
            self._world.later(max(self._lost_nodes().values(), default=1), self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        self.moved()
        self._wake_later()
