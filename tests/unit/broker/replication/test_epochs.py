"""The offset at which two logs diverge: KIP-101, KIP-279 and KIP-320, by their epochs alone."""

from __future__ import annotations

import random

import pytest

from broker.replication.epochs import (
    UNKNOWN,
    EpochEnd,
    common_end,
    divergence,
    is_comparable,
)
from broker.storage.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(list(entries))


LEADER = epochs((1, 0), (3, 20), (4, 35))
"""The epochs of a leader's log that ends at offset 50. The leader leads in epoch 6."""


@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        (0, -1, None),
        (20, 1, None),
        (15, 1, None),
        (25, 1, EpochEnd(1, 20)),
        (25, 2, EpochEnd(1, 20)),
        (20, 2, EpochEnd(1, 20)),
        (36, 3, EpochEnd(3, 35)),
        (50, 4, None),
        (51, 4, EpochEnd(4, 50)),
        (60, 5, EpochEnd(4, 50)),
        (60, 6, None),
        (60, 7, UNKNOWN),
    ],
)
def test_a_leader_names_the_epoch_both_may_have(
    offset: int, last_epoch: int, answer: EpochEnd | None
) -> None:
    assert divergence(LEADER, 50, 6, offset, last_epoch) == answer


@pytest.mark.parametrize(
    ("leaders", "kept"),
    [
        (EpochEnd(1, 20), 20),
        (EpochEnd(1, 30), 25),
        (EpochEnd(2, 30), 25),
        (EpochEnd(3, 28), 28),
        (EpochEnd(3, 90), 40),
        (EpochEnd(0, 5), 0),
    ],
)
def test_a_follower_keeps_what_both_can_agree_on(leaders: EpochEnd, kept: int) -> None:
    """The follower's log has epoch 1 from 0 to 25, epoch 3 up to 40, and epoch 5 up to 60."""
    assert common_end(epochs((1, 0), (3, 25), (5, 40)), 60, leaders) == kept


def test_an_empty_log_keeps_nothing_above_its_end() -> None:
    assert common_end(epochs(), 7, EpochEnd(3, 20)) == 7
    assert common_end(epochs(), 7, EpochEnd(3, 5)) == 5


def test_an_older_epoch_than_all_of_ours_keeps_nothing_of_ours() -> None:
    """Our log begins at 50 in epoch 5, so the leader's records of epoch 3 are not comparable with
    ours."""
    assert common_end(epochs((5, 50)), 70, EpochEnd(3, 60)) == 50
    assert common_end(epochs((5, 50)), 70, EpochEnd(3, 40)) == 40


@pytest.mark.parametrize(
    ("offset", "last_epoch", "comparable"),
    [(60, 2, True), (53, 2, False), (53, 3, True), (53, -1, True), (54, 2, True), (53, 9, True)],
)
def test_nothing_is_compared_with_what_was_deleted(
    offset: int, last_epoch: int, comparable: bool
) -> None:
    """The leader's log begins at 53 and has only epoch 3."""
    assert is_comparable(epochs((3, 53)), 53, 80, offset, last_epoch) == comparable


def test_a_log_that_begins_in_the_epoch_asked_for_is_comparable() -> None:
    assert is_comparable(epochs((2, 53), (3, 60)), 53, 80, 53, 2)


Log = list[tuple[int, int]]


def entries_of(log: Log) -> LeaderEpochs:
    found = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        found.assign(epoch, offset)
    return found


@pytest.mark.parametrize("seed", range(200))
def test_cutting_until_nothing_parts_them_leaves_a_common_prefix(seed: int) -> None:
    """Two logs have a common history with several failovers. Replay a failure with its seed.

    Truncation keeps all common records and no others, and each round truncates something.
    """
    chance = random.Random(seed)
    logs: list[Log] = [[], []]
    value = 0
    for epoch in range(1, chance.randrange(3, 9)):
        leads = chance.randrange(2)
        if chance.random() < 0.4:
            other = logs[1 - leads]
            common = 0
            while common < min(map(len, logs)) and logs[0][common] == logs[1][common]:
                common += 1
            logs[1 - leads] = logs[leads][: max(common, chance.randint(0, len(logs[leads])))]
            if len(other) < len(logs[1 - leads]):
                assert logs[1 - leads][:common] == other[:common]
        for _ in range(chance.randrange(4)):
            value += 1
            logs[leads].append((epoch, value))
    leader, follower = logs
    current = 10
    want = 0
    while want < min(len(leader), len(follower)) and leader[want] == follower[want]:
        want += 1
    for _ in range(20):
        last = follower[-1][0] if follower else -1
        found = divergence(entries_of(leader), len(leader), current, len(follower), last)
        if found is None:
            break
        kept = common_end(entries_of(follower), len(follower), found)
        assert kept < len(follower), seed
        follower = follower[:kept]
    assert follower == leader[:want], seed
