"""How much of each partition a batch takes: fairly shared, live partitions first, never above its
size."""

import pytest

from stream.source.admission import (
    CLUSTER_PACE_S,
    LINES_PER_CORE,
    LIVE_S,
    PACE_S,
    PACED_LINES_FIRST,
    PACED_LINES_MAX,
    PACED_LINES_MIN,
    PACED_LINES_PER_CORE,
    Admission,
    fair_part,
)
from stream.source.checkpoint import Offsets
from tests.harness.seed import seeded

LINES_MAX = 200_000

OLD, NEW, OTHER = ("logs", 0), ("logs", 1), ("logs", 2)


def admission() -> Admission:
    return Admission(LINES_MAX)


def taken(
    of: Admission,
    waiting: dict[tuple[str, int], int],
    now_s: float = 0.0,
    cores: int | None = None,
) -> Offsets:
    """Return how many lines a batch takes from each partition. All partitions begin at offset
    1,000."""
    starts = dict.fromkeys(waiting, 1_000)
    ends = of.ends(starts, {place: 1_000 + lines for place, lines in waiting.items()}, now_s, cores)
    assert ends is not None
    return {place: end - 1_000 for place, end in ends.items()}


def test_all_that_waits_is_taken_if_it_fits() -> None:
    waiting = {OLD: 150_000, NEW: 50_000, OTHER: 0}
    assert taken(admission(), waiting) == waiting


