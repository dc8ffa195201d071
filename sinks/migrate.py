"""A database that an older version wrote, brought to the present shape where it stands.

Version 1 held six places, hashed the full values of a key with BLAKE2b and had an index on `seq`.
Its `windows` are copied, some at a time and whole windows only, into a table of the present shape,
which then takes the old one's name. What is done next is read off the tables themselves: so a
migration that died at any point goes on where it stood, by whichever driver comes next.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from sinks import schema
from sinks.errors import SchemaTooNew, SinkUnavailable
from sinks.keys import NO_KEY_TEXT, OTHER_TEXT, Key, is_other, key_hash, other_key
from sinks.rows import MetricDefinition
from sinks.values import SUM_MAX

logger = logging.getLogger(__name__)

CELLS_PER_STEP = 20_000
# Cells of a metric that is not configured any more, by which its number of key columns is found.
KEYS_TRIED = 100
LOCK_WAIT_S = 5
COPY, OLD = "windows_next", "windows_before"
_VALUE_MAX = "9999999999999999.999999999999"


class _Place(NamedTuple):
    """A window of the old table."""

    metric: str
    size_s: int
    start_at: datetime


def prepare(cursor: Any) -> None:
    """Make what is missing; the tables of an older version are left as they are.

    Raises SchemaTooNew.
    """
    cursor.execute(schema.VERSION_TABLE)
    for statement in schema.LASTING_TABLES:
        cursor.execute(statement)
    version = _version(cursor)
    if version is None:
        # Written before the tables are, so that half a set of ours is never taken for an older one.
        version = 1 if _exists(cursor, "windows") else schema.VERSION
        cursor.execute(
            "INSERT INTO schema_version (id, version) VALUES (1, %s) "
            "ON DUPLICATE KEY UPDATE id = 1",
            (version,),
        )
    if version > schema.VERSION:
        raise SchemaTooNew(version, schema.VERSION)
    is_copy = _exists(cursor, "window_keys") and not _has_column(cursor, "window_keys", "seq")
    if version == schema.VERSION and is_copy:
        # A copy of a database of version 1 was put in place of ours.
        cursor.execute("UPDATE schema_version SET version = 1")
    elif version == schema.VERSION:
        for statement in schema.CELL_TABLES:
            cursor.execute(statement)


class Migration:
    """The steps to the present shape, each of them to be repeated until there is none left."""

    def __init__(self, database: str, definitions: Mapping[str, MetricDefinition]) -> None:
        self._lock = f"{database}.millrace_migration"[-64:]
        self._definitions = definitions
        self._key_columns: dict[str, int] = {}
        self._copied = 0

    @contextmanager
    def alone(self, cursor: Any) -> Iterator[None]:
        """Keep other drivers away from a step; raises SinkUnavailable while one has its own."""
        cursor.execute("SELECT GET_LOCK(%s, %s)", (self._lock, LOCK_WAIT_S))
        if cursor.fetchone()[0] != 1:
            raise SinkUnavailable("mysql", "another driver brings its tables to a newer version")
        try:
            yield
        finally:
            cursor.execute("SELECT RELEASE_LOCK(%s)", (self._lock,))

    def step(self, cursor: Any) -> bool:
        """Do the next thing, a second's work or so; False when nothing was left to do."""
        if _version(cursor) == schema.VERSION:
            if _exists(cursor, OLD):
                cursor.execute(f"DROP TABLE {OLD}")
            return False
        if not _has_column(cursor, "window_keys", "seq"):
            logger.info("bringing the database from version 1 to %s", schema.VERSION)
            cursor.execute(
                "ALTER TABLE window_keys ADD COLUMN seq BIGINT NOT NULL DEFAULT 0, ADD KEY (seq)"
            )
            return True
        if _exists(cursor, OLD):
            # The copy is whole: it was given the name only then.
            if not _exists(cursor, "windows"):
                cursor.execute(f"RENAME TABLE {COPY} TO windows")
            cursor.execute("UPDATE schema_version SET version = %s", (schema.VERSION,))
            logger.info("the database is of version %s", schema.VERSION)
            return True
        if not _exists(cursor, COPY):
            # A step of its own: it would commit, and what follows would be no transaction.
            cursor.execute(schema.windows_table(COPY))
            return True
        if self._copy_some(cursor):
            return True
        cursor.execute(f"RENAME TABLE windows TO {OLD}, {COPY} TO windows")
        return True

    def _copy_some(self, cursor: Any) -> bool:
        """Copy the windows behind the last one copied; False when all are there."""
        last = _place(cursor, COPY, "TRUE", (), descending=True)
        first = _place(cursor, "windows", *_behind(last))
        if first is None:
            return False
        metric = first.metric
        where, values = (
            f"({_behind(last)[0] or 'TRUE'}) AND metric = %s",
            (*_behind(last)[1], metric),
        )
        end = _place(cursor, "windows", where, values, skip=CELLS_PER_STEP - 1)
        if end is not None:
            where += " AND (size_s < %s OR (size_s = %s AND start_at <= %s))"
            values = (*values, end.size_s, end.size_s, end.start_at)
        self._warn_of_limits(cursor, metric, where, values)
        copied = cursor.execute(
            f"INSERT INTO {COPY} SELECT metric, size_s, start_at, "
            f"{_hash_sql(self._columns_of(cursor, metric))}, k1, k2, k3, `count`, "
            f"{_limited('`sum`', SUM_MAX)}, {_limited('`min`', _VALUE_MAX)}, "
            f"{_limited('`max`', _VALUE_MAX)}, {_limited('value', SUM_MAX)}, "
            f"quantiles, hll, kll, seq FROM windows WHERE {where}",
            values,
        )
        cursor.execute(
            "UPDATE window_keys JOIN (SELECT metric, size_s, start_at, MAX(seq) AS newest "
            f"FROM windows WHERE {where} GROUP BY metric, size_s, start_at) AS copied "
            "USING (metric, size_s, start_at) SET window_keys.seq = copied.newest",
            values,
        )
        self._copied += copied
        logger.info("%s cells copied, at %s from %s on", self._copied, metric, first.start_at)
        return True

    def _warn_of_limits(
        self, cursor: Any, metric: str, where: str, values: Sequence[object]
    ) -> None:
        cursor.execute(
            f"SELECT COUNT(*) FROM windows WHERE {where} AND (ABS(`sum`) > {SUM_MAX} "
            f"OR ABS(`min`) > {_VALUE_MAX} OR ABS(`max`) > {_VALUE_MAX} OR ABS(value) > {SUM_MAX})",
            values,
        )
        if beyond := int(cursor.fetchone()[0]):
            logger.warning("%s cells of %s are beyond 12 places' limit", beyond, metric)

    def _columns_of(self, cursor: Any, metric: str) -> int:
        """How many columns a metric's key has; of one that is gone, as its hashes tell."""
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
    """The hash of a key in version 1: 16 bytes of BLAKE2b over length-prefixed values."""
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
    """The present hash, made of the columns of a row; special keys are known by their old one."""
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


