"""Several brokers send each other requests over a faulty network. Every request completes once, and
after the faults each gets its response soon."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from broker.sessions.peers import LinkKind, Peers
from broker.world import Address, End
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import RequestHeader
from protocol.types import Uuid
from tests.harness.seed import seeded
from tests.sim.network import Mix, Network
from tests.sim.sides import PORT, VERSIONS, AnsweringSide, listen

NODES = (1, 2, 3)
HEALED_MS = 500
"""The time for a new connection attempt, its random delay, and a round trip."""


class PeerSide(AnsweringSide):
    """The side of a process that answers requests: at once, later or never, at random. An answer
    carries the number of the process, so that the test knows which process answered."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def asked_for(self, header: RequestHeader) -> None:
        process, number = self._process, header.correlation_id
        drawn = process.scene.chance.random()
        if process.scene.is_healed or drawn < 0.6:
            self.answer(number, process.life)
        elif drawn < 0.9:
            delay_ms = process.scene.chance.randint(1, 1_000)
            process.world.later(delay_ms, partial(self.answer, number, process.life))

    def ended(self, end: End, reason: str = "") -> None:
        self.link.close()


class Process:
    """One process of a node. Half of the processes get a new port."""

    def __init__(self, scene: Scene, node_id: int, life: int) -> None:
        self.scene = scene
        self.node_id = node_id
        self.life = life
        self.incarnation_id = Uuid(int=life)
        self.port = PORT + scene.chance.randint(0, 1)
        self.world = scene.network.world(host(node_id))
        listen(self.world, host(node_id), lambda: PeerSide(self), self.port)
        voters = {one: Address(host(one), PORT) for one in NODES if one != node_id}
        self.peers = Peers(self.world, f"broker-{node_id}", voters, versions=VERSIONS)
        self.asked: list[list[Any]] = []

    def ask(self, node_id: int, wait_ms: int, kind: LinkKind | None = None) -> list[Any]:
        ended: list[Any] = []
        self.asked.append(ended)
        self.peers.ask(
            node_id,
            kind or self.scene.chance.choice(list(LinkKind)),
            ApiVersionsRequest(),
            self.world.clock.monotonic_ms() + wait_ms,
            lambda answer: ended.append(answer.throttle_time_ms),
            ended.append,
        )
        return ended


def host(node_id: int) -> str:
    return f"host-{node_id}"


class Scene:
    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.network = Network(chance.randint(0, 1 << 30), Mix(late=0.1))
        self.is_healed = False
        self.lives = 0
        self.processes: dict[int, Process] = {}
        for node_id in NODES:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        self.lives += 1
        self.processes[node_id] = Process(self, node_id, self.lives)

    def tell(self, asker: Process, node_id: int) -> None:
        """Let a node learn the address of the newest process of another node."""
        known = self.processes[node_id]
        address = Address(host(node_id), known.port)
        asker.peers.registered(node_id, known.incarnation_id, address)

    def run(self, duration_ms: int) -> None:
        self.network.timeline.run_for(duration_ms)

    def step(self) -> None:
        chance, network = self.chance, self.network
        one, other = chance.sample(NODES, 2)
        drawn = chance.random()
        if drawn < 0.6:
            self.processes[one].ask(other, chance.randint(1, 2_000))
        elif drawn < 0.7:
            self.tell(self.processes[one], other)
        elif drawn < 0.75:
            ended = self.processes[one]
            chance.choice([network.kill, network.cut_power])(host(one))
            self.check(ended, is_over=True)
            self.start(one)
        elif drawn < 0.85:
            network.lose_links(host(one), host(other))
        elif drawn < 0.9:
            network.cut(host(one), host(other))
        elif drawn < 0.92:
            network.no_way.add((host(one), host(other)))
        else:
            network.heal(host(one), host(other))
        self.run(chance.choice([0, 1, 10, 300]))

    def check(self, process: Process, *, is_over: bool = False) -> None:
        for ended in process.asked:
            assert len(ended) <= 1 if is_over else len(ended) == 1, process.asked

    def heal(self) -> None:
        self.is_healed = True
        self.network.heal()
        # Wait for the longest pending work: a connection attempt, and the attempt after it.
        self.run(5_000)
        for process in self.processes.values():
            self.check(process)
        for process in self.processes.values():
            for node_id in NODES:
                if node_id != process.node_id:
                    self.tell(process, node_id)
        self.network.mix = Mix()
        # A link to a host without power fails only when something is sent on it. So send a request
        # on every link.
        for process in self.processes.values():
            for node_id in NODES:
                for kind in LinkKind if node_id != process.node_id else ():
                    process.ask(node_id, 10, kind)
        self.run(1_000)

    def ask_all(self) -> None:
        """Send a request from each node to each other node. Check that the newest process answers
        each in time."""
        asked = {
            (process.node_id, node_id): process.ask(node_id, HEALED_MS)
            for process in self.processes.values()
            for node_id in NODES
            if node_id != process.node_id
        }
        self.run(HEALED_MS + 10)
        for (_, node_id), ended in asked.items():
            assert ended == [self.processes[node_id].life], asked

    def close(self) -> None:
        for process in self.processes.values():
            process.ask(1 + process.node_id % 3, 60_000)
            process.peers.close()
        self.run(10)
        for process in self.processes.values():
            self.check(process)


def run(chance: Random, steps: int) -> str:
    scene = Scene(chance)
    for _ in range(steps):
        scene.step()
    scene.heal()
    scene.ask_all()
    scene.close()
    return scene.network.trace_digest


def test_every_request_ends_once_and_all_are_answered_when_the_network_is_well() -> None:
    chance = seeded("links")
    for _ in range(20):
        run(Random(chance.random()), steps=60)


@pytest.mark.slow
def test_the_same_for_long() -> None:
    chance = seeded("links for long")
    for _ in range(1_000):
        run(Random(chance.random()), steps=100)


def test_the_same_seed_is_the_same_course() -> None:
    assert run(Random(1), 40) == run(Random(1), 40)
    assert run(Random(1), 40) != run(Random(2), 40)
