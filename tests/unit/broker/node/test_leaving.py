"""How long a broker that stops goes on answering clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.node.leaving import LAST_ANSWERS_MS, SUCCESSOR_MS_MAX, ClusterLeave
from broker.quorum.events import Resign
from broker.quorum.ready import FollowsLeader
from tests.sim.network import Network

OWN, OTHER = 1, 2


class LeavingScene:
    """Broker 1, which has asked to stop, in a cluster that is played."""

    def __init__(self, *, leader_id: int, has_others: bool) -> None:
        network = Network(1)
        self.timeline = network.timeline
        self.ended_ms: list[int] = []
        self.resigned: list[Any] = []
        self._clock = network.timeline.clock
        membership: Any = SimpleNamespace(has_others=has_others, want_stop=lambda: None)
        quorum: Any = SimpleNamespace(leader_id=leader_id, handle=self.resigned.append)
        self.leave = ClusterLeave(OWN, membership, quorum, network.world("one"))
        self.leave.begin(lambda: self.ended_ms.append(self._clock.monotonic_ms()))
        self.timeline.run_for(50)

    def permit(self) -> int:
        """Let the controller permit the stop, and return the time."""
        permitted_ms = self._clock.monotonic_ms()
        self.leave.may_stop()
        return permitted_ms


@pytest.mark.parametrize(("has_others", "after_ms"), [(True, LAST_ANSWERS_MS), (False, 0)])
def test_a_broker_answers_longer_only_if_others_have_taken_over(
    *, has_others: bool, after_ms: int
) -> None:
    leaving = LeavingScene(leader_id=OTHER, has_others=has_others)
    permitted_ms = leaving.permit()
    leaving.timeline.run_for(2 * SUCCESSOR_MS_MAX)
    assert leaving.ended_ms == [permitted_ms + after_ms]
    assert leaving.resigned == []


@pytest.mark.parametrize("elected_after_ms", [200, None])
def test_a_leader_of_the_quorum_ends_once(elected_after_ms: int | None) -> None:
    """It waits for another leader, but not for ever."""
    leaving = LeavingScene(leader_id=OWN, has_others=True)
    permitted_ms = leaving.permit()
    assert leaving.resigned == [Resign()]
    waited_ms = SUCCESSOR_MS_MAX
    if elected_after_ms is not None:
        waited_ms = elected_after_ms
        leaving.timeline.run_for(elected_after_ms)
        leaving.leave.role(FollowsLeader(OTHER, 2))
    leaving.timeline.run_for(2 * SUCCESSOR_MS_MAX)
    leaving.leave.role(FollowsLeader(OTHER, 3))
    leaving.timeline.run_for(2 * SUCCESSOR_MS_MAX)
    assert leaving.ended_ms == [permitted_ms + waited_ms + LAST_ANSWERS_MS]