def _limited(column: str, limit: object) -> str:
    return f"LEAST(GREATEST({column}, -{limit}), {limit})"


def _behind(place: _Place | None) -> tuple[str, tuple[object, ...]]:
    """The condition for windows behind one in the order of the primary key."""
    if place is None:
        return "TRUE", ()
    metric, size_s, start_at = place
    return (
        "metric > %s OR (metric = %s AND (size_s > %s OR (size_s = %s AND start_at > %s)))",
        (metric, metric, size_s, size_s, start_at),
    )


def _place(
    cursor: Any,
    table: str,
    where: str,
    values: Sequence[object],
    *,
    descending: bool = False,
    skip: int = 0,
) -> _Place | None:
    """The window of the first cell that fulfils a condition, or of a later one."""
    order = ", ".join(
        f"{name} {'DESC' if descending else 'ASC'}" for name in ("metric", "size_s", "start_at")
    )
    cursor.execute(
        f"SELECT metric, size_s, start_at FROM {table} WHERE {where} "
        f"ORDER BY {order} LIMIT 1 OFFSET {skip}",
        values,
    )
    row = cursor.fetchone()
    return None if row is None else _Place(str(row[0]), int(row[1]), row[2])


def _version(cursor: Any) -> int | None:
    cursor.execute("SELECT version FROM schema_version WHERE id = 1")
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def _exists(cursor: Any, table: str) -> bool:
    cursor.execute(
        "SELECT COUNT(*) FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = %s",
        (table,),
    )
    return bool(cursor.fetchone()[0])


def _has_column(cursor: Any, table: str, column: str) -> bool:
    cursor.execute(
        "SELECT COUNT(*) FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND table_name = %s AND column_name = %s",
        (table, column),
    )
    return bool(cursor.fetchone()[0])
