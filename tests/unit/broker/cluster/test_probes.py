"""The results of connecting to a broker's listener."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster.probes import VERDICTS, Probes
from broker.controller.suspicion import ProbeVerdict
from broker.world import Address, End
from tests.sim.network import LISTENS_ON_MS, Network
from tests.sim.sides import PORT, Side, listen

TWO = Address("two", PORT)


class Scene:
    """Broker 1 probes broker 2, whose host name is already resolved."""

    def __init__(self) -> None:
        self.network = Network(1)
        self.world = self.network.world("one")
        self.world.look_up("two")
        self.probes = Probes(self.world)
        self.accepted: list[Side] = []
        self.told: list[ProbeVerdict] = []

    def listen(self) -> None:
        listen(self.network.world("two"), "two", self._take)

    def _take(self) -> Side:
        self.accepted.append(Side())
        return self.accepted[-1]

    def probe(self, address: Address | None = TWO) -> None:
        before = list(self.told)
        self.probes.start(address, self.told.append)
        assert self.told == before, "nothing comes before `start` returns"

    def run(self, duration_ms: int = 100) -> None:
        self.network.timeline.run_for(duration_ms)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_every_end_means_something() -> None:
    # A probe sends no request, so no version of a request can end it.
    assert set(VERDICTS) == set(End) - {End.UNSUPPORTED}
    assert set(VERDICTS.values()) == set(ProbeVerdict)


def test_somebody_listens(scene: Scene) -> None:
    scene.listen()
    scene.probe()
    scene.run()
    assert scene.told == [ProbeVerdict.ACCEPTED]
    assert [one.ends for one in scene.accepted] == [[End.EOF]]


def test_the_process_is_gone(scene: Scene) -> None:
    scene.listen()
    scene.network.kill("two")
    scene.run(LISTENS_ON_MS)
    scene.probe()
    scene.run()
    assert scene.told == [ProbeVerdict.REFUSED]


def test_the_host_is_gone(scene: Scene) -> None:
    scene.listen()
    scene.network.cut_power("two")
    scene.probe()
    scene.run(1_900)
    assert scene.told == []
    scene.run(200)
    assert scene.told == [ProbeVerdict.SILENT]


def test_there_is_no_way(scene: Scene) -> None:
    scene.network.no_way.add(("one", "two"))
    scene.probe()
    scene.run()
    assert scene.told == [ProbeVerdict.UNREACHABLE]


def test_no_resolver_is_asked(scene: Scene) -> None:
    scene.network.unnamed.add("two")
    scene.listen()
    scene.probe()
    scene.probe(Address("unknown", PORT))
    scene.probe(None)
    scene.run()
    assert sorted(one.name for one in scene.told) == ["ACCEPTED", "UNRESOLVED", "UNRESOLVED"]
    assert scene.world.known_hosts == {"two"}


@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        (End.RESET, ProbeVerdict.ACCEPTED),
        (End.EOF, ProbeVerdict.ACCEPTED),
        (End.CLOSED, ProbeVerdict.UNRESOLVED),
    ],
)
def test_ends_that_say_little(end: End, verdict: ProbeVerdict) -> None:
    scene = Scene()
    dialled: list[Any] = []
    dial = scene.world.dial

    def noted(address: Address, receiver: Any, **options: Any) -> Any:
        dialled.append(receiver)
        return dial(address, receiver, **options)

    scene.world.dial = noted  # type: ignore[method-assign]  # to give it an end of our choice
    scene.probe()
    dialled[0].ended(end)
    scene.run()
    assert scene.told == [verdict]


def test_closing_ends_them_unheard(scene: Scene) -> None:
    scene.listen()
    scene.probe()
    scene.probes.close()
    scene.run(3_000)
    assert scene.told == []
    scene.probe()
    scene.run()
    assert scene.told == [ProbeVerdict.ACCEPTED]
