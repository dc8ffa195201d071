"""The replicas that elections, the minimum and the status use while a partition is reassigned."""

import pytest

from protocol.reassignment import (
    awaited_replicas,
    effective_min_isr,
    election_order,
    is_under_replicated,
    original_replicas,
    target_replicas,
)


@pytest.mark.parametrize(
    ("replicas", "adding", "originals"),
    [((1, 2), (), (1, 2)), ((3, 1, 2), (3,), (1, 2)), ((3, 4, 1), (4, 3), (1,))],
)
def test_original_replicas(
    replicas: tuple[int, ...], adding: tuple[int, ...], originals: tuple[int, ...]
) -> None:
    assert original_replicas(replicas, adding) == originals


def test_replicas_that_stay_are_elected_first_and_added_ones_last() -> None:
    assert election_order((4, 2, 1, 3), (4,), (1,)) == (2, 3, 1, 4)
    assert election_order((2, 1), (), ()) == (2, 1)


def test_the_minimum_is_at_most_the_number_of_original_replicas() -> None:
    assert effective_min_isr(2, (1, 2, 3), ()) == 2
    assert effective_min_isr(7, (1, 2, 3), ()) == 3
    # A reassignment adds two replicas to one. Until the copy is complete, one replica suffices for
    # a commit.
    assert effective_min_isr(2, (1, 2, 3), (2, 3)) == 1


def test_kip_352_an_added_replica_does_not_make_a_partition_under_replicated() -> None:
    assert not is_under_replicated((1, 2, 3), (3,), (1, 2))
    assert is_under_replicated((1, 2, 3), (), (1, 2))
    # An added replica that is in sync does not stand in for an original one.
    assert is_under_replicated((1, 2, 3), (3,), (1, 3))


def test_the_target_has_the_replicas_that_stay_in_their_order() -> None:
    assert target_replicas((4, 2, 1, 3), (1,)) == (4, 2, 3)


def test_a_completion_awaits_the_added_replicas_and_a_shrink_all_that_stay() -> None:
    # 1 is exchanged for 4. Broker 3, which stays, need not be in sync.
    assert awaited_replicas((4, 2, 3, 1), (4,), (1,), (1, 2)) == (4,)
    assert awaited_replicas((4, 2, 3, 1), (4,), (1,), (1, 2, 4)) == ()
    # KAFKA-16218: from three replicas to two, of which one lags.
    assert awaited_replicas((1, 2, 3), (), (3,), (1, 3)) == (2,)
