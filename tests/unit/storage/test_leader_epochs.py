"""Leader epochs of a log: the results of lookups and truncations."""

from __future__ import annotations

import pytest

from broker.storage.leader_epochs import LeaderEpochs


def epochs() -> LeaderEpochs:
    return LeaderEpochs([(1, 10), (3, 20), (4, 35)])


def test_only_a_newer_epoch_adds_an_entry() -> None:
    ours = epochs()
    ours.assign(4, 50)
    ours.assign(2, 60)
    assert ours.change_count == 0
    ours.assign(7, 60)
    assert ours.entries[-1] == (7, 60)
    assert (ours.latest, ours.change_count) == (7, 1)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 35)), (4, (4, 99)),
     (5, (-1, -1))],
)  # fmt: skip
def test_an_epoch_ends_where_the_next_begins(asked: int, answer: tuple[int, int]) -> None:
    assert epochs().end_offset_for(asked, 99, 4) == answer


@pytest.mark.parametrize(
    ("asked", "answer"), [(4, (4, 99)), (5, (4, 99)), (7, (7, 99)), (8, (-1, -1))]
)
def test_the_current_epoch_is_known_before_anything_is_written_in_it(
    asked: int, answer: tuple[int, int]
) -> None:
    assert epochs().end_offset_for(asked, 99, 7) == answer


def test_no_entries_know_the_current_epoch_and_none_that_is_newer() -> None:
    assert LeaderEpochs().end_offset_for(0, 5, 0) == (0, 5)
    assert LeaderEpochs().end_offset_for(1, 5, 3) == (1, 5)
    assert LeaderEpochs().end_offset_for(1, 5, 0) == (-1, -1)
    assert LeaderEpochs().end_offset_for(-1, 5, 0) == (-1, -1)
    assert LeaderEpochs().latest == -1
    assert LeaderEpochs().epoch_of(0) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 1), (34, 3), (35, 4), (90, 4)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epochs().epoch_of(offset) == epoch


@pytest.mark.parametrize(("end", "left"), [(36, 3), (35, 2), (21, 2), (20, 1), (10, 0), (0, 0)])
def test_cutting_the_end_forgets_epochs_that_began_there(end: int, left: int) -> None:
    ours = epochs()
    ours.truncate_from_end(end)
    assert ours.entries == epochs().entries[:left]
    assert ours.latest == (ours.entries[-1][0] if left else -1)


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, [(1, 10), (3, 20), (4, 35)]),
        (10, [(1, 10), (3, 20), (4, 35)]),
        (15, [(1, 15), (3, 20), (4, 35)]),
        (20, [(3, 20), (4, 35)]),
        (40, [(4, 40)]),
    ],
)
def test_cutting_the_start_keeps_the_epoch_that_spans_it(
    start: int, left: list[tuple[int, int]]
) -> None:
    ours = epochs()
    ours.truncate_from_start(start)
    assert ours.entries == left
