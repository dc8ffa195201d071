"""Windows in local time agree with the time zone database at every moment."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sinks.cells.merge import window_start
from sinks.local_time import DAY_S, HOUR_S, local_zone
from tests.harness.seed import seeded

ZONES = [
    "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata",
    "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Atlantic/Azores", "Pacific/Apia",
    "Africa/Casablanca", "America/St_Johns", "Asia/Tokyo", "+05:30", "-03:30",
]  # fmt: skip
SIZES = [600, 1_800, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, DAY_S]


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def days(name: str, first: str, count: int) -> list[str]:
    """Return the starts (in UTC) of consecutive local days. The first day contains `first`."""
    zone = local_zone(name)
    at_s, found = utc(first), []
    for _ in range(count):
        start_s = zone.window_start(at_s, DAY_S)
        found.append(datetime.fromtimestamp(start_s, UTC).strftime("%m-%d %H:%M"))
        at_s = start_s + DAY_S + 2 * HOUR_S
    return found


def test_a_local_day_has_23_24_or_25_hours() -> None:
    assert days("Europe/Berlin", "2024-03-30T12:00", 4) == [
        "03-29 23:00", "03-30 23:00", "03-31 22:00", "04-01 22:00",
    ]  # fmt: skip
    assert days("Europe/Berlin", "2024-10-26T12:00", 3) == [
        "10-25 22:00", "10-26 22:00", "10-27 23:00",
    ]  # fmt: skip
    assert days("America/New_York", "2024-11-03T12:00", 2) == ["11-03 04:00", "11-04 05:00"]
    assert days("Asia/Kolkata", "2024-07-01T12:00", 2) == ["06-30 18:30", "07-01 18:30"]


def test_a_day_without_a_midnight_begins_with_its_first_moment() -> None:
    # In Brazil, clocks went from 00:00 to 01:00 on 4 November 2018.
    assert days("America/Sao_Paulo", "2018-11-03T12:00", 3) == [
        "11-03 03:00", "11-04 03:00", "11-05 02:00",
    ]  # fmt: skip


def test_an_hour_that_occurs_twice_is_two_windows_and_a_quarter_of_a_day_is_one() -> None:
    zone = local_zone("Europe/Berlin")
    first, second = utc("2024-10-27T00:30"), utc("2024-10-27T01:30")
    assert zone.window_start(first, HOUR_S) == utc("2024-10-27T00:00")
    assert zone.window_start(second, HOUR_S) == utc("2024-10-27T01:00")
    for moment in (first, second):
        assert zone.window_start(moment, 6 * HOUR_S) == utc("2024-10-26T22:00")


def test_hours_of_a_half_hour_zone() -> None:
    zone = local_zone("Asia/Kathmandu")
    assert zone.window_start(utc("2024-07-01T10:00"), HOUR_S) == utc("2024-07-01T09:15")
    zone = local_zone("Australia/Lord_Howe")
    # Clocks go from 02:00 (+10:30) to 02:30 (+11), so the window of that hour has only its second
    # half.
    assert zone.window_start(utc("2024-10-05T15:45"), HOUR_S) == utc("2024-10-05T15:30")
    assert zone.window_start(utc("2024-10-05T15:15"), HOUR_S) == utc("2024-10-05T14:30")


@pytest.mark.parametrize("name", ZONES)
def test_every_moment_is_in_the_window_of_its_own_clock(name: str) -> None:
    table = local_zone(name)
    rng = seeded(f"local windows {name}")
    moments = [rng.randrange(utc("2100-01-01T00:00")) for _ in range(300)]
    moments += [begin + rng.randrange(-90_000, 90_000) for begin in table.begins[1:] for _ in "123"]
    offset = table.offsets[0]
    zone = ZoneInfo(name) if name[0] not in "+-" else None
    for at_s in moments:
        if zone is not None:
            local = datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)
        else:
            local = datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)
            local += timedelta(seconds=offset)
        assert table.window_start(at_s, DAY_S) >= 0
        if at_s > 2 * DAY_S:
            start = datetime.fromtimestamp(table.window_start(at_s, DAY_S), zone or UTC)
            begun: date = (start if zone else start + timedelta(seconds=offset)).date()
            assert begun == local.date()
        for size_s in SIZES:
            start_s = table.window_start(at_s, size_s)
            assert start_s <= at_s < start_s + size_s + DAY_S
            # A start is in its own window. Slices whose size divides the window's size lead to the
            # same window.
            assert table.window_start(start_s, size_s) == start_s
            for slice_s in (600, HOUR_S, 2 * HOUR_S):
                if size_s % slice_s == 0:
                    inner = table.window_start(at_s, slice_s)
                    assert table.window_start(inner, size_s) == start_s


def test_without_a_zone_windows_are_those_of_utc() -> None:
    assert window_start(100_000, DAY_S) == DAY_S
    assert window_start(100_000, DAY_S, local_zone("+02:00")) == DAY_S - 2 * HOUR_S
    assert window_start(100_000, 0, local_zone("+02:00")) == 0
    assert window_start(3_000, DAY_S, local_zone("+02:00")) == 0
