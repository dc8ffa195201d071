"""Tests of the simulated network itself. It behaves like real networks, and the same seed gives the
same run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from broker.world import Address, End
from tests.sim import sides
from tests.sim.links import WINDOW_BYTES
from tests.sim.network import LISTENS_ON_MS, Mix, Network
from tests.sim.sides import PORT
from tests.sim.world import SimWorld


class Side(sides.Side):
    """One end of a link: the frames that it has received, and its echoes."""

    def __init__(self) -> None:
        super().__init__()
        self.dialled: Any = None
        """The link from the connection attempt on, even if it is never established."""
        self.frames: list[bytes] = []
        self.drained_count = 0
        self.echoes = False

    def take(self, frames: Iterator[memoryview]) -> None:
        for frame in frames:
            self.frames.append(bytes(frame))
            if self.echoes:
                self.link.send([pack(">i", len(frame)), bytes(frame)])

    def drained(self) -> None:
        self.drained_count += 1


class Scene:
    """Two hosts. Host a connects to host b."""

    def __init__(self, seed: int = 1, mix: Mix | None = None) -> None:
        self.network = Network(seed, mix)
        self.a = self.network.world("a")
        self.accepted: list[Side] = []
        self.b = self.listen("b")

    def listen(self, host: str) -> SimWorld:
        world = self.network.world(host)
        sides.listen(world, host, self._take)
        return world

    def _take(self) -> Side:
        self.accepted.append(Side())
        return self.accepted[-1]

    def dial(self, host: str = "b", port: int = PORT, **options: bool) -> Side:
        end = Side()
        link = self.a.dial(Address(host, port), end, **options)
        end.dialled = link
        assert (end.link, end.ends) == (None, [])
        return end

    def run(self, duration_ms: int = 100) -> None:
        self.network.timeline.run_for(duration_ms)

    def stand(self) -> tuple[Side, Side]:
        end = self.dial()
        self.run(1_000)
        return end, self.accepted[-1]


def frame(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def test_frames_arrive_whole_and_in_order_however_they_are_cut() -> None:
    scene = Scene(mix=Mix(splits=0.9, late=0.3))
    ours, theirs = scene.stand()
    sent = [bytes([number]) * number for number in range(50)]
    for one in sent:
        ours.link.send([frame(one)])
    scene.run(1_000)
    assert theirs.frames == sent


@pytest.mark.parametrize("port", [PORT, 1])
def test_nobody_listens(port: int) -> None:
    scene = Scene()
    if port == PORT:
        scene.network.kill("b")
        scene.run(LISTENS_ON_MS)
    end = scene.dial(port=port)
    scene.run()
    assert end.ends == [End.REFUSED]


def test_a_kernel_may_listen_on_for_a_process_that_was_killed() -> None:
    seen = set()
    for number in range(20):
        scene = Scene(seed=number)
        scene.network.kill("b")
        end = scene.dial()
        scene.run()
        seen.add((end.link is not None, *end.ends))
    assert seen == {(True, End.RESET), (False, End.REFUSED)}


def test_a_machine_without_power_is_silent() -> None:
    scene = Scene()
    scene.network.cut_power("b")
    end = scene.dial()
    scene.run(1_900)
    assert not end.ends
    scene.run(200)
    assert end.ends == [End.TIMED_OUT]


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
def test_a_cut_of_either_way_keeps_a_link_from_standing(way: tuple[str, str]) -> None:
    scene = Scene()
    scene.network.cut(*way)
    end = scene.dial()
    scene.run(2_100)
    assert (end.ends, scene.accepted) == ([End.TIMED_OUT], [])


def test_a_router_says_that_there_is_no_way() -> None:
    scene = Scene()
    scene.network.no_way.add(("a", "b"))
    end = scene.dial()
    scene.run()
    assert end.ends == [End.UNREACHABLE]


def test_a_name_keeps_its_meaning() -> None:
    scene = Scene()
    scene.network.unnamed.add("b")
    first = scene.dial()
    scene.run()
    assert first.ends == [End.UNRESOLVED]
    scene.network.heal()
    unknown = scene.dial(asks_resolver=False)
    known = scene.dial()
    scene.run()
    assert unknown.ends == [End.UNRESOLVED]
    assert known.link
    scene.network.unnamed.add("b")
    later = [scene.dial(), scene.dial(asks_resolver=False)]
    scene.run()
    assert all(one.link for one in later)


def test_a_process_that_ends_has_its_links_reset() -> None:
    scene = Scene()
    ours, theirs = scene.stand()
    theirs.link.send([frame(b"last")])
    scene.network.kill("b")
    scene.run()
    assert (ours.frames, ours.ends) == ([b"last"], [End.RESET])
    assert not theirs.ends


def test_patience_ends_when_nothing_is_acknowledged() -> None:
    """A sender gives up if it gets no acknowledgement, even if everything arrives and only the
    reverse direction is cut."""
    for way in (("a", "b"), ("b", "a")):
        scene = Scene()
        ours, theirs = scene.stand()
        scene.network.cut(*way)
        ours.link.send([frame(b"x")])
        scene.run(1_900)
        assert not ours.ends
        scene.run(200)
        assert ours.ends == [End.TIMED_OUT]
        assert theirs.frames == ([] if way == ("a", "b") else [b"x"])


def test_what_waits_in_a_cut_arrives_when_it_is_healed() -> None:
    scene = Scene()
    ours, theirs = scene.stand()
    scene.network.cut("a", "b")
    ours.link.send([frame(b"x")])
    scene.run(1_500)
    scene.network.heal("a", "b")
    scene.run(3_000)
    assert (theirs.frames, ours.ends) == ([b"x"], [])


def test_a_new_life_knows_nothing_of_old_links() -> None:
    scene = Scene()
    ours, _ = scene.stand()
    scene.network.cut_power("b")
    scene.listen("b")
    ours.link.send([frame(b"x")])
    scene.run()
    assert ours.ends == [End.RESET]


def test_links_can_be_lost() -> None:
    scene = Scene()
    ours, theirs = scene.stand()
    scene.network.lose_links("b", "a")
    scene.run()
    assert (ours.ends, theirs.ends) == ([End.RESET], [End.RESET])


def test_a_close_is_heard_by_the_other_side_alone() -> None:
    scene = Scene()
    ours, theirs = scene.stand()
    ours.link.close()
    scene.run()
    assert (ours.ends, theirs.ends) == ([], [End.EOF])


def test_one_closed_before_it_stands_hears_nothing() -> None:
    scene = Scene()
    end = scene.dial()
    end.dialled.close()
    scene.run(3_000)
    assert (end.link, end.ends) == (None, [])


def test_a_peer_that_reads_nothing_holds_up_who_sends() -> None:
    scene = Scene()
    ours, theirs = scene.stand()
    theirs.link.pause()
    ours.link.send([frame(bytes(WINDOW_BYTES))])
    scene.run()
    assert ours.link.is_stalled
    assert not ours.drained_count
    theirs.link.resume()
    scene.run()
    assert not ours.link.is_stalled
    assert (ours.drained_count, len(theirs.frames)) == (1, 1)


def test_nothing_of_a_life_happens_when_it_is_over() -> None:
    scene = Scene()
    rung: list[str] = []
    scene.b.later(5, lambda: rung.append("later"))
    scene.b.soon(rung.append, "soon")
    scene.network.kill("b")
    scene.run()
    assert not rung


def course(seed: int) -> str:
    """Use a hundred links in a faulty network. Return a digest of the run, which differs between
    different runs."""
    scene = Scene(seed, Mix(late=0.2))
    chance = scene.network.chance
    for _ in range(100):
        end = scene.dial()
        scene.run(chance.randint(0, 30))
        if scene.accepted:
            scene.accepted[-1].echoes = True
        if end.link and not end.ends:
            end.link.send([frame(chance.randbytes(chance.randint(0, 300)))])
        match chance.randint(0, 9):
            case 0:
                scene.network.cut(*chance.choice([("a", "b"), ("b", "a")]))
            case 1 | 2:
                scene.network.heal()
            case 3:
                scene.network.kill("b")
                scene.listen("b")
            case 4:
                scene.network.lose_links("a", "b")
            case _:
                pass
    scene.network.heal()
    scene.run(10_000)
    return scene.network.trace_digest


def test_a_course_is_the_same_under_two_hash_seeds() -> None:
    command = (
        "from tests.sim.test_network import course; print([course(seed) for seed in range(5)])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert told == {f"{[course(seed) for seed in range(5)]}\n"}
    assert course(1) != course(2)
    assert len(course(1)) == hashlib.sha256().digest_size * 2
