"""Assignors give the same result as Java's where members must agree. Elsewhere they are balanced
and sticky."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from protocol.client.assignment import Assignment, MemberSubscription
from protocol.client.assignors import ASSIGNORS, RANGE, ROUND_ROBIN, Assignor
from protocol.types import TopicPartition
from tests.harness.seed import seeded

STICKY_ONES = [ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]]
EVERY = list(ASSIGNORS.values())

Counts = Mapping[str, int]


def tps(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def member(member_id: str, *topics: str, **how: Any) -> MemberSubscription:
    return MemberSubscription(member_id, topics, **how)


def random_group(rng: random.Random) -> tuple[list[MemberSubscription], Counts]:
    topics = [f"t{index}" for index in range(rng.randrange(1, 5))]
    counts = {topic: rng.randrange(0, 9) for topic in topics if rng.random() < 0.9}
    members = [
        member(f"m{index}", *rng.sample(topics, rng.randrange(1, len(topics) + 1)))
        for index in range(rng.randrange(1, 7))
    ]
    rng.shuffle(members)
    return members, counts


def check(members: Sequence[MemberSubscription], counts: Counts, given: Assignment) -> None:
    """Check that every member has an entry, that it gets only topics it subscribed to, and that no
    partition has two owners."""
    assert set(given) == {m.member_id for m in members}
    wants = {m.member_id: frozenset(m.topics) for m in members}
    for member_id, partitions in given.items():
        assert {tp.topic for tp in partitions} <= wants[member_id]
    everything = [tp for partitions in given.values() for tp in partitions]
    assert len(everything) == len(set(everything))
    assert set(everything) <= {TopicPartition(t, p) for t, n in counts.items() for p in range(n)}


def wanted(members: Sequence[MemberSubscription], counts: Counts) -> set[TopicPartition]:
    topics = {topic for m in members for topic in m.topics}
    return {TopicPartition(t, p) for t in topics for p in range(counts.get(t, 0))}


def everything(given: Assignment) -> set[TopicPartition]:
    return {tp for partitions in given.values() for tp in partitions}


@pytest.mark.parametrize("assignor", EVERY, ids=lambda a: a.name)
def test_all_is_given_once_whatever_the_order_of_members(assignor: Assignor) -> None:
    rng = seeded("assignors")
    for _ in range(300):
        members, counts = random_group(rng)
        given = assignor.assign(members, counts)
        check(members, counts, given)
        assert everything(given) == wanted(members, counts)
        again = assignor.assign(sorted(members, key=lambda m: m.member_id), counts)
        assert again == given


@pytest.mark.parametrize(
    ("assignor", "oracle"),
    [(RANGE, RangePartitionAssignor), (ROUND_ROBIN, RoundRobinPartitionAssignor)],
    ids=["range", "roundrobin"],
)
def test_the_plain_ones_equal_aiokafka_s(assignor: Assignor, oracle: Any) -> None:
    rng = seeded("assignors against aiokafka")
    for _ in range(300):
        members, counts = random_group(rng)
        cluster = SimpleNamespace(
            partitions_for_topic=lambda topic, counts=counts: (
                set(range(counts[topic])) if topic in counts else None
            )
        )
        theirs = oracle.assign(
            cluster, {m.member_id: SimpleNamespace(subscription=list(m.topics)) for m in members}
        )
        ours = assignor.assign(members, counts)
        for m in members:
            assert sorted(ours[m.member_id]) == sorted(
                TopicPartition(topic, partition)
                for topic, partitions in theirs[m.member_id].assignment
                for partition in partitions
            )


def test_java_s_examples_of_range_and_round_robin() -> None:
    counts = {"t0": 3, "t1": 3}
    two = [member("c0", "t0", "t1"), member("c1", "t0", "t1")]
    assert RANGE.assign(two, counts) == {
        "c0": [*tps("t0", 0, 1), *tps("t1", 0, 1)],
        "c1": [*tps("t0", 2), *tps("t1", 2)],
    }
    assert ROUND_ROBIN.assign(two, counts) == {
        "c0": [*tps("t0", 0, 2), *tps("t1", 1)],
        "c1": [*tps("t0", 1), *tps("t1", 0, 2)],
    }


def test_static_members_come_first_by_their_lasting_name() -> None:
    members = [
        member("a", "t"),
        member("z", "t", group_instance_id="2"),
        member("y", "t", group_instance_id="1"),
    ]
    assert RANGE.assign(members, {"t": 4}) == {
        "y": tps("t", 0, 1),
        "z": tps("t", 2),
        "a": tps("t", 3),
    }


def owning(
    members: Sequence[MemberSubscription], given: Assignment, generation_id: int
) -> list[MemberSubscription]:
    return [
        MemberSubscription(m.member_id, m.topics, tuple(given.get(m.member_id, ())), generation_id)
        for m in members
    ]


@pytest.mark.parametrize("assignor", STICKY_ONES, ids=lambda a: a.name)
def test_equal_wishes_are_shared_evenly_and_with_the_fewest_moves(assignor: Assignor) -> None:
    rng = seeded("sticky")
    for _ in range(200):
        counts = {"t": rng.randrange(1, 20), "u": rng.randrange(0, 5)}
        members = [member(f"m{index}", "t", "u") for index in range(rng.randrange(1, 7))]
        before = assignor.assign(members, counts)
        # Some members leave the group, and others join.
        stayed = [m for m in owning(members, before, 1) if rng.random() < 0.8]
        joined = [member(f"n{index}", "t", "u") for index in range(rng.randrange(0, 3))]
        if not stayed + joined:
            continue
        after = ASSIGNORS["sticky"].assign([*stayed, *joined], counts)
        loads = [len(partitions) for partitions in after.values()]
        assert max(loads) - min(loads) <= 1
        total = sum(counts.values())
        most = -(-total // len(after))
        at_most = [most] * (total % len(after) or len(after)) + [total // len(after)] * len(after)
        kept = sum(len(set(m.owned) & set(after[m.member_id])) for m in stayed)
        # No member can keep more partitions than its share. The members that owned the most get the
        # larger shares.
        owned = sorted((len(m.owned) for m in stayed), reverse=True)
        assert kept == sum(min(n, share) for n, share in zip(owned, at_most, strict=False))


def test_different_subscriptions_leave_no_member_with_two_less_than_possible() -> None:
    rng = seeded("balanced")
    for _ in range(300):
        members, counts = random_group(rng)
        before = ASSIGNORS["sticky"].assign(members, counts)
        after = ASSIGNORS["sticky"].assign(owning(members, before, 1), counts)
        assert {id_: set(p) for id_, p in after.items()} == {
            id_: set(p) for id_, p in before.items()
        }
        wants = {m.member_id: m.topics for m in members}
        for giver, partitions in before.items():
            for tp in partitions:
                for taker, topics in wants.items():
                    if tp.topic in topics:
                        assert len(before[giver]) - len(before[taker]) < 2


def test_of_two_claims_the_later_generation_counts() -> None:
    old = member("old", "t", owned=tuple(tps("t", 0, 1)), generation_id=3)
    new = member("new", "t", owned=tuple(tps("t", 1)), generation_id=4)
    given = ASSIGNORS["sticky"].assign([old, new], {"t": 2})
    assert given == {"old": tps("t", 0), "new": tps("t", 1)}
    # Two claims of the same generation contradict each other, so the assignor ignores both.
    twin = member("new", "t", owned=tuple(tps("t", 0, 1)), generation_id=3)
    given = ASSIGNORS["sticky"].assign([old, twin], {"t": 2})
    assert Counter(map(len, given.values())) == {1: 2}


def test_what_changes_hands_is_withheld_until_it_is_let_go() -> None:
    cooperative = ASSIGNORS["cooperative-sticky"]
    alone = member("a", "t", owned=tuple(tps("t", 0, 1, 2, 3)), generation_id=1)
    given = cooperative.assign([alone, member("b", "t")], {"t": 4})
    assert given == {"a": tps("t", 0, 1), "b": []}
    lighter = member("a", "t", owned=tuple(given["a"]), generation_id=2)
    given = cooperative.assign([lighter, member("b", "t", generation_id=2)], {"t": 4})
    assert given == {"a": tps("t", 0, 1), "b": tps("t", 2, 3)}


def test_partitions_that_are_gone_and_topics_not_wanted_are_not_kept() -> None:
    moved_on = member("a", "u", owned=(*tps("t", 0), *tps("u", 0, 5)), generation_id=1)
    given = ASSIGNORS["sticky"].assign([moved_on, member("b", "t")], {"t": 1, "u": 1})
    assert given == {"a": tps("u", 0), "b": tps("t", 0)}
