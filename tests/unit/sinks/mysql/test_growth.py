"""How fast the number of rows grows, and how long it takes until the disk is full."""

import pytest

from sinks.mysql.growth import (
    DAY_S,
    Growth,
    GrowthPerDay,
    SizeRows,
    TableSize,
    days_left,
    growth_of,
)

NOW_S = 1_785_600_000


def one(rows_a_day: float, kept_days: float | None, rows: int = 0) -> Growth:
    return Growth("m", rows, 1, (GrowthPerDay(60, rows, rows_a_day, kept_days),))


def test_a_pace_is_that_of_the_windows_that_began_lately() -> None:
    since_s = NOW_S - 2 * DAY_S
    stored = TableSize(
        [
            SizeRows("paths", 60, 10_000, 4_000, since_s),
            SizeRows("paths", 0, 500, 0, None),
            SizeRows("old", 60, 1_500, 0, None),
        ],
        table_bytes=1_200_000,
    )
    kept_s: dict[str, dict[int, int | None]] = {
        "paths": {60: 30 * DAY_S, 0: None},
        "old": {60: 90 * DAY_S},
    }
    paths, old = growth_of(stored, kept_s, NOW_S)
    minutes, totals = GrowthPerDay(60, 10_000, 2_000.0, 30.0), GrowthPerDay(0, 500, 0.0, None)
    assert paths == Growth("paths", 10_500, 1_050_000, (minutes, totals))
    assert paths.rows_a_day == 2_000.0
    assert old == Growth("old", 1_500, 150_000, (GrowthPerDay(60, 1_500, 0.0, 90.0),))


def test_a_pace_of_minutes_is_not_taken_for_one_of_days() -> None:
    stored = TableSize([SizeRows("paths", 60, 600, 600, NOW_S - 60)], 60_000)
    (paths,) = growth_of(stored, {}, NOW_S)
    assert paths.rows_a_day == 600 * 24


def test_nothing_stored_is_no_fault() -> None:
    assert growth_of(TableSize([], 16_384), {}, NOW_S) == ()
    assert days_left([], 0.0, 10**9) is None


@pytest.mark.parametrize(
    ("growths", "days"),
    [
        ([one(1_000, None)], 10.0),
        ([one(1_000, 9.0)], None),
        ([one(1_000, 11.0)], 10.0),
        # For five days both metrics grow, and then only the metric that is kept forever.
        ([one(500, 5.0), one(500, None)], 15.0),
        ([one(0, None)], None),
        # Eleven days are kept, and five days of rows exist. So this metric grows for only six more
        # days.
        ([one(1_000, 11.0, rows=5_000)], None),
        # There are more rows than eleven days bring. The purge has not deleted the oldest ones yet.
        ([one(1_000, 11.0, rows=50_000)], None),
    ],
)
def test_days_end_where_what_is_kept_for_ever_fills_the_disk(
    growths: list[Growth], days: float | None
) -> None:
    assert days_left(growths, bytes_per_row=100.0, free_bytes=1_000_000) == days
