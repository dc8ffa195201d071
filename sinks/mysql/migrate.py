"""Migrates a database that an older version wrote to the present schema, without a second database.

Version 1 stored six decimal places, hashed the full values of a key with BLAKE2b, and had an index
on `seq`. In version 2, a row of the table `windows` had metric, size, start, the hash of the key
and the value. Version 3 had fewer digits for sums and values, and one ALTER adds the missing ones.

The table `windows` of versions 1 and 2 is copied into `window_cells`, some whole windows at a time.
The same transaction stores in `windows_copied` which window was copied last. When all windows are
copied, a view replaces the table. The next step is always derived from the tables themselves, so
any driver can continue a migration that was interrupted at any point.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from sinks.errors import SchemaTooNew, SinkUnavailable
from sinks.keys import (
    KEY_ID_TEXT_OCTETS_MAX,
    NO_KEY_TEXT,
    OTHER_TEXT,
    Key,
    is_other,
    key_hash,
    other_key,
)
from sinks.mysql import schema
from sinks.mysql.views import DERIVED_SQL, SEQ_MODULUS, WINDOWS_VIEW
from sinks.rows import MetricDefinition
from sinks.values import VALUE_MAX

logger = logging.getLogger(__name__)

CELLS_PER_STEP = 20_000
# The most cells that are read to find the number of key columns of a metric without configuration.
KEYS_TRIED = 100
LOCK_WAIT_S = 5
OLD = "windows_before"
# The table with the window that was copied last, in one row.
COPIED = "windows_copied"
# The table into which version 2 copied the cells of version 1, before it was renamed to `windows`.
COPY_OF_VERSION_2 = "windows_next"
PLACES_OF_VERSION_1 = 6
TABLE = "BASE TABLE"
_COPIED_TABLE = f"""CREATE TABLE {COPIED} (id TINYINT PRIMARY KEY,
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL)"""


class _Place(NamedTuple):
    """The place of a window in the old table: metric, size and start."""

    metric: str
    size_s: int
    start_at: datetime


def prepare(cursor: Any) -> None:
    """Create missing tables and columns. The cells of an older version are left as they are.

    Raises SchemaTooNew.
    """
    cursor.execute(schema.VERSION_TABLE)
    for statement in schema.LASTING_TABLES:
        cursor.execute(statement)
    if not _has_column(cursor, "metrics", "measure"):
        cursor.execute(schema.MEASURE_COLUMN)
    for table, column in _columns_as_the_database(cursor):
        cursor.execute(f"ALTER TABLE {table} MODIFY {schema.TEXT_COLUMNS[column]}")
    is_older = any(_kind(cursor, name) == TABLE for name in ("windows", OLD, COPY_OF_VERSION_2))
    version = _version(cursor)
    if version is None:
        # Store the version before the tables are created, so that an incomplete set of our tables
        # is never taken for that of an older version.
        version = 1 if is_older else schema.VERSION
        cursor.execute(
            "INSERT INTO schema_version (id, version) VALUES (1, %s) "
            "ON DUPLICATE KEY UPDATE id = 1",
            (version,),
        )
    if version > schema.VERSION:
        raise SchemaTooNew(version, schema.VERSION)
    if version == schema.VERSION and _kind(cursor, "windows") == TABLE:
        # The user has restored a copy of an older database, so it must be migrated again.
        cursor.execute("UPDATE schema_version SET version = 1")
        return
    is_of_version_3 = _has_narrow_numbers(cursor) and _has_column(
        cursor, "window_keys", "window_number"
    )
    if version == schema.VERSION or not (is_older or is_of_version_3):
        _make_tables(cursor)
        cursor.execute("UPDATE schema_version SET version = %s", (schema.VERSION,))


def is_present(cursor: Any) -> bool:
    """Tell whether the tables are of this version. Call `prepare` first."""
    return _version(cursor) == schema.VERSION


def _columns_as_the_database(cursor: Any) -> list[tuple[str, str]]:
    """Return the text columns that still have the default collation of the database."""
    cursor.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND table_name IN %s AND column_name IN %s "
        "AND collation_name <> %s",
        (schema.TEXT_TABLES, list(schema.TEXT_COLUMNS), schema.COLLATION),
    )
    return [(str(table), str(column)) for table, column in cursor.fetchall()]


def _make_tables(cursor: Any) -> None:
    """Create the tables of the present version, if no older version has stored cells."""
    if not _has_column(cursor, "window_keys", "window_number"):
        # These cells cannot be assigned to windows any more, and their window ids will be used
        # again, so remove them.
        cursor.execute("DROP TABLE IF EXISTS window_cells, window_keys")
    for statement in schema.CELL_TABLES:
        cursor.execute(statement)
    if _kind(cursor, "windows") is None:
        cursor.execute(WINDOWS_VIEW)


class Migration:
    """The steps to the present schema. The caller repeats `step` until it returns False."""

    def __init__(self, database: str, definitions: Mapping[str, MetricDefinition]) -> None:
        self._lock = f"{database}.millrace_migration"[-64:]
        self._definitions = definitions
        self._key_columns: dict[str, int] = {}
        self._copied = 0

    @contextmanager
    def alone(self, cursor: Any) -> Iterator[None]:
        """Lock the migration for a step; raises SinkUnavailable if another driver has the lock."""
        cursor.execute("SELECT GET_LOCK(%s, %s)", (self._lock, LOCK_WAIT_S))
        if cursor.fetchone()[0] != 1:
            raise SinkUnavailable("mysql", "another driver brings its tables to a newer version")
        try:
            yield
        finally:
            cursor.execute("SELECT RELEASE_LOCK(%s)", (self._lock,))

    def step(self, cursor: Any) -> bool:
        """Do the next step, which takes about a second; return False if there was none left."""
        if is_present(cursor):
            cursor.execute(f"DROP TABLE IF EXISTS {OLD}, {COPIED}")
            return False
        windows = _kind(cursor, "windows")
        if windows is None and _kind(cursor, COPY_OF_VERSION_2) is not None:
            # Version 2 was interrupted between two renames. Its copy is complete.
            cursor.execute(f"RENAME TABLE {COPY_OF_VERSION_2} TO windows")
        elif not _has_column(cursor, "window_keys", "window_number"):
            self._number_windows(cursor)
        elif windows == TABLE and _kind(cursor, COPIED) is None:
            # A step of its own, because these statements commit, and copying needs a transaction.
            cursor.execute("DROP TABLE IF EXISTS window_cells")
            cursor.execute(schema.CELLS_TABLE)
            cursor.execute(_COPIED_TABLE)
        elif _has_narrow_numbers(cursor):
            logger.info("giving the numbers of window_cells more digits: minutes for a large table")
            cursor.execute(schema.WIDER_NUMBERS)
        elif windows == TABLE and not self._copy_some(cursor):
            cursor.execute(f"RENAME TABLE windows TO {OLD}")
        elif windows != TABLE:
            cursor.execute(WINDOWS_VIEW)
            cursor.execute("UPDATE schema_version SET version = %s", (schema.VERSION,))
            logger.info("the database is of version %s", schema.VERSION)
        return True

    def _number_windows(self, cursor: Any) -> None:
        """Do the first step: add ids to `window_keys`, and drop tables of earlier attempts."""
        is_first = not _has_column(cursor, "window_keys", "seq")
        logger.info(
            "bringing the database from version %s to %s", 1 + (not is_first), schema.VERSION
        )
        cursor.execute(f"DROP TABLE IF EXISTS {COPIED}, {COPY_OF_VERSION_2}, {OLD}")
        seq = "ADD COLUMN seq BIGINT NOT NULL DEFAULT 0, ADD KEY (seq), " if is_first else ""
        cursor.execute(
            f"ALTER TABLE window_keys {seq}ADD COLUMN window_number INT UNSIGNED NOT NULL "
            "AUTO_INCREMENT, ADD UNIQUE KEY (window_number)"
        )

    def _copy_some(self, cursor: Any) -> bool:
        """Copy the windows after the last copied one; return False if all are copied."""
        cursor.execute(f"SELECT metric, size_s, start_at FROM {COPIED}")
        row = cursor.fetchone()
        behind = _behind(None if row is None else _Place(str(row[0]), int(row[1]), row[2]))
        first = _place(cursor, *behind)
        if first is None:
            return False
        metric = first.metric
        # The table is named, because window_keys has columns of the same names.
        where, values = f"({behind[0]}) AND windows.metric = %s", (*behind[1], metric)
        end = _place(cursor, where, values, skip=CELLS_PER_STEP - 1)
        if end is None:
            end = _place(cursor, where, values, descending=True)
        assert end is not None, "there is a first one"
        where += " AND (windows.size_s < %s OR (windows.size_s = %s AND windows.start_at <= %s))"
        values = (*values, end.size_s, end.size_s, end.start_at)
        self._copied += self._copy(cursor, metric, where, values)
        cursor.execute(
            f"INSERT INTO {COPIED} (id, metric, size_s, start_at) VALUES (1,%s,%s,%s) "
            "ON DUPLICATE KEY UPDATE metric = VALUES(metric), size_s = VALUES(size_s), "
            "start_at = VALUES(start_at)",
            end,
        )
        logger.info("%s cells copied, at %s from %s on", self._copied, metric, first.start_at)
        return True

    def _copy(self, cursor: Any, metric: str, where: str, values: Sequence[object]) -> int:
        # Version 1 had no `seq` of windows. A window without a row gets one, so that none of its
        # cells is left out.
        cursor.execute(
            "INSERT INTO window_keys (metric, size_s, start_at, n_keys, seq) "
            "SELECT metric, size_s, start_at, COUNT(*), MAX(seq) AS newest FROM windows "
            f"WHERE {where} GROUP BY metric, size_s, start_at "
            "ON DUPLICATE KEY UPDATE window_keys.seq = GREATEST(window_keys.seq, VALUES(seq))",
            values,
        )
        k_hash, value = "k_hash", "value"
        if _is_of_version_1(cursor):
            k_hash = _hash_sql(self._columns_of(cursor, metric))
            # Values of version 1 can have up to 32 digits before the point, so limit them.
            value = f"LEAST(GREATEST(value, -{VALUE_MAX}), {VALUE_MAX})"
        derived = ", ".join(f"'{measure}'" for measure in DERIVED_SQL)
        is_text = _is_text(k_hash)
        beside = ", ".join(f"IF({is_text}, NULL, {name})" for name in ("k1", "k2", "k3"))
        copied: int = cursor.execute(
            "INSERT INTO window_cells (window_number, k_id, k1, k2, k3, `count`, `sum`, `min`, "
            "`max`, value, quantiles, hll, kll, seq) SELECT window_number, "
            f"IF({is_text}, CAST(CONCAT('=', k1) AS BINARY), CONCAT('#', {k_hash})), {beside}, "
            f"`count`, `sum`, `min`, `max`, IF(measure IN ({derived}), NULL, {value}), quantiles, "
            f"hll, kll, windows.seq & {SEQ_MODULUS - 1} "
            "FROM windows STRAIGHT_JOIN window_keys USING (metric, size_s, start_at) "
            f"LEFT JOIN metrics ON metrics.name = windows.metric WHERE {where}",
            values,
        )
        return copied

    def _columns_of(self, cursor: Any, metric: str) -> int:
        """Return the number of key columns of a metric.

        For a metric without configuration it is found from the hashes of its keys.
        """
        if metric in self._definitions:
            return len(self._definitions[metric].key_columns)
        if metric not in self._key_columns:
            cursor.execute(
                "SELECT k_hash, k1, k2, k3 FROM windows WHERE metric = %s LIMIT %s",
                (metric, KEYS_TRIED),
            )
            self._key_columns[metric] = _columns_by_hash(cursor.fetchall())
        return self._key_columns[metric]


def hash_before(key: Key) -> bytes:
    """Return the hash of a key in version 1: 16 bytes of BLAKE2b over length-prefixed values."""
    digest = blake2b(digest_size=16)
    for part in (None,) if is_other(key) else key:
        if part is None:
            digest.update((-2 if is_other(key) else -1).to_bytes(4, "big", signed=True))
        else:
            value = part.encode("utf-8", "surrogatepass")
            digest.update(len(value).to_bytes(4, "big", signed=True) + value)
    return digest.digest()


def _columns_by_hash(rows: Sequence[Sequence[Any]]) -> int:
    widest = 0
    for k_hash, *columns in rows:
        for count in range(1, len(columns) + 1):
            if hash_before(tuple(columns[:count])) == bytes(k_hash):
                return count
            if columns[count - 1] is not None and bytes(k_hash) != hash_before(()):
                widest = max(widest, count)
    return widest


def _hash_sql(columns: int) -> str:
    """Return SQL for the present hash of a row's key, computed from its columns.

    The overflow key and the empty key are recognised by their old hash.
    """
    special = ((OTHER_TEXT, other_key(1)), (NO_KEY_TEXT, ()))
    cases = " ".join(
        f"WHEN k1 = '{text}' AND k_hash = 0x{hash_before(key).hex()} THEN 0x{key_hash(key).hex()}"
        for text, key in special
    )
    parts = [
        f"IF(k{n} IS NULL, '-', CONCAT(LENGTH(k{n}), ':', k{n}))"
        for n in range(1, max(1, columns) + 1)
    ]
    return f"CASE {cases} ELSE UNHEX(LEFT(SHA2(CONCAT({', '.join(parts)}), 256), 32)) END"


def _is_text(k_hash: str) -> str:
    """Return SQL that is true if a row's key is one short text, whose octets are its identity."""
    alone = "UNHEX(LEFT(SHA2(CONCAT(LENGTH(k1), ':', k1), 256), 32))"
    return f"(k1 IS NOT NULL AND LENGTH(k1) <= {KEY_ID_TEXT_OCTETS_MAX} AND {k_hash} = {alone})"


