"""Writes snapshots into the history: means of five seconds, and events. Deletes old rows.

A bucket is the time of one mean. Buckets are filled in memory and written by one thread when they
are complete. If the history cannot be written, the monitor reports a problem, and the pages work
without new history.
"""

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from monitor.history.series import disk_series, events_between, samples_of
from monitor.history.store import Store
from monitor.state.alert import Alert
from monitor.state.filling import REACH_MS, Filling, Room, filling_of
from monitor.state.levels import LEVELS, Event
from monitor.state.snapshot import DiskView, Snapshot
from monitor.views import render
from protocol.log import fields

PURGE_EVERY_MS = 60_000
FILLING_EVERY_MS = 600_000
GAP_MS_MIN = 30_000
FILE_NAME = "history.db"

logger = logging.getLogger(__name__)


class Recorder:
    """Records snapshots. Call `take` with every snapshot, from one thread at a time."""

    def __init__(self, store: Store, stream_group: str) -> None:
        self.store = store
        self.problem: str | None = None
        self._stream_group = stream_group
        self._bucket_ms = 0
        self._bucket: dict[str, list[float]] = {}
        self._last: Snapshot | None = None
        self._kept: tuple[Alert, ...] | None = None
        self._purged_at_ms = 0
        self._filled_at_ms = 0
        self._fillings: dict[str, Filling | None] = {}

    def with_fillings(self, disks: Sequence[DiskView]) -> tuple[DiskView, ...]:
        """Return the disks with the pace at which each fills, as last computed from the history."""
        return tuple(replace(disk, filling=self._fillings.get(disk.name)) for disk in disks)

    def take(self, snapshot: Snapshot, kept: Sequence[Alert] = ()) -> None:
        """Add one snapshot, and store the alerts that the next process must restore.

        Wait for the disk.
        """
        try:
            self._take(snapshot)
            self._keep(kept)
        except sqlite3.Error as error:
            self.problem = f"the history cannot be written: {error}"
            logger.warning("the history cannot be written", extra=fields(why=error))
            self._bucket = {}
        else:
            self.problem = None
        self._last = snapshot

    def _take(self, snapshot: Snapshot) -> None:
        now_ms = snapshot.taken_at_ms
        events = events_between(self._last, snapshot)
        if self._last is None:
            events = [*self._start_events(now_ms), *events]
        if events:
            self.store.note(events)
        bucket_ms = now_ms // LEVELS[0].step_ms * LEVELS[0].step_ms
        if bucket_ms != self._bucket_ms:
            bucket, self._bucket = self._bucket, {}
            begin_ms, self._bucket_ms = self._bucket_ms, bucket_ms
            if bucket:
                self.store.add(begin_ms, bucket)
        for name, value in samples_of(snapshot, self._stream_group).items():
            self._bucket.setdefault(name, []).append(value)
        if now_ms - self._purged_at_ms >= PURGE_EVERY_MS:
            self._purged_at_ms = now_ms
            self.store.purge(now_ms)
        if now_ms - self._filled_at_ms >= FILLING_EVERY_MS:
            self._filled_at_ms = now_ms
            self._fillings = {
                disk.name: filling_of(self._rooms(disk.name, now_ms), disk.size_bytes, now_ms)
                for disk in snapshot.disks
            }

    def _rooms(self, disk: str, now_ms: int) -> list[Room]:
        name = disk_series(disk)
        points = self.store.read([name], now_ms - REACH_MS, now_ms, LEVELS[-1])[name]
        return [(at_ms, mean) for at_ms, mean, _, _ in points]

    def _keep(self, alerts: Sequence[Alert]) -> None:
        """Write the alerts if one has opened, closed or been sent."""
        states = tuple(replace(one, text="", page="", value=None) for one in alerts)
        if states != self._kept:
            self.store.keep_alerts(alerts)
            self._kept = states

    def _start_events(self, now_ms: int) -> list[Event]:
        """Return events for the start of the monitor and for the time it did not run."""
        if self.store.was_damaged:
            return [Event(now_ms, "gap", "the history was damaged and a new one was begun", True)]
        last_ms = self.store.last_ms()
        if last_ms is None:
            return [Event(now_ms, "gap", "the monitor was started for the first time", False)]
        away_ms = now_ms - last_ms - LEVELS[0].step_ms
        if away_ms < GAP_MS_MIN:
            return [Event(now_ms, "gap", "the monitor was restarted", False)]
        text = f"the monitor was restarted; no data for {render.duration(away_ms)}"
        return [Event(last_ms + LEVELS[0].step_ms, "gap", text, True)]


def open_recorder(data_dir: Path, retain_ms: int, stream_group: str) -> Recorder:
    """Open the recorder over the file in the data folder. Raise OSError or sqlite3.Error."""
    return Recorder(Store(data_dir / FILE_NAME, retain_ms), stream_group)
