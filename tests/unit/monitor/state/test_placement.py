"""How evenly replicas and leaders are spread, and which partitions break the rule of racks."""

from dataclasses import replace

import pytest

from monitor.state.broker_facts import BrokerFacts
from monitor.state.placement import Spread, doubled_racks, skew_of, usable_brokers
from monitor.state.snapshot import BrokerView, PartitionView, Snapshot, TopicView


def broker(node: int, rack: str | None = None, *, is_cordoned: bool = False) -> BrokerView:
    return BrokerView(
        node,
        f"h:{node}",
        False,
        True,
        None,
        0,
        facts=BrokerFacts(rack=rack, is_cordoned=is_cordoned),
    )


def part(number: int, *replicas: int, removing: tuple[int, ...] = ()) -> PartitionView:
    return PartitionView(
        "t", number, replicas[0], replicas, replicas, 0, 1, 1, None, None,
        removing_replicas=removing,
    )  # fmt: skip


def snapshot(brokers: list[BrokerView], *parts: PartitionView) -> Snapshot:
    topics = (TopicView("t", None, False, parts),)
    return Snapshot(1, 1_000, 2_000, "h:1", brokers=tuple(brokers), topics=topics)


THREE_RACKS = [broker(1, "a"), broker(2, "b"), broker(3, "c"), broker(4, "a")]


@pytest.mark.parametrize(
    ("parts", "doubled"),
    [
        ([part(0, 1, 2, 3), part(1, 4, 2, 3)], {}),
        ([part(0, 1, 4, 2), part(1, 1, 2, 3)], {"t": 1}),
        ([part(0, 1, 4), part(1, 1, 2)], {"t": 1}),
        ([part(0, 1)], {}),
        # Four replicas on three racks: one rack must have two.
        ([part(0, 1, 2, 3, 4)], {}),
        # The replica on broker 4 leaves, so only three racks are used at the end.
        ([part(0, 1, 2, 4, removing=(4,))], {}),
        ([part(0, 1, 4, 3, removing=(3,))], {"t": 1}),
    ],
)
def test_a_rack_has_two_replicas_only_when_all_racks_have_one(
    parts: list[PartitionView], doubled: dict[str, int]
) -> None:
    assert doubled_racks(snapshot(THREE_RACKS, *parts)) == doubled


def test_a_rack_whose_brokers_cannot_take_a_replica_does_not_count() -> None:
    doubled = part(0, 1, 4, 2)
    for away in (
        broker(3, "c", is_cordoned=True),
        replace(broker(3, "c"), alive=False),
        replace(broker(3, "c"), fenced=True),
    ):
        brokers = [away if one.node_id == 3 else one for one in THREE_RACKS]
        assert doubled_racks(snapshot(brokers, doubled)) == {}
        assert usable_brokers(snapshot(brokers)) == {1, 2, 4}


def test_a_broker_that_is_away_keeps_its_rack() -> None:
    """While it is away, the partition still has its replica there."""
    brokers = [replace(one, alive=one.node_id != 3) for one in THREE_RACKS]
    assert doubled_racks(snapshot(brokers, part(0, 1, 2, 3))) == {}
    assert doubled_racks(snapshot(brokers, part(0, 1, 4, 3))) == {"t": 1}


def test_without_racks_nothing_is_doubled() -> None:
    assert doubled_racks(snapshot([broker(1), broker(2)], part(0, 1, 2))) == {}
    # One broker without a rack: its partitions cannot be judged.
    mixed = [broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4)]
    assert doubled_racks(snapshot(mixed, part(0, 1, 2), part(1, 1, 4))) == {"t": 1}


def test_the_skew_counts_the_brokers_that_take_replicas() -> None:
    brokers = [broker(1), broker(2), broker(3, is_cordoned=True)]
    skew = skew_of(snapshot(brokers, part(0, 1, 3), part(1, 1, 2), part(2, 1, 2, removing=(2,))))
    assert skew is not None
    assert skew.replicas == Spread(1, 3, 2.0)
    assert skew.leaders == Spread(0, 3, 1.5)
    assert skew_of(snapshot([broker(1)])) is None


@pytest.mark.parametrize(
    ("spread", "is_uneven"),
    [
        (Spread(3, 3, 3.0), False),
        (Spread(3, 4, 3.5), False),
        (Spread(2, 4, 3.0), True),
        (Spread(99, 101, 100.0), False),
        (Spread(90, 110, 100.0), True),
        (Spread(0, 12, 6.0), True),
    ],
)
def test_a_difference_that_a_plan_could_level_is_uneven(spread: Spread, is_uneven: bool) -> None:
    assert spread.is_uneven is is_uneven
