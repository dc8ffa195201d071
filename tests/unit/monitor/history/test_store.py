"""The history file: its levels, gaps and limits, and what is left after a restart or damage."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from monitor.__main__ import recorder_of
from monitor.alerts.core import Alerts
from monitor.config.settings import MonitorSection, MonitorSettings
from monitor.history import store as stores
from monitor.history.recorder import FILE_NAME, open_recorder
from monitor.history.store import Store
from monitor.state.alert import Alert, Kind
from monitor.state.levels import DAY_MS, LEVELS, Event
from monitor.state.snapshot import Snapshot
from tests.harness.mounts import Tmpfs

FINE, MINUTE, TENTH = LEVELS
BEGIN_MS = 1_800_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Tmpfs]:
    with Tmpfs(tmp_path / "small", 2) as mounted:
        yield mounted


def fill(store: Store, begin_ms: int, buckets: int) -> None:
    for number in range(buckets):
        at_ms = begin_ms + number * FINE.step_ms
        store.add(at_ms, {"lag": [number, number + 2.0]})


def test_levels_roll_up_with_mean_least_and_most(path: Path) -> None:
    store = Store(path, 90 * DAY_MS)
    fill(store, BEGIN_MS, 240)
    fine = store.read(["lag"], BEGIN_MS, BEGIN_MS + 60_000, FINE)["lag"]
    assert fine[:2] == [(BEGIN_MS, 1.0, 0.0, 2.0), (BEGIN_MS + 5_000, 2.0, 1.0, 3.0)]
    minutes = store.read(["lag"], BEGIN_MS, BEGIN_MS + DAY_MS, MINUTE)["lag"]
    assert len(minutes) == 20
    assert minutes[0] == (BEGIN_MS, 6.5, 0.0, 13.0)
    tenths = store.read(["lag"], BEGIN_MS, BEGIN_MS + DAY_MS, TENTH)["lag"]
    assert tenths == [(BEGIN_MS, 60.5, 0.0, 121.0), (BEGIN_MS + 600_000, 180.5, 120.0, 241.0)]


def test_a_restart_goes_on_where_the_levels_stood(path: Path) -> None:
    store = Store(path, 90 * DAY_MS)
    fill(store, BEGIN_MS, 7)
    store.close()
    store = Store(path, 90 * DAY_MS)
    fill(store, BEGIN_MS + 7 * FINE.step_ms, 5)
    (minute,) = store.read(["lag"], BEGIN_MS, BEGIN_MS + 60_000, MINUTE)["lag"]
    assert (minute[2], minute[3]) == (0.0, 8.0), "the bucket that was filling is whole"
    assert store.last_ms() == BEGIN_MS + 11 * FINE.step_ms


def test_a_time_without_data_stays_without(path: Path) -> None:
    store = Store(path, 90 * DAY_MS)
    fill(store, BEGIN_MS, 12)
    fill(store, BEGIN_MS + 600_000, 12)
    moments = [point[0] for point in store.read(["lag"], 0, 2 * BEGIN_MS, MINUTE)["lag"]]
    assert moments == [BEGIN_MS, BEGIN_MS + 600_000]


def test_old_rows_go_as_retain_says(path: Path) -> None:
    store = Store(path, 2 * DAY_MS)
    fill(store, BEGIN_MS, 120)
    store.note([Event(BEGIN_MS, "part", "stream restarted", True)])
    store.purge(BEGIN_MS + DAY_MS)
    assert store.read(["lag"], 0, 2 * BEGIN_MS, FINE)["lag"] == []
    assert len(store.read(["lag"], 0, 2 * BEGIN_MS, MINUTE)["lag"]) == 10
    assert len(store.events(0, 2 * BEGIN_MS, 10)) == 1
    store.purge(BEGIN_MS + 3 * DAY_MS)
    assert store.read(["lag"], 0, 2 * BEGIN_MS, MINUTE)["lag"] == []
    assert store.read(["lag"], 0, 2 * BEGIN_MS, TENTH)["lag"] == []
    assert store.events(0, 2 * BEGIN_MS, 10) == []


def test_the_file_has_a_bound_and_the_finest_rows_go_first(path: Path) -> None:
    store = Store(path, 90 * DAY_MS, bytes_max=200_000)
    names = [f"cell.{number}" for number in range(100)]
    for number in range(60):
        store.add(BEGIN_MS + number * FINE.step_ms, {name: [1.0] for name in names})
    assert store.facts().size_bytes > 200_000
    minutes = store.read(names[:1], 0, 2 * BEGIN_MS, MINUTE)
    store.purge(BEGIN_MS + 300_000)
    assert store.facts().size_bytes <= 200_000
    assert store.read(names[:1], 0, 2 * BEGIN_MS, MINUTE) == minutes


def test_series_beyond_the_limit_are_dropped_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "SERIES_MAX", 2)
    store = Store(path, DAY_MS)
    store.add(BEGIN_MS, {"a": [1.0], "b": [1.0], "c": [1.0]})
    assert store.names() == ["a", "b"]
    assert store.facts().dropped == 1
    store.purge(BEGIN_MS + 2 * DAY_MS)
    store.add(BEGIN_MS + 2 * DAY_MS, {"c": [1.0]})
    assert store.names() == ["c"], "series without a bucket made room"


def test_a_damaged_file_is_put_aside(path: Path) -> None:
    store = Store(path, DAY_MS)
    fill(store, BEGIN_MS, 100)
    store.close()
    path.write_bytes(b"no database at all" * 100)
    again = Store(path, DAY_MS)
    assert again.was_damaged
    assert again.names() == []
    assert path.with_name("history.db.damaged").exists()
    fill(again, BEGIN_MS, 1)
    assert again.last_ms() == BEGIN_MS


def test_events_come_newest_first(path: Path) -> None:
    store = Store(path, DAY_MS)
    store.note([Event(5, "a", "first"), Event(5, "a", "second", True), Event(9, "b", "third")])
    assert [one.text for one in store.events(0, 100, 2)] == ["third", "second"]


ALERT = Alert("lag", Kind.LAG, "g", 5, "7 wait", "/groups/g", 7.0, None, 6, 7)


def test_alerts_are_kept_over_a_restart_and_only_the_last_ones(path: Path) -> None:
    store = Store(path, 90 * DAY_MS)
    store.keep_alerts([ALERT, replace(ALERT, subject="h", value=None, closed_at_ms=9)])
    store.close()
    again = Store(path, 90 * DAY_MS)
    assert again.alerts() == [ALERT, replace(ALERT, subject="h", value=None, closed_at_ms=9)]
    again.keep_alerts([])
    assert again.alerts() == []


def test_an_alert_of_a_kind_that_is_no_more_is_left_out(path: Path) -> None:
    store = Store(path, 90 * DAY_MS)
    store.keep_alerts([ALERT])
    with sqlite3.connect(path) as other:
        other.execute("UPDATE alerts SET kind = 'weather'")
    assert store.alerts() == []


def test_a_recorder_forgets_what_a_process_before_kept(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path, 90 * DAY_MS, "g")
    recorder.store.keep_alerts([ALERT])
    recorder.take(Snapshot(1, BEGIN_MS, 2_000, "b"), ())
    assert recorder.store.alerts() == []
    recorder.take(Snapshot(2, BEGIN_MS + 2_000, 2_000, "b"), (ALERT,))
    recorder.take(Snapshot(3, BEGIN_MS + 4_000, 2_000, "b"), (replace(ALERT, value=9.0),))
    assert recorder.store.alerts() == [ALERT], "a value alone is not worth a write"
    recorder.store.close()


def test_a_full_disk_costs_neither_the_history_nor_the_page(small_disk: Tmpfs) -> None:
    """The disk is full at two starts of the monitor. Neither start may take the history for damaged
    or replace it."""
    path = small_disk.folder / FILE_NAME
    store = Store(path, DAY_MS)
    fill(store, BEGIN_MS, 100)
    store.keep_alerts([ALERT])
    store.close()
    rest = small_disk.folder / "rest"
    with suppress(OSError), rest.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    settings = MonitorSettings(
        section=MonitorSection(), bootstrap_servers="", parts={}, data_dir=str(small_disk.folder)
    )
    for _ in range(2):
        recorder, problem = recorder_of(settings, Alerts(()))
        assert recorder is None
        assert problem is not None
        assert "cannot be opened: d" in problem, "the disk, or the database on it"
    assert {one.name for one in small_disk.folder.iterdir()} >= {FILE_NAME}
    assert not path.with_name(f"{FILE_NAME}.damaged").exists()
    rest.unlink()
    recorder, problem = recorder_of(settings, Alerts(()))
    assert recorder is not None
    assert problem is None
    assert recorder.store.last_ms() == BEGIN_MS + 99 * FINE.step_ms
    recorder.store.close()


def test_a_file_that_another_process_holds_is_not_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "monitor.history.store.sqlite3.connect", partial(sqlite3.connect, timeout=0.0)
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            Store(path, DAY_MS)
    assert not path.with_name("history.db.damaged").exists()


def test_a_clock_that_ran_ahead_once_does_not_stop_the_coarser_levels(path: Path) -> None:
    store = Store(path, 90 * DAY_MS)
    fill(store, BEGIN_MS + 365 * DAY_MS, 240)
    fill(store, BEGIN_MS, 240)
    assert len(store.read(["lag"], BEGIN_MS, BEGIN_MS + DAY_MS, MINUTE)["lag"]) == 20
    assert len(store.read(["lag"], BEGIN_MS, BEGIN_MS + DAY_MS, TENTH)["lag"]) == 2
