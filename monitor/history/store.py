"""The history on disk: SQLite with three levels of means, each with its minimum and maximum.

Only this module of the monitor writes to the disk. Means over 5 s are kept for 6 hours, over a
minute for 7 days, over ten minutes for as long as `retain` says. Each level is computed from the
finer one, so that a restart loses only the bucket in progress.

Rows are `(series, time)` without a row id, about 30 bytes. The file has a maximum size; when it is
reached, the finest rows are deleted first. A damaged file is renamed and a new one is made. A file
that cannot be opened for another reason is left as it is.
"""

import itertools
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from monitor.state.alert import Alert, Kind
from monitor.state.levels import LEVELS, Event, Level, Point

STORE_BYTES_MAX = 512 * 1024 * 1024
SERIES_MAX = 4_000
EVENTS_MAX = 10_000
HALVINGS_MAX = 6

PRIMARY_CODE = 0xFF
"""The mask for the primary code of an SQLite error. The other bits make the code more precise."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The size of the history, and the time of its oldest row."""

    size_bytes: int
    oldest_ms: int | None
    series: int
    dropped: int


class Store:
    """The history file. Any thread may call its methods, one at a time.

    Raises OSError and sqlite3.Error if the file cannot be opened.
    """

    def __init__(self, path: Path, retain_ms: int, *, bytes_max: int = STORE_BYTES_MAX) -> None:
        self._path = path
        self._retain_ms = retain_ms
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._dropped = 0
        self._damaged = False
        self._database = self._open()
        self._series = {
            str(name): int(number)
            for number, name in self._database.execute("SELECT id, name FROM series")
        }

    @property
    def was_damaged(self) -> bool:
        """True if the file was damaged at the start.

        Then it was renamed and a new file was created.
        """
        return self._damaged

    def close(self) -> None:
        """Close the file; call no method afterwards."""
        with self._lock:
            self._database.close()

    def add(self, at_ms: int, values: Mapping[str, Sequence[float]]) -> None:
        """Store the finest bucket that begins at `at_ms`: for each series all of its samples."""
        rows = []
        with self._lock, self._database:
            for name, samples in values.items():
                number = self._number(name)
                if number is not None and samples:
                    mean = sum(samples) / len(samples)
                    rows.append((number, at_ms, mean, min(samples), max(samples)))
            self._database.executemany(
                "INSERT OR REPLACE INTO points_5s VALUES (?, ?, ?, ?, ?)", rows
            )
            for finer, coarser in itertools.pairwise(LEVELS):
                self._roll_up(finer, coarser, at_ms + LEVELS[0].step_ms)

    def note(self, events: Sequence[Event]) -> None:
        """Store events."""
        with self._lock, self._database:
            self._database.executemany(
                "INSERT INTO events (at_ms, kind, text, mark) VALUES (?, ?, ?, ?)",
                [(one.at_ms, one.kind, one.text, int(one.mark)) for one in events],
            )

    def purge(self, now_ms: int) -> None:
        """Delete rows that are too old, and the finest rows if the file is too large."""
        with self._lock:
            with self._database:
                for level in LEVELS:
                    keep_ms = min(level.keep_ms or self._retain_ms, self._retain_ms)
                    self._database.execute(
                        f"DELETE FROM {level.table} WHERE at_ms < ?", (now_ms - keep_ms,)
                    )
                self._database.execute(
                    "DELETE FROM events WHERE at_ms < ? OR id <= (SELECT MAX(id) FROM events) - ?",
                    (now_ms - self._retain_ms, EVENTS_MAX),
                )
            self._vacuum()
            for level in LEVELS:
                self._shrink(level)
            if len(self._series) >= SERIES_MAX:
                self._forget_series()

    def read(
        self, names: Sequence[str], from_ms: int, to_ms: int, level: Level
    ) -> dict[str, list[Point]]:
        """Return the buckets of some series between two moments, oldest first."""
        found: dict[str, list[Point]] = {name: [] for name in names}
        with self._lock:
            for name in names:
                number = self._series.get(name)
                if number is not None:
                    found[name] = self._database.execute(
                        f"SELECT at_ms, mean, least, most FROM {level.table}"
                        " WHERE series = ? AND at_ms >= ? AND at_ms < ? ORDER BY at_ms",
                        (number, from_ms, to_ms),
                    ).fetchall()
        return found

    def names(self) -> list[str]:
        """Return the names of all series."""
        with self._lock:
            return sorted(self._series)

    def events(self, from_ms: int, to_ms: int, limit: int) -> list[Event]:
        """Return the last events between two moments, newest first."""
        with self._lock:
            rows = self._database.execute(
                "SELECT at_ms, kind, text, mark FROM events WHERE at_ms >= ? AND at_ms < ?"
                " ORDER BY at_ms DESC, id DESC LIMIT ?",
                (from_ms, to_ms, limit),
            ).fetchall()
        return [Event(at_ms, kind, text, bool(mark)) for at_ms, kind, text, mark in rows]

    def keep_alerts(self, alerts: Sequence[Alert]) -> None:
        """Store these alerts in place of those stored before."""
        with self._lock, self._database:
            self._database.execute("DELETE FROM alerts")
            self._database.executemany(
                "INSERT INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (one.rule, str(one.kind), one.subject, one.opened_at_ms, one.text, one.page,
                     one.value, one.closed_at_ms, one.offered_at_ms, one.told_at_ms)
                    for one in alerts
                ],
            )  # fmt: skip

    def alerts(self) -> list[Alert]:
        """Return the stored alerts; leave out alerts of kinds that no longer exist."""
        with self._lock:
            rows = self._database.execute("SELECT * FROM alerts ORDER BY opened_at_ms").fetchall()
        kinds = set(Kind)
        return [Alert(row[0], Kind(row[1]), *row[2:]) for row in rows if row[1] in kinds]

    def last_ms(self) -> int | None:
        """Return the start time of the last stored bucket; None if there is none."""
        with self._lock:
            return self._one("SELECT MAX(at_ms) FROM points_5s")

    def facts(self) -> StoreFacts:
        """Return the size of the file and the time of its oldest row."""
        with self._lock:
            oldest = [self._one(f"SELECT MIN(at_ms) FROM {level.table}") for level in LEVELS]
            known = [moment for moment in oldest if moment is not None]
            return StoreFacts(
                self._size(), min(known) if known else None, len(self._series), self._dropped
            )

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _connect(self._path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._damaged = True
            for suffix in ("", "-wal", "-shm"):
                part = self._path.with_name(self._path.name + suffix)
                if part.exists():
                    part.replace(self._path.with_name(f"{self._path.name}.damaged{suffix}"))
            return _connect(self._path)

    def _number(self, name: str) -> int | None:
        """Return the id of a series; None if it is new and there are too many series already."""
        number = self._series.get(name)
        if number is None:
            if len(self._series) >= SERIES_MAX:
                self._dropped += 1
                return None
            cursor = self._database.execute("INSERT INTO series (name) VALUES (?)", (name,))
            number = self._series[name] = int(cursor.lastrowid or 0)
        return number

    def _roll_up(self, finer: Level, coarser: Level, end_ms: int) -> None:
        """Bring a coarser level up to its last complete bucket."""
        # If the clock once ran ahead, there are buckets with later times; ignore them.
        last = self._one(f"SELECT MAX(at_ms) FROM {coarser.table} WHERE at_ms < {end_ms}")
        begin_ms = 0 if last is None else last + coarser.step_ms
        over_ms = end_ms // coarser.step_ms * coarser.step_ms
        if over_ms <= begin_ms:
            return
        self._database.execute(
            f"INSERT OR REPLACE INTO {coarser.table}"
            f" SELECT series, at_ms / {coarser.step_ms} * {coarser.step_ms} AS bucket,"
            f" AVG(mean), MIN(least), MAX(most) FROM {finer.table}"
            " WHERE at_ms >= ? AND at_ms < ? GROUP BY series, bucket",
            (begin_ms, over_ms),
        )

    def _shrink(self, level: Level) -> None:
        """Delete the older half of a level until the file is small enough or the level nearly
        empty."""
        for _ in range(HALVINGS_MAX):
            if self._size() <= self._bytes_max:
                return
            with self._database:
                self._database.execute(
                    f"DELETE FROM {level.table} WHERE at_ms <"
                    f" (SELECT (MIN(at_ms) + MAX(at_ms)) / 2 FROM {level.table})"
                )
            self._vacuum()

    def _vacuum(self) -> None:
        """Return free pages to the file system. (`execute` would return only the first page.)"""
        self._database.executescript("PRAGMA incremental_vacuum")

    def _forget_series(self) -> None:
        """Delete the names of series that have no stored values any more, for example those of
        deleted groups, to make room for new series."""
        used = " UNION ".join(f"SELECT series FROM {level.table}" for level in LEVELS)
        with self._database:
            self._database.execute(f"DELETE FROM series WHERE id NOT IN ({used})")
        rows = self._database.execute("SELECT id, name FROM series")
        self._series = {str(name): int(number) for number, name in rows}

    def _one(self, query: str) -> int | None:
        row = self._database.execute(query).fetchone()
        return None if row[0] is None else int(row[0])

    def _size(self) -> int:
        pages = self._one("PRAGMA page_count") or 0
        return pages * (self._one("PRAGMA page_size") or 0)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether an error means a damaged file. A full disk, a lock or missing rights do
    not.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & PRIMARY_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.execute("PRAGMA auto_vacuum=INCREMENTAL")
        database.execute("PRAGMA journal_mode=WAL")
        # A power cut can lose the last seconds of history, but does not damage the file.
        database.execute("PRAGMA synchronous=NORMAL")
        with closing(database.execute("PRAGMA quick_check(1)")) as found:
            if found.fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("the history file is damaged")
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT UNIQUE)"
            )
            for level in LEVELS:
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {level.table} (series INTEGER, at_ms INTEGER,"
                    " mean REAL, least REAL, most REAL, PRIMARY KEY (series, at_ms)) WITHOUT ROWID"
                )
                # Purges and roll-ups select by time alone, so they need an index on the time.
                database.execute(
                    f"CREATE INDEX IF NOT EXISTS {level.table}_at ON {level.table} (at_ms)"
                )
            database.execute(
                "CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at_ms INTEGER,"
                " kind TEXT, text TEXT, mark INTEGER)"
            )
            database.execute(
                "CREATE TABLE IF NOT EXISTS alerts (rule TEXT, kind TEXT, subject TEXT,"
                " opened_at_ms INTEGER, text TEXT, page TEXT, value REAL, closed_at_ms INTEGER,"
                " offered_at_ms INTEGER, told_at_ms INTEGER)"
            )
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database
