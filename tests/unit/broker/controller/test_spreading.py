"""New partitions are spread over racks and brokers by the properties P1 to P7.

P1: a partition has different brokers, and the result does not depend on hashes. P2: it uses as many
racks as possible. P3 and P4: replicas and leaders are even over the brokers. P5: a small rack gets
more only where the racks demand it. P6: P3 and P4 hold for a topic that grows. P7: each broker
leads about equally often with each other broker as the second replica.

The fast form samples the numbers of partitions, and the slow form tries all of them. `case`
identifies an input in the message of a failure.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from math import ceil, floor
from random import Random
from typing import Any

import pytest

from broker.controller import spreading
from broker.controller.spreading import PlacementCounts, Racks, spread
from tests.harness.seed import seeded

RACKS_MAX, BROKERS_MAX, FACTOR_MAX, PARTITIONS_MAX = 5, 7, 5, 24
SAMPLE = (1, 2, 3, 5, 7, 12, 24)
RANDOM_COUNT = 1_000_000


def layouts() -> Iterator[tuple[int, ...]]:
    """Yield the sizes of up to five racks with up to seven brokers in total."""
    for count in range(1, RACKS_MAX + 1):
        for sizes in combinations_with_replacement(range(1, BROKERS_MAX + 1), count):
            if sum(sizes) <= BROKERS_MAX:
                yield sizes


def racks_of(sizes: Sequence[int]) -> Racks:
    names = [f"r{rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    return dict(enumerate(names, 1))


def placed(racks: Racks, count: int, factor: int) -> list[list[int]]:
    return spread(racks, count, factor, PlacementCounts(), PlacementCounts())


def check(racks: Racks, factor: int, partitions: Sequence[Sequence[int]], case: object) -> None:
    """Check P1 to P4 and P7 for all partitions of one topic."""
    replicas, leaders, seconds = Counter[int](), Counter[int](), Counter[tuple[int, int]]()
    sizes = Counter(racks.values())
    for one in partitions:
        assert len(set(one)) == factor == len(one), f"P1: {case}"
        assert set(one) <= set(racks), f"P1: {case}"
        found = len({racks[broker] for broker in one})
        assert found == min(factor, len(sizes)), f"P2: {case}"
        replicas.update(one)
        leaders[one[0]] += 1
        seconds[one[0], one[1] if factor > 1 else 0] += 1
    if len(set(sizes.values())) > 1:
        return
    for name, counts in (("P3", replicas), ("P4", leaders)):
        loads = [counts[broker] for broker in racks]
        assert max(loads) - min(loads) <= 1, f"{name}: {case}: {loads}"
    if factor == 1 or len(partitions) < len(racks) * (len(racks) - 1):
        return
    for broker in racks:
        others = [
            one
            for one in racks
            if one != broker and (factor > len(sizes) or racks[one] != racks[broker])
        ]
        loads = [seconds[broker, one] for one in others]
        mean = sum(loads) / len(loads)
        # If a partition uses a rack twice, two brokers of one rack are paired less often than
        # others. So the limits are the rounded mean, and not the mean.
        is_even = factor <= len(sizes) or len(sizes) == 1
        low, high = (mean, mean) if is_even else (floor(mean), ceil(mean))
        assert all(low - 1 <= load <= high + 1 for load in loads), f"P7: {case}: {broker}: {loads}"


def check_all(counts_of: dict[int, Sequence[int]]) -> None:
    for sizes in layouts():
        racks = racks_of(sizes)
        for factor in range(1, min(FACTOR_MAX, len(racks)) + 1):
            for count in counts_of.get(len(racks), counts_of[0]):
                partitions = placed(racks, count, factor)
                assert len(partitions) == count
                check(racks, factor, partitions, (sizes, factor, count))


def test_every_layout_for_some_numbers_of_partitions() -> None:
    # P7 holds from n(n-1) partitions on, so six and seven brokers need larger samples than 24.
    check_all({0: SAMPLE, 6: (*SAMPLE, 31), 7: (*SAMPLE, 43)})


@pytest.mark.slow
def test_every_layout_for_every_number_of_partitions() -> None:
    every = range(1, PARTITIONS_MAX + 1)
    check_all({0: every, 6: [*every, *range(30, 55)], 7: [*every, *range(42, 67)]})


def check_random(chance: Random) -> None:
    """Check P6 with a topic that grows while other topics exist."""
    racks = racks_of([chance.randint(1, 3) for _ in range(chance.randint(1, 4))])
    if chance.random() < 0.5:
        racks = racks_of([chance.randint(1, 3)] * chance.randint(1, 4))
    factor = chance.randint(1, min(len(racks), 5))
    topic, cluster = PlacementCounts(), PlacementCounts()
    for _ in range(chance.randint(0, 3)):
        spread(racks, chance.randint(1, 9), chance.randint(1, factor), PlacementCounts(), cluster)
    partitions: list[list[int]] = []
    for _ in range(chance.randint(1, 3)):
        new = spread(racks, chance.randint(1, 12), factor, topic, cluster)
        partitions += new
        assert not can_level_leaders(racks, topic, new), f"P6: leaders: {racks} {partitions}"
    for one in partitions:
        assert len(set(one)) == factor
        assert len({racks[broker] for broker in one}) == min(factor, len(set(racks.values())))
    if len(set(Counter(racks.values()).values())) > 1:
        return
    loads = [topic.replicas[broker] for broker in racks]
    assert max(loads) - min(loads) <= 1, f"P6: replicas: {racks} {partitions}"


def can_level_leaders(racks: Racks, topic: PlacementCounts, new: Sequence[Sequence[int]]) -> bool:
    """Return True if other leaders of the new partitions would be spread more evenly. The existing
    leaders stay.

    Leadership can move from a broker along a chain of partitions, from the leader of each to one of
    its other replicas.
    """
    for source in racks:
        reached, unseen = {source}, [source]
        while unseen:
            broker = unseen.pop()
            for one in new:
                if one[0] == broker:
                    unseen += [other for other in one if other not in reached]
                    reached.update(one)
        if any(topic.leaders[source] - topic.leaders[other] >= 2 for other in reached):
            return True
    return False


def test_random_clusters_that_grow() -> None:
    chance = seeded("spreading")
    for _ in range(300):
        check_random(chance)


@pytest.mark.slow
def test_a_million_random_clusters() -> None:
    chance = seeded("spreading, a million")
    for _ in range(RANDOM_COUNT):
        check_random(chance)


def test_p1_the_result_is_the_same_whatever_the_hashes_are() -> None:
    code = (
        "from broker.controller.spreading import *;"
        "racks = {1: 'b', 2: 'a', 3: 'c', 4: 'a', 5: None};"
        "print(spread(racks, 30, 3, PlacementCounts(), PlacementCounts()))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert found.pop().startswith("[[")


def test_p5_a_small_rack_is_loaded_only_where_the_racks_demand_it() -> None:
    racks = racks_of((1, 2, 2))
    # With two replicas, no rack needs a replica of every partition, so all brokers get the same
    # number.
    loads = Counter(broker for one in placed(racks, 10, 2) for broker in one)
    assert set(loads.values()) == {4}
    # With three replicas, each of the three racks needs one of every partition. Broker 1 is alone
    # in its rack, so it gets all ten.
    loads = Counter(broker for one in placed(racks, 10, 3) for broker in one)
    assert loads == {1: 10, 2: 5, 3: 5, 4: 5, 5: 5}


def test_topics_of_one_partition_have_different_leaders_and_seconds() -> None:
    cluster = PlacementCounts()
    racks: Racks = dict.fromkeys((1, 2, 3))
    pairs = Counter(
        tuple(spread(racks, 1, 3, PlacementCounts(), cluster)[0][:2]) for _ in range(60)
    )
    assert len(pairs) == 6
    assert max(pairs.values()) - min(pairs.values()) <= 2


def test_a_topic_as_large_as_allowed_is_placed_in_time() -> None:
    partitions = placed(dict.fromkeys((1, 2, 3, 4, 5)), 10_000, 3)
    check(dict.fromkeys((1, 2, 3, 4, 5)), 3, partitions, "10,000 partitions")


@pytest.mark.parametrize(
    ("sizes", "factor"),
    [((1, 1, 1), 3), ((3,), 2), ((4,), 3), ((5,), 3), ((7,), 3), ((2, 2, 2), 3), ((2, 2), 2)],
)
def test_thousands_of_partitions_repeat_a_pattern(
    sizes: tuple[int, ...], factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern keeps the controller's loop responsive, and pairs brokers as evenly as in small
    topics."""
    racks = racks_of(sizes)
    chosen: list[int] = []
    choose = spreading._ReplicaSets.choose

    def counted(self: Any, count: int) -> Any:
        chosen.append(count)
        return choose(self, count)

    monkeypatch.setattr(spreading._ReplicaSets, "choose", counted)
    topic, cluster = PlacementCounts(), PlacementCounts()
    partitions = spread(racks, 10_001, factor, topic, cluster)
    assert sum(chosen) < 1_000
    assert len(partitions) == 10_001
    assert len({id(one) for one in partitions}) == len(partitions), "lists that change together"
    check(racks, factor, partitions, "10,001 partitions")
    assert sum(topic.leaders.values()) == sum(cluster.leaders.values()) == 10_001
    counted_again = PlacementCounts()
    for one in partitions:
        counted_again.add(one)
    assert counted_again == topic
    check(racks, factor, [*partitions, *spread(racks, 7, factor, topic, cluster)], "7 more")


def test_without_an_even_pattern_each_partition_is_chosen() -> None:
    """The broker of the small rack must take more replicas than the others, so no pattern is
    even."""
    racks = racks_of((1, 2, 2))
    partitions = placed(racks, 1_200, 3)
    check(racks, 3, partitions, "unequal racks")
    loads = Counter(broker for one in partitions for broker in one)
    assert loads == {1: 1_200, 2: 600, 3: 600, 4: 600, 5: 600}


def test_a_topic_that_is_not_even_is_levelled_before_it_repeats_anything() -> None:
    racks = racks_of((4,))
    topic, cluster = PlacementCounts(), PlacementCounts()
    for _ in range(100):
        topic.add([1, 2])
    spread(racks, 2_000, 2, topic, cluster)
    loads = [topic.replicas[broker] for broker in racks]
    assert max(loads) - min(loads) <= 1
