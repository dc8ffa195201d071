"""The status of a reader: Burrow's test vectors, and where ours differs on purpose."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from monitor.lag.reader_status import (
    BAD,
    SAMPLE_EVERY_MS,
    Judged,
    Look,
    ReaderStatus,
    Window,
    judge_reader,
    worst,
)
from monitor.lag.rules import CellState, Lag

Shape = Callable[[int], tuple[int, int]]
"""Maps a step of ten seconds to the committed offset and the log end offset."""


def run(shape: Shape, steps: int = 40, *, is_read: bool = True) -> Judged:
    """Feed the readings of all steps. Return the status after the last one."""
    window = Window()
    for step in range(steps):
        commit, end = shape(step)
        now_ms = 1_000_000 + step * SAMPLE_EVERY_MS
        lag = Lag(CellState.OK, lag=end - commit)
        window.add(Look(now_ms, commit, end - commit))
        window.conclude(judge_reader(lag, window, now_ms, is_read=is_read))
    return window.held


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("caught up", lambda n: (n * 10, n * 10), ReaderStatus.OK),
        ("shrinking", lambda n: (n * 20, 1_000 + n * 10), ReaderStatus.OK),
        # Burrow warns if lag never falls. But a pipeline always has some records in flight.
        ("flat lag is steady", lambda n: (n * 10, n * 10 + 50), ReaderStatus.OK),
        ("growing", lambda n: (n * 10, n * 15 + 20), ReaderStatus.GROWING),
        ("the same commit again and again", lambda n: (90, 100 + n), ReaderStatus.STALLED),
        ("still, and nothing is written", lambda n: (90, 100), ReaderStatus.STALLED),
        ("idle for long at the end", lambda n: (100, 100), ReaderStatus.OK),
        ("a burst a moment ago", lambda n: (100, 100 if n < 38 else 5_000), ReaderStatus.OK),
        # Burrow reports no problem while its window contains a sample without lag.
        (
            "growing since five minutes ago",
            lambda n: (n * 9, n * (9 if n < 10 else 15) + 0),
            ReaderStatus.GROWING,
        ),
        ("rewound", lambda n: (n * 10 if n < 30 else n * 3, 500), ReaderStatus.REWOUND),
        ("rewound and regained", lambda n: (200 if n == 20 else n * 12, 500), ReaderStatus.OK),
    ],
)
def test_burrows_vectors_by_the_clock(name: str, shape: Shape, expected: ReaderStatus) -> None:
    assert run(shape).status is expected, name


def test_nothing_is_red_before_five_looks_over_two_minutes() -> None:
    assert run(lambda n: (5, 100 + n), steps=12).status is ReaderStatus.MEASURING
    # Burrow reports STOP after a single commit with lag, which says nothing about progress.
    assert run(lambda n: (5, 100), steps=1).status is ReaderStatus.MEASURING


def test_a_group_without_members_is_empty_and_never_dead() -> None:
    assert run(lambda n: (90, 100), is_read=False).status is ReaderStatus.EMPTY
    assert run(lambda n: (90, 100 + n), is_read=False).status is ReaderStatus.EMPTY_LAGGING
    # Commits that advance prove that there is a reader. A reader that uses assign() is no member.
    assert run(lambda n: (n * 10, n * 10 + 5), is_read=False).status is ReaderStatus.OK


def test_a_verdict_opens_after_two_looks_and_closes_after_three() -> None:
    window, seen = Window(), []
    for step in range(60):
        commit = 90 if step < 40 else 100 + step
        now_ms = step * SAMPLE_EVERY_MS
        end = 100 + step
        window.add(Look(now_ms, commit, end - commit))
        lag = Lag(CellState.OK, lag=end - commit)
        seen.append(window.conclude(judge_reader(lag, window, now_ms, is_read=True)).status)
    first = seen.index(ReaderStatus.STALLED)
    assert first == 13, "judged at look 12, said at the next"
    assert seen[40:43] == [ReaderStatus.STALLED, ReaderStatus.STALLED, ReaderStatus.OK]


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (Lag(CellState.NO_COMMIT, backlog=5), ReaderStatus.NO_COMMIT),
        (Lag(CellState.END_UNKNOWN), ReaderStatus.UNKNOWN),
        (Lag(CellState.PAST_END, past_end=3), ReaderStatus.UNKNOWN),
        (Lag(CellState.LOST, lag=3, lost=2), ReaderStatus.LOST),
    ],
)
def test_what_is_not_known_is_a_state_of_its_own(lag: Lag, expected: ReaderStatus) -> None:
    assert judge_reader(lag, Window(), 0, is_read=True).status is expected


def test_a_group_is_as_well_as_its_worst_partition() -> None:
    found = worst([Judged(ReaderStatus.OK), Judged(ReaderStatus.STALLED), Judged(ReaderStatus.OK)])
    assert found.status is ReaderStatus.STALLED
    assert worst([]).status is ReaderStatus.UNKNOWN


def test_a_reader_that_was_caught_up_within_a_minute_is_never_red() -> None:
    seed = 20_261_125
    chance = random.Random(seed)
    for _ in range(200):
        ends = [0]
        for _ in range(60):
            ends.append(ends[-1] + chance.randrange(50))
        held = run(partial(_every_fourth, ends))
        assert held.status not in BAD, f"seed {seed}"


def _every_fourth(ends: list[int], step: int) -> tuple[int, int]:
    """Return the offsets of a reader that commits every forty seconds."""
    return ends[step - step % 4], ends[step]


def test_readers_that_are_looked_at_seldom_are_judged_by_as_few_looks_as_that_takes() -> None:
    window = Window()
    for number in range(20):
        window.add(Look(number * 200_000, 5, 7))
    assert [one.at_ms for one in window.looks] == [n * 200_000 for n in range(15, 20)]
