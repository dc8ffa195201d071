"""Kafka's algorithm for the assignment of replicas, compared with the examples in Kafka's
sources."""

import pytest

from appliance.kafka.kafka_deal import alternated, deal

RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_ten_partitions_on_five_brokers_as_in_kafkas_documentation() -> None:
    assert deal([0, 1, 2, 3, 4], 10, 3, start=0, shift=0) == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_brokers_are_alternated_by_rack() -> None:
    assert alternated(RACKS) == [0, 3, 1, 5, 4, 2]
    assert alternated({1: "a", 2: "a", 3: "a", 4: "b"}) == [1, 4, 2, 3]


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("shift", range(6))
def test_on_racks_no_rack_is_used_twice_and_all_brokers_have_the_same(
    start: int, shift: int
) -> None:
    dealt = deal(list(RACKS), 12, 3, start=start, shift=shift, racks=RACKS)
    assert all(len({RACKS[one] for one in replicas}) == 3 for replicas in dealt)
    assert sorted(replicas[0] for replicas in dealt) == sorted([*RACKS, *RACKS])


def test_one_broker_is_enough_for_one_replica_only() -> None:
    assert deal([7], 2, 1, start=3, shift=5) == [[7], [7]]
    said = "Replication factor: 2 larger than available brokers: 1"
    with pytest.raises(ValueError, match=said):
        deal([7], 2, 2, start=0, shift=0)