def _behind(place: _Place | None) -> tuple[str, tuple[object, ...]]:
    """Return the SQL condition for windows after `place` in the order of the primary key."""
    if place is None:
        return "TRUE", ()
    metric, size_s, start_at = place
    return (
        "windows.metric > %s OR (windows.metric = %s AND (windows.size_s > %s "
        "OR (windows.size_s = %s AND windows.start_at > %s)))",
        (metric, metric, size_s, size_s, start_at),
    )


def _place(
    cursor: Any,
    where: str,
    values: Sequence[object],
    *,
    descending: bool = False,
    skip: int = 0,
) -> _Place | None:
    """Return the window of the first cell for which a condition is true; `skip` skips cells."""
    order = ", ".join(
        f"{name} {'DESC' if descending else 'ASC'}" for name in ("metric", "size_s", "start_at")
    )
    cursor.execute(
        f"SELECT metric, size_s, start_at FROM windows WHERE {where} "
        f"ORDER BY {order} LIMIT 1 OFFSET {skip}",
        values,
    )
    row = cursor.fetchone()
    return None if row is None else _Place(str(row[0]), int(row[1]), row[2])


def _version(cursor: Any) -> int | None:
    cursor.execute("SELECT version FROM schema_version WHERE id = 1")
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def _is_of_version_1(cursor: Any) -> bool:
    """Tell whether `windows` is of version 1. The stored version cannot tell, because `prepare`
    sets it to 1 for every older database."""
    cursor.execute(
        "SELECT numeric_scale FROM information_schema.columns WHERE table_schema = DATABASE() "
        "AND table_name = 'windows' AND column_name = 'sum'"
    )
    return int(cursor.fetchone()[0]) == PLACES_OF_VERSION_1


def _has_narrow_numbers(cursor: Any) -> bool:
    """Tell whether `window_cells` exists with the fewer digits of version 3."""
    cursor.execute(
        "SELECT numeric_precision FROM information_schema.columns WHERE table_schema = DATABASE() "
        "AND table_name = 'window_cells' AND column_name = 'sum'"
    )
    row = cursor.fetchone()
    return row is not None and int(row[0]) < schema.SUM_DIGITS


def _kind(cursor: Any, name: str) -> str | None:
    """Return TABLE, or another kind such as that of a view; None if the name does not exist."""
    cursor.execute(
        "SELECT table_type FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = %s",
        (name,),
    )
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def _has_column(cursor: Any, table: str, column: str) -> bool:
    cursor.execute(
        "SELECT COUNT(*) FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND table_name = %s AND column_name = %s",
        (table, column),
    )
    return bool(cursor.fetchone()[0])
