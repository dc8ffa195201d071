"""The smallest plan of moves (P8): it moves as few replicas as possible and keeps leaders. A second
plan after it has no moves."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from time import process_time

import pytest

from appliance.kafka.move_plan import (
    MovePlan,
    PlacedPartition,
    PlanGoal,
    Racks,
    make_plan,
)
from broker.controller.spreading import PlacementCounts, spread
from protocol.types import TopicPartition
from tests.harness.seed import seeded

RANDOM_COUNT = 20_000
RANDOM_PARTS = int(os.environ.get("MILLRACE_PLAN_PARTS", "1"))
"""The number of parts of RANDOM_COUNT pairs of plans each. 50 parts are a million."""


def topic(
    name: str, *replicas: Sequence[int], in_sync: Sequence[int] | None = None
) -> list[PlacedPartition]:
    return [
        PlacedPartition(
            TopicPartition(name, number),
            tuple(members),
            frozenset(members if in_sync is None else in_sync),
        )
        for number, members in enumerate(replicas)
    ]


def placed(name: str, racks: Racks, count: int, factor: int) -> list[PlacedPartition]:
    return topic(name, *spread(racks, count, factor, PlacementCounts(), PlacementCounts()))


def before(partitions: Sequence[PlacedPartition]) -> dict[TopicPartition, tuple[int, ...]]:
    return {one.tp: one.replicas for one in partitions}


def done(partitions: Sequence[PlacedPartition], plan: MovePlan) -> list[PlacedPartition]:
    return [
        PlacedPartition(one.tp, members, frozenset(members))
        for one in partitions
        for members in [plan.targets.get(one.tp, one.replicas)]
    ]


def copies(partitions: Sequence[PlacedPartition], plan: MovePlan) -> int:
    were = before(partitions)
    return sum(len(set(members) - set(were[tp])) for tp, members in plan.targets.items())


def loads(partitions: Sequence[PlacedPartition], brokers: Sequence[int]) -> list[int]:
    found = Counter(broker for one in partitions for broker in one.replicas)
    return [found[broker] for broker in brokers]


def leads(partitions: Sequence[PlacedPartition], brokers: Sequence[int]) -> list[int]:
    found = Counter(one.replicas[0] for one in partitions)
    return [found[broker] for broker in brokers]


def is_level(values: Sequence[int]) -> bool:
    return max(values) - min(values) <= 1


def fewest(partitions: Sequence[PlacedPartition], brokers: Sequence[int]) -> int:
    """Return the least number of moves that levels one topic without racks (P8)."""
    found = loads(partitions, brokers)
    floor, rest = divmod(sum(found), len(brokers))
    ceiling = floor + (rest > 0)
    above = sum(max(one - ceiling, 0) for one in found)
    below = sum(max(floor - one, 0) for one in found)
    return max(above, below)


def check_fixed(partitions: Sequence[PlacedPartition], goal: PlanGoal) -> None:
    assert make_plan(partitions, goal).targets == {}


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 12, 30])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_p8_a_broker_that_is_added_gets_its_share_and_no_more_moves(
    count: int, factor: int
) -> None:
    partitions = placed("logs", dict.fromkeys((1, 2, 3)), count, factor)
    goal = PlanGoal(dict.fromkeys((1, 2, 3, 4)))
    plan = make_plan(partitions, goal)
    assert copies(partitions, plan) == fewest(partitions, (1, 2, 3, 4))
    after = done(partitions, plan)
    assert is_level(loads(after, (1, 2, 3, 4)))
    assert is_level(leads(after, (1, 2, 3, 4)))
    changed = sum(
        one.replicas[0] != new.replicas[0] for one, new in zip(partitions, after, strict=True)
    )
    assert changed == max(0, count // 4), "only the new broker's share of leaders changes"
    check_fixed(after, goal)


def test_p8_a_broker_that_is_removed_gives_its_replicas_and_nothing_else_moves() -> None:
    racks = dict.fromkeys((1, 2, 3, 4))
    partitions = placed("logs", racks, 12, 3)
    plan = make_plan(partitions, PlanGoal(dict.fromkeys((1, 2, 3, 5)), frozenset({4})))
    after = done(partitions, plan)
    assert copies(partitions, plan) == 9
    assert loads(after, (1, 2, 3, 4, 5)) == [9, 9, 9, 0, 9]
    for one, new in zip(partitions, after, strict=True):
        assert one.replicas == new.replicas or 4 in one.replicas


def test_trap_18_no_broker_can_take_the_replica() -> None:
    partitions = [*topic("logs", (1, 2, 3), (3, 1, 2)), *topic("one", (3,))]
    plan = make_plan(partitions, PlanGoal(dict.fromkeys((1, 2)), frozenset({3})))
    assert plan.refused == {
        TopicPartition("logs", number): (
            "3 replicas need 3 brokers, and the plan can use 1, 2; "
            "no broker can take the replica of 3"
        )
        for number in (0, 1)
    }
    assert set(plan.targets) == {TopicPartition("one", 0)}
    lower = make_plan(partitions, PlanGoal(dict.fromkeys((1, 2)), frozenset({3}), factor=2))
    assert lower.refused == {}
    assert copies(partitions, lower) == 2, "the second replica of `one`, and its moved one"
    assert all(3 not in members for members in lower.targets.values())


def test_more_replicas_are_appended_so_that_leaders_stay() -> None:
    partitions = topic("logs", (1,), (1,), (1,))
    plan = make_plan(partitions, PlanGoal(dict.fromkeys((1, 2, 3)), factor=3))
    after = done(partitions, plan)
    assert loads(after, (1, 2, 3)) == [3, 3, 3]
    assert sorted(leads(after, (1, 2, 3))) == [1, 1, 1]
    assert copies(partitions, plan) == 6


def test_fewer_replicas_drop_those_that_lag_then_those_of_a_doubled_rack() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    (lagging,) = topic("logs", (1, 2, 3), in_sync=(1, 2))
    plan = make_plan([lagging], PlanGoal(dict.fromkeys((1, 2, 3)), factor=2))
    assert plan.targets[lagging.tp] == (1, 2)
    (whole,) = topic("logs", (1, 2, 3))
    plan = make_plan([whole], PlanGoal(racks, factor=2))
    assert plan.targets[whole.tp] == (1, 3)
    (led,) = topic("logs", (1, 2, 3), in_sync=(2, 3))
    plan = make_plan([led], PlanGoal(dict.fromkeys((1, 2, 3)), factor=2))
    assert plan.targets[led.tp] == (2, 3)


def test_racks_are_mended_with_one_move_for_each_that_lacks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    partitions = topic("logs", (1, 2), (3, 4), (1, 3), (2, 4))
    plan = make_plan(partitions, PlanGoal(racks))
    assert copies(partitions, plan) == 2
    after = done(partitions, plan)
    assert all(len({racks[one] for one in new.replicas}) == 2 for new in after)
    assert loads(after, (1, 2, 3, 4)) == [2, 2, 2, 2]
    check_fixed(after, PlanGoal(racks))


def test_p5_the_load_of_a_small_rack_is_said() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    plan = make_plan(placed("logs", racks, 10, 3), PlanGoal(racks))
    assert plan.notes == [
        "logs: 10 replicas on a broker of rack a, 6.0 on average, because the rack has 1 of 5 "
        "brokers"
    ]
    assert make_plan(placed("logs", racks, 10, 2), PlanGoal(racks)).notes == []


def test_a_broker_that_is_away_or_cordoned_keeps_its_replicas() -> None:
    partitions = topic("logs", (1, 2), (2, 3), (3, 1))
    plan = make_plan(partitions, PlanGoal(dict.fromkeys((1, 2, 4))))
    after = done(partitions, plan)
    assert [3 in one.replicas for one in after] == [False, True, True]
    assert is_level(loads(after, (1, 2, 4)))


def test_topics_of_one_partition_are_levelled_together() -> None:
    partitions = [one for number in range(40) for one in topic(f"t{number:02}", (1, 2, 3))]
    goal = PlanGoal(dict.fromkeys((1, 2, 3, 4)))
    plan = make_plan(partitions, goal)
    after = done(partitions, plan)
    assert copies(partitions, plan) == 30
    assert loads(after, (1, 2, 3, 4)) == [30, 30, 30, 30]
    assert leads(after, (1, 2, 3, 4)) == [10, 10, 10, 10]
    check_fixed(after, goal)


def test_p8_one_partition_can_make_two_steps_of_a_chain() -> None:
    """The cheapest chain of moves uses one partition twice. A plan without it copied five replicas
    instead of four (found by a million random topics)."""
    text = "564 145 423 631 524 134 413 325 425 251 541 126 365 216 365 156 534 635 421 623 314"
    members = [tuple(map(int, one)) for one in f"{text} 213 136 215".split()]
    partitions = topic("logs", *members)
    brokers = (1, 2, 3, 4, 5, 6)
    plan = make_plan(partitions, PlanGoal(dict.fromkeys(brokers)))
    assert copies(partitions, plan) == fewest(partitions, brokers) == 4


def placed_as(name: str, text: str) -> list[PlacedPartition]:
    return topic(name, *(tuple(map(int, one)) for one in text.split()))


def test_p8_a_plan_with_racks_and_several_topics_is_complete() -> None:
    """A second plan moved two more replicas (found by a million random topics)."""
    racks = dict(zip(range(1, 7), ("a", "a", "a", "b", "b", "b"), strict=True))
    partitions = [
        *placed_as("t0", "6731"),
        *placed_as("t1", "6235 6754 5461 4713 7421"),
        *placed_as("t2", "4657 5314 1624"),
    ]
    goal = PlanGoal(racks, frozenset({7}), 4)
    plan = make_plan(partitions, goal)
    check_fixed(done(partitions, plan), goal)
    assert is_level(loads(done(partitions, plan), list(racks)))


def check_random(chance: Random) -> None:
    brokers = list(range(1, chance.randint(2, 7) + 1))
    factor = chance.randint(1, min(len(brokers), 4))
    members = [chance.sample(brokers, factor) for _ in range(chance.randint(1, 24))]
    partitions = topic("logs", *members)
    goal = PlanGoal(dict.fromkeys(brokers))
    plan = make_plan(partitions, goal)
    after = done(partitions, plan)
    assert copies(partitions, plan) == fewest(partitions, brokers), partitions
    assert is_level(loads(after, brokers)), partitions
    assert is_level(leads(after, brokers)), partitions
    check_fixed(after, goal)


def check_random_racks(chance: Random) -> None:
    size = chance.randint(1, 3)
    names = [f"r{rack}" for rack in range(chance.randint(2, 4)) for _ in range(size)]
    racks: Mapping[int, str | None] = dict(enumerate(names, 1))
    brokers = list(racks)
    factor = chance.randint(1, min(len(brokers), 4))
    leaving = frozenset({max(brokers) + 1})
    partitions = [
        one
        for number in range(chance.randint(1, 4))
        for one in topic(
            f"t{number}",
            *(chance.sample([*brokers, *leaving], factor) for _ in range(chance.randint(1, 8))),
        )
    ]
    goal = PlanGoal(racks, leaving, chance.choice((None, factor, min(factor + 1, len(brokers)))))
    plan = make_plan(partitions, goal)
    assert plan.refused == {}
    after = done(partitions, plan)
    wanted = factor if goal.factor is None else goal.factor
    for one in after:
        assert len(set(one.replicas)) == wanted, partitions
        assert not leaving & set(one.replicas), partitions
        used = {racks[broker] for broker in one.replicas}
        assert len(used) == min(wanted, len(set(racks.values()))), partitions
    check_fixed(after, goal)


def test_p8_random_topics() -> None:
    chance = seeded("plans")
    for _ in range(150):
        check_random(chance)
        check_random_racks(chance)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(RANDOM_PARTS))
def test_p8_many_random_topics(part: int) -> None:
    chance = seeded(f"many plans, part {part}")
    for _ in range(RANDOM_COUNT):
        check_random(chance)
        check_random_racks(chance)


def test_trap_17_four_thousand_partitions_are_planned_in_seconds() -> None:
    partitions = placed("logs", dict.fromkeys((1, 2, 3)), 4_000, 3)
    began_s = process_time()
    plan = make_plan(partitions, PlanGoal(dict.fromkeys((1, 2, 3, 4))))
    assert copies(partitions, plan) == 3_000
    assert process_time() - began_s < 30
