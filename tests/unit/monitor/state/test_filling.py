"""The time until a disk is full, estimated from the history of its free space."""

import random
from pathlib import Path

import pytest

from monitor.api.rows import disk_row
from monitor.history.recorder import Recorder
from monitor.history.series import disk_series
from monitor.history.store import Store
from monitor.state.filling import HOUR_MS, Filling, Room, filling_of
from monitor.state.levels import DAY_MS
from monitor.state.snapshot import DiskView, Snapshot
from monitor.views.findings import findings_of

NOW_MS = 1_785_600_000_000
GIB = 1 << 30
SIZE = 100 * GIB


def rooms(hours: int, a_day: float, free_now: float = 20 * GIB) -> list[Room]:
    """Return a reading of free space every ten minutes, for these hours up to now, at a constant
    rate."""
    looks = hours * 6
    return [
        (NOW_MS - ago * HOUR_MS // 6, free_now + ago * a_day / 144) for ago in range(looks, -1, -1)
    ]


def a_day(given: list[Room]) -> float:
    found = filling_of(given, SIZE, NOW_MS)
    assert found is not None
    return found.bytes_a_day


def test_an_even_pace_is_told_and_how_long_the_room_lasts() -> None:
    found = filling_of(rooms(72, GIB), SIZE, NOW_MS)
    assert found is not None
    assert found.bytes_a_day == pytest.approx(GIB, rel=1e-9)
    assert found.reach_ms == pytest.approx(3 * DAY_MS, abs=HOUR_MS)
    assert found.days_left(20 * GIB) == pytest.approx(20)


def test_a_disk_that_does_not_fill_lasts_for_ever() -> None:
    for pace in (0.0, -GIB):
        found = filling_of(rooms(72, pace), SIZE, NOW_MS)
        assert found is not None
        assert found.days_left(20 * GIB) is None


def test_too_short_a_history_says_nothing() -> None:
    assert filling_of([], SIZE, NOW_MS) is None
    assert filling_of(rooms(0, GIB), SIZE, NOW_MS) is None
    assert filling_of(rooms(22, GIB), SIZE, NOW_MS) is None
    assert filling_of(rooms(26, GIB), SIZE, NOW_MS) is not None


def test_a_handful_of_looks_far_from_each_other_says_nothing() -> None:
    assert filling_of(rooms(160, GIB)[::144], SIZE, NOW_MS) is None


def test_a_history_that_ended_hours_ago_says_nothing_of_today() -> None:
    assert filling_of(rooms(72, GIB), SIZE, NOW_MS + 3 * HOUR_MS) is None


def test_what_is_older_than_a_week_is_past() -> None:
    fast = [(at_ms - 8 * DAY_MS, free) for at_ms, free in rooms(160, 9 * GIB, 60 * GIB)]
    assert a_day([*fast, *rooms(160, GIB)]) == pytest.approx(GIB, rel=1e-6)


def test_a_gap_without_looks_changes_no_pace() -> None:
    given = rooms(160, GIB)
    assert a_day(given[:300] + given[700:]) == pytest.approx(GIB, rel=1e-6)


def test_a_disk_that_was_cleaned_is_judged_from_then_on() -> None:
    given = [
        (at_ms, free - 30 * GIB if at_ms < NOW_MS - 2 * DAY_MS else free)
        for at_ms, free in rooms(160, GIB, 40 * GIB)
    ]
    found = filling_of(given, SIZE, NOW_MS)
    assert found is not None
    assert found.bytes_a_day == pytest.approx(GIB, rel=1e-6)
    assert found.reach_ms <= 2 * DAY_MS
    # The disk was cleaned up half a day ago. Less than a day has been seen since, so there is no
    # forecast.
    fresh = [
        (at_ms, free - 30 * GIB if at_ms < NOW_MS - DAY_MS // 2 else free)
        for at_ms, free in rooms(160, GIB, 40 * GIB)
    ]
    assert filling_of(fresh, SIZE, NOW_MS) is None


def test_room_that_retention_gives_back_counts_against_what_is_written() -> None:
    # The space written in six hours is freed again, so on average the free space does not change.
    given = [
        (at_ms, 20 * GIB - GIB * (at_ms % (6 * HOUR_MS)) / (6 * HOUR_MS))
        for at_ms, _ in rooms(160, 0)
    ]
    assert abs(a_day(given)) < 0.05 * GIB


def test_a_large_file_that_lay_there_for_a_while_says_little() -> None:
    given = [
        (at_ms, free - 4 * GIB if 0 < NOW_MS - at_ms < 8 * HOUR_MS else free)
        for at_ms, free in rooms(160, 0.5 * GIB)
    ]
    assert a_day(given) == pytest.approx(0.5 * GIB, rel=0.15)


def test_noise_hides_no_pace() -> None:
    chance = random.Random(7)
    given = [(at_ms, free + chance.gauss(0, GIB / 4)) for at_ms, free in rooms(160, GIB)]
    assert a_day(given) == pytest.approx(GIB, rel=0.05)


def test_days_are_those_of_the_room_there_is() -> None:
    assert Filling(2.0 * GIB, DAY_MS).days_left(10 * GIB) == 5.0


def recorder(folder: Path, seen: list[Room]) -> Recorder:
    """Return a recorder whose history has these readings of a disk."""
    store = Store(folder / "history.db", 90 * DAY_MS)
    for at_ms, free in seen:
        store.add(at_ms, {disk_series("data"): [free]})
    return Recorder(store, "millrace-stream")


def snapshot(free: int = 20 * GIB) -> Snapshot:
    return Snapshot(1, NOW_MS, 2_000, "b:1", disks=(DiskView("data", free, SIZE),))


def looked(folder: Path, seen: list[Room]) -> Snapshot:
    """Let the recorder read its history, and return the next snapshot with the forecast."""
    one = recorder(folder, seen)
    one.take(snapshot())
    found = Snapshot(2, NOW_MS, 2_000, "b:1", disks=one.with_fillings(snapshot().disks))
    assert one.problem is None
    one.store.close()
    return found


def test_the_monitor_tells_from_its_history_how_long_a_disk_lasts(tmp_path: Path) -> None:
    found = looked(tmp_path, rooms(72, GIB))
    (disk,) = found.disks
    assert disk.days_left == pytest.approx(20, rel=0.01)
    row = disk_row(disk)
    assert (row["days_left"], row["disk"]) == (pytest.approx(20, rel=0.01), "data")
    (finding,) = [one for one in findings_of(found, "g") if one.badge == "disk fills"]
    assert finding.level == "warn"
    assert finding.lead == "The disk of data is full in 20.0 days"
    assert finding.text == " at the pace of the last 3.0 days."


def test_a_young_history_and_a_disk_that_lasts_make_no_finding(tmp_path: Path) -> None:
    young = looked(tmp_path / "young", rooms(12, GIB))
    assert disk_row(young.disks[0])["bytes_a_day"] is None
    lasting = looked(tmp_path / "lasting", rooms(72, GIB / 2))
    assert lasting.disks[0].days_left == pytest.approx(40, rel=0.01)
    for one in (young, lasting):
        assert "disk fills" not in [finding.badge for finding in findings_of(one, "g")]
