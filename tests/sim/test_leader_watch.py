"""A voter that fetches from its leader over a faulty network. It must notice a dead leader in time,
and must never give up a living one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker.cluster.leader_watch import LeaderWatch
from broker.cluster.probes import Probes
from broker.quorum.events import LeaderDead
from broker.sessions.peers import LinkKind, Peers
from broker.world import Address, End
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import RequestHeader
from tests.harness.seed import seeded
from tests.sim.network import LISTENS_ON_MS, Mix, Network
from tests.sim.sides import PORT, VERSIONS, AnsweringSide, listen

LEADER = 2
FETCH_WAIT_MS = 500
"""The time for which the leader parks a fetch."""
FETCH_TIMEOUT_MS = 600
BACKOFF_MS = 50
SEED_COUNT = 25


class LeaderSide(AnsweringSide):
    """The leader's end of a link. It answers each request after a random delay, with its epoch. A
    frozen process sends nothing."""

    def __init__(self, scene: Scene, epoch: int) -> None:
        super().__init__()
        self._scene = scene
        self._epoch = epoch

    def asked_for(self, header: RequestHeader) -> None:
        if not self._scene.is_frozen:
            delay_ms = self._scene.chance.randint(0, FETCH_WAIT_MS)
            self.link.world.later(delay_ms, lambda: self._answer(header.correlation_id))

    def _answer(self, number: int) -> None:
        if not self._scene.is_frozen:
            self.answer(number, self._epoch)

    def ended(self, end: End, reason: str = "") -> None:
        self.link.close()


class Scene:
    """A voter on the host `voter`, and its leader on the host `leader`."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.network = Network(chance.randint(0, 1 << 30), Mix())
        self.is_frozen = False
        self.epoch = 0
        self.dead_ms: list[int] = []
        """The times at which the voter reported the leader as dead, measured from the fault."""
        self.fault_ms = 0
        self.world = self.network.world("voter")
        self.start_leader()
        self.peers = Peers(
            self.world, "broker-1", {LEADER: Address("leader", PORT)}, self._link_ended, VERSIONS
        )
        self.probes = Probes(self.world)
        self.watch = LeaderWatch()
        self.watch.follow(LEADER, self.epoch)
        self._fetch()
        self.run(chance.randint(100, 2_000))
        self.fault_ms = self.now_ms

    def start_leader(self) -> None:
        self.epoch += 1
        epoch = self.epoch
        listen(self.network.world("leader"), "leader", lambda: LeaderSide(self, epoch))

    @property
    def now_ms(self) -> int:
        return self.network.timeline.clock.monotonic_ms()

    def run(self, duration_ms: int) -> None:
        self.network.timeline.run_for(duration_ms)

    # The voter's calls, in the same order as the real drivers make them.

    def _fetch(self) -> None:
        self.peers.ask(
            LEADER,
            LinkKind.METADATA,
            ApiVersionsRequest(),
            self.now_ms + FETCH_TIMEOUT_MS,
            self._answered,
            self._failed,
        )

    def _failed(self, end: End) -> None:
        self.world.later(BACKOFF_MS, self._fetch)

    def _answered(self, answer: Any) -> None:
        self.watch.answered(LEADER, answer.throttle_time_ms)
        self._fetch()

    def _link_ended(self, node_id: int, kind: LinkKind, end: End) -> None:
        probe = self.watch.closed(node_id, end, self.now_ms)
        if probe is not None:
            self.probes.start(
                self.peers.address_of(node_id),
                lambda verdict: self._judged(self.watch.probed(probe, verdict, self.now_ms)),
            )
        if self.watch.next_deadline_ms is not None:
            delay_ms = max(self.watch.next_deadline_ms - self.now_ms, 0)
            self.world.later(delay_ms, lambda: self._judged(self.watch.tick(self.now_ms)))

    def _judged(self, dead: LeaderDead | None) -> None:
        if dead is not None:
            self.dead_ms.append(self.now_ms - self.fault_ms)


def killed(scene: Scene) -> None:
    scene.network.kill("leader")


def killed_without_a_resolver(scene: Scene) -> None:
    scene.network.unnamed.add("leader")
    scene.network.kill("leader")


def without_power(scene: Scene) -> None:
    scene.network.cut_power("leader")


def without_power_and_link(scene: Scene) -> None:
    scene.network.lose_links("voter", "leader")
    scene.network.cut_power("leader")


def unreachable(scene: Scene) -> None:
    scene.network.no_way.add(("voter", "leader"))
    scene.network.lose_links("voter", "leader")


def cut_off_one_way(scene: Scene) -> None:
    scene.network.cut(*scene.chance.choice([("voter", "leader"), ("leader", "voter")]))
    scene.network.lose_links("voter", "leader")


@pytest.mark.parametrize(
    ("fault", "least_ms", "most_ms"),
    [
        # The voter sees a reset, or first a response that was under way. Then its probe is
        # refused. If the kernel of the dead process still listened, a second probe is needed.
        (killed, 0, 15 + LISTENS_ON_MS + BACKOFF_MS),
        (killed_without_a_resolver, 0, 15 + LISTENS_ON_MS + BACKOFF_MS),
        # This allows for a Fetch, the kernel's timeout of the silent link, and the probe's.
        (without_power, 2_000, FETCH_TIMEOUT_MS + BACKOFF_MS + 2_000 + 510),
        (without_power_and_link, 500, 515),
        (unreachable, 500, 515),
        (cut_off_one_way, 500, 515),
    ],
)
def test_who_is_gone_is_taken_for_dead(
    fault: Callable[[Scene], None], least_ms: int, most_ms: int
) -> None:
    chance = seeded(fault.__name__)
    for _ in range(SEED_COUNT):
        scene = Scene(Random(chance.random()))
        fault(scene)
        scene.run(most_ms)
        assert scene.dead_ms
        assert least_ms <= scene.dead_ms[0] <= most_ms


def links_lost(scene: Scene) -> None:
    for _ in range(5):
        scene.network.lose_links("voter", "leader")
        scene.run(scene.chance.randint(0, 1_000))


def links_lost_without_a_resolver(scene: Scene) -> None:
    scene.network.unnamed.add("leader")
    links_lost(scene)


def frozen(scene: Scene) -> None:
    scene.is_frozen = True
    links_lost(scene)


def cut_for_a_moment(scene: Scene) -> None:
    """Cut the link for less than any timeout, so that the link survives the cut."""
    scene.network.cut("voter", "leader")
    scene.network.cut("leader", "voter")
    scene.run(scene.chance.randint(0, 1_300))
    scene.network.heal()


def started_anew(scene: Scene) -> None:
    """Replace the leader's process. The new process accepts the probe, and its first response shows
    its new epoch, so the voter must not report a dead leader."""
    scene.network.kill("leader")
    scene.start_leader()


@pytest.mark.parametrize(
    "fault", [links_lost, links_lost_without_a_resolver, frozen, cut_for_a_moment, started_anew]
)
def test_who_lives_is_not(fault: Callable[[Scene], None]) -> None:
    chance = seeded(fault.__name__)
    for _ in range(SEED_COUNT):
        scene = Scene(Random(chance.random()))
        fault(scene)
        scene.run(10_000)
        assert not scene.dead_ms