def test_a_backlog_alone_makes_batches_as_large_as_may_be() -> None:
    assert taken(admission(), {OLD: 5_000_000, NEW: 0}) == {OLD: LINES_MAX, NEW: 0}
    both = taken(admission(), {OLD: 5_000_000, NEW: 900_000})
    assert both == {OLD: LINES_MAX // 2, NEW: LINES_MAX // 2}


def test_live_lines_do_not_wait_for_a_backlog() -> None:
    batch = taken(admission(), {OLD: 5_000_000, NEW: 300})
    assert batch[NEW] == 300
    assert batch[OLD] == PACED_LINES_FIRST - 300, "and the backlog gets what is left of it"


def test_lines_that_came_during_a_large_batch_are_live_all_the_same() -> None:
    of = admission()
    assert taken(of, {OLD: 5_000_000, NEW: 0}, now_s=10.0)[OLD] == LINES_MAX
    after = taken(of, {OLD: 4_800_000, NEW: 30_000}, now_s=16.0)
    assert after == {OLD: PACED_LINES_MIN, NEW: 30_000}
    assert taken(admission(), {OLD: 5_000_000, NEW: 30_000})[OLD] > 100_000, (
        "else it may be old, too"
    )


def test_an_old_file_that_is_still_coming_is_not_live() -> None:
    of = admission()
    assert taken(of, {OLD: 0, NEW: 400}, now_s=10.0)[NEW] == 400
    batch = taken(of, {OLD: 15_000, NEW: 400}, now_s=10.4)
    assert batch == {OLD: PACED_LINES_FIRST - 400, NEW: 400}
    assert taken(of, {OLD: 60_000, NEW: 400}, now_s=10.8)[OLD] == PACED_LINES_FIRST - 400


def test_several_that_are_behind_share_what_the_live_ones_leave() -> None:
    batch = taken(admission(), {OLD: 5_000_000, OTHER: 900_000, NEW: 1_000})
    assert batch == {OLD: 750, OTHER: 750, NEW: 1_000}


def test_a_short_old_file_is_paced_too() -> None:
    batch = taken(admission(), {OLD: 150_000, NEW: 400})
    assert batch == {OLD: PACED_LINES_FIRST - 400, NEW: 400}


def test_batches_stay_small_between_live_lines_and_grow_when_there_are_no_more() -> None:
    of = admission()
    taken(of, {OLD: 5_000_000, NEW: 1}, now_s=100.0)
    assert taken(of, {OLD: 5_000_000, NEW: 0}, now_s=100.0 + LIVE_S / 2)[OLD] == PACED_LINES_FIRST
    assert taken(of, {OLD: 5_000_000, NEW: 0}, now_s=100.0 + LIVE_S)[OLD] == LINES_MAX


def test_a_paced_batch_comes_to_take_as_long_as_it_should() -> None:
    of = admission()
    overhead_s, per_line_s = 0.1, 40e-6
    lines = 0
    for _ in range(30):
        lines = sum(taken(of, {OLD: 5_000_000, NEW: 10}).values())
        of.counted(lines, overhead_s + lines * per_line_s)
    assert lines == pytest.approx((PACE_S - overhead_s) / per_line_s, rel=0.1)


@pytest.mark.parametrize(("seconds", "ends_at"), [(60.0, PACED_LINES_MIN), (0.0, PACED_LINES_MAX)])
def test_the_pace_has_bounds(seconds: float, ends_at: int) -> None:
    of = admission()
    for _ in range(30):
        of.counted(sum(taken(of, {OLD: 5_000_000, NEW: 10}).values()), seconds)
    assert taken(of, {OLD: 5_000_000, NEW: 10})[OLD] == pytest.approx(ends_at, abs=10)


def test_batches_that_were_not_paced_say_nothing_about_the_pace() -> None:
    of = admission()
    taken(of, {OLD: 5_000_000, NEW: 0})
    of.counted(LINES_MAX, 6.0)
    assert sum(taken(of, {OLD: 5_000_000, NEW: 10}).values()) == PACED_LINES_FIRST


def test_a_configured_size_smaller_than_the_pace_holds() -> None:
    of = Admission(100)
    assert taken(of, {OLD: 5_000, NEW: 10}) == {OLD: 90, NEW: 10}
    of.counted(100, 60.0)
    assert sum(taken(of, {OLD: 5_000, NEW: 10}).values()) == 100


def test_on_a_cluster_a_large_batch_follows_the_cores_of_its_executors() -> None:
    of = Admission(10 * LINES_PER_CORE)
    waiting = {OLD: 50 * LINES_PER_CORE, NEW: 0}
    assert taken(of, waiting, cores=2)[OLD] == 2 * LINES_PER_CORE
    assert taken(of, waiting, cores=6)[OLD] == 6 * LINES_PER_CORE
    assert taken(of, waiting, cores=99)[OLD] == 10 * LINES_PER_CORE, "but for the driver's memory"


@pytest.mark.parametrize(("cores", "ends_at"), [(1, 20_000), (16, 16 * PACED_LINES_PER_CORE)])
def test_on_a_cluster_a_paced_batch_may_grow_with_the_cores(cores: int, ends_at: int) -> None:
    of = Admission(10 * LINES_PER_CORE)
    for _ in range(30):
        of.counted(sum(taken(of, {OLD: 5_000_000, NEW: 10}, cores=cores).values()), 0.0)
    assert taken(of, {OLD: 5_000_000, NEW: 10}, cores=cores)[OLD] == pytest.approx(ends_at, abs=10)
    assert taken(of, {OLD: 5_000_000, NEW: 10}, cores=1)[OLD] <= 20_000, "executors were lost"


def test_on_a_cluster_a_paced_batch_has_time_for_its_job() -> None:
    of = Admission(10 * LINES_PER_CORE)
    overhead_s, per_line_s = 0.25, 20e-6
    lines = 0
    for _ in range(30):
        lines = sum(taken(of, {OLD: 5_000_000, NEW: 10}, cores=4).values())
        of.counted(lines, overhead_s + lines * per_line_s)
    assert lines == pytest.approx((CLUSTER_PACE_S - overhead_s) / per_line_s, rel=0.1)


def test_where_a_partition_appears_the_source_decides() -> None:
    assert admission().ends({OLD: 5}, {OLD: 9, NEW: 3}, 0.0) is None


def test_an_end_that_fell_back_is_not_hidden() -> None:
    for more in (5, 900_000):
        ends = admission().ends({OLD: 50, NEW: 0}, {OLD: 20, NEW: more}, 0.0)
        assert ends is not None
        assert ends[OLD] == 20, "and the source itself says that lines are gone"


def test_fair_parts_at_random() -> None:
    chance = seeded("fair parts")
    for _ in range(500):
        waiting = {
            ("t", place): int(10 ** chance.uniform(0, 7)) * chance.randrange(2)
            for place in range(chance.randrange(1, 9))
        }
        lines_max = chance.randrange(1, 300_000)
        part = fair_part(waiting, lines_max)
        if part is None:
            assert sum(waiting.values()) <= lines_max
            continue
        assert sum(waiting.values()) > lines_max
        total = sum(min(lines, part) for lines in waiting.values())
        assert total <= max(lines_max, len(waiting))
        assert total > lines_max - len(waiting) or part == 1, "nothing is left unused"


def test_partitions_keep_up_that_were_taken_whole_twice_in_a_row() -> None:
    """One batch that takes all lines of a partition proves nothing, because these lines may have
    waited behind others."""
    of = admission()
    taken(of, {OLD: 5_000_000, NEW: 300})
    assert of.kept_up == frozenset(), "nothing is known of what was before"
    taken(of, {OLD: 4_000_000, NEW: 300})
    assert of.kept_up == {NEW}
    taken(of, {OLD: 10, NEW: 0})
    assert of.kept_up == {NEW}, "the last lines of a backlog are old"
    taken(of, {OLD: 10, NEW: 5_000_000})
    assert of.kept_up == {OLD}


def test_nothing_keeps_up_where_a_partition_appears() -> None:
    of = admission()
    for _ in range(2):
        taken(of, {OLD: 5})
    assert of.kept_up == {OLD}
    assert of.ends({OLD: 5}, {OLD: 10, NEW: 3}, 0.0) is None
    assert of.kept_up == frozenset()
