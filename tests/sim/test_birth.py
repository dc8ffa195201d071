"""Many random creations of a cluster. There must never be two voter sets, and every broker must
finish.

The tests also remove each rule of `broker/cluster/birth` in turn. A recorded seed then fails, which
shows that the rule is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from broker.cluster.birth import Birth, BirthDone, BirthPhase, Effect, SendReport
from broker.cluster.found import DiskReport, voters_found
from protocol.types import Uuid
from tests.harness.seed import seeded
from tests.sim.birth_world import NODES, Mix, World
from tests.sim.violation import Violation

ORDINARY = Mix()
EMPTIED = Mix(
    fault_count_max=15,
    lost=0.0,
    twice=0.0,
    late=0.3,
    late_ms_max=1_000,
    answer_ms_max=4_000,
    store_ms_max=50,
    down_ms_max=50,
    emptied=0.7,
    powerless=0.2,
)
"""Disks are emptied again and again, while earlier responses are still under way."""


class AsksOnce(Birth):
    """A cluster creation without rule 1."""

    def _note_empty(self, node_id: int, directory_id: Uuid) -> Sequence[Effect]:
        self._first[node_id] = directory_id
        is_unanimous = len(self._first) == len(self._others)
        return self._store(self._set_of_all()) if is_unanimous else ()


class CountsAll(Birth):
    """A cluster creation without rule 2."""

    def _counts(self, question_id: int) -> bool:
        return True


class EmptyWhileStoring(Birth):
    """A cluster creation without rule 3."""

    def _answer(self, call_id: int, node_id: int) -> Effect:
        if self.phase is BirthPhase.STORING:
            return SendReport(call_id, self._report)
        return super()._answer(call_id, node_id)


class TrustsWhatItReads(Birth):
    """A cluster creation without rule 4."""

    def _begin(self) -> Sequence[Effect]:
        if voters := voters_found(self._found):
            self.phase, self.voters = BirthPhase.DONE, voters
            return [BirthDone(voters)]
        return super()._begin()


def live(seed: float | int, mix: Mix, make: Callable[[DiskReport], Birth] = Birth) -> World:
    world = World(Random(seed), mix, make)
    world.live()
    return world


@pytest.mark.parametrize(("mix", "count"), [(ORDINARY, 200), (EMPTIED, 60)])
def test_no_life_makes_two_sets_and_every_one_ends(mix: Mix, count: int) -> None:
    chance = seeded("births")
    emptied = 0
    for _ in range(count):
        emptied += live(chance.random(), mix).emptied_count
    # The runs show little unless disks are emptied, so check that they were.
    assert emptied > count


@pytest.mark.slow
@pytest.mark.parametrize("mix", [ORDINARY, EMPTIED])
def test_the_same_for_long(mix: Mix) -> None:
    chance = seeded("births for long")
    for _ in range(10_000):
        live(chance.random(), mix)


@pytest.mark.parametrize(
    ("make", "mix", "seed", "harm"),
    [
        (AsksOnce, EMPTIED, 561, "two voter sets"),
        (CountsAll, EMPTIED, 304, "two voter sets"),
        (EmptyWhileStoring, EMPTIED, 12, "two voter sets"),
        (TrustsWhatItReads, ORDINARY, 603, "damaged"),
    ],
)
def test_each_rule_is_needed(
    make: Callable[[DiskReport], Birth], mix: Mix, seed: int, harm: str
) -> None:
    with pytest.raises(Violation, match=harm):
        live(seed, mix, make)
    live(seed, mix)


def test_a_quiet_birth_is_quick_and_writes_each_set_once() -> None:
    chance = seeded("a quiet birth")
    quiet = Mix(fault_count_max=0, lost=0.0, twice=0.0, late=0.0, store_ms_max=1, down_ms_max=0)
    for _ in range(20):
        world = World(Random(chance.random()), quiet)
        for node_id in NODES:
            world.start(node_id)
        # This is enough for two rounds of two messages, two stores of three steps, and a last round
        # of requests.
        world.run_until(200)
        assert all(process.done for process in world.running.values())
        assert (world.store_count, len(world.sets)) == (len(NODES), 1)
