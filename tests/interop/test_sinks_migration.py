"""Databases of older versions are migrated in place, whichever process dies on the way.

The statements of versions 1 and 2 stand here. What they would have written is made of what is
written today: by version 2 with everything of a cell in its row, by version 1 with six places,
hashes over the full values and an index on `seq` besides.
"""

import contextlib
import dataclasses
import logging
import re
from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import pytest

from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import FencedWriter, SchemaTooNew, SinkUnavailable
from sinks.forget import forget_metric
from sinks.keys import Key, is_other, key_hash, other_key
from sinks.mysql import migrate
from sinks.mysql.migrate import Migration
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.interop.test_sinks_faults import Faults

pytestmark = pytest.mark.live

TEXT_KEY = "VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
VERSION_1 = (
    """CREATE TABLE sink_guard (
  id TINYINT PRIMARY KEY DEFAULT 1, query_id CHAR(36) NOT NULL, epoch BIGINT NOT NULL,
  batch_id BIGINT NOT NULL, seq BIGINT NOT NULL)""",
    """CREATE TABLE ledger (
  topic VARCHAR(249) NOT NULL, part INT NOT NULL, end_offset BIGINT NOT NULL,
  PRIMARY KEY (topic, part))""",
    f"""CREATE TABLE windows (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  k_hash BINARY(16) NOT NULL, k1 {TEXT_KEY}, k2 {TEXT_KEY}, k3 {TEXT_KEY},
  `count` BIGINT NOT NULL, `sum` DECIMAL(38,6), `min` DECIMAL(28,6), `max` DECIMAL(28,6),
  value DECIMAL(38,6), quantiles JSON, hll MEDIUMBLOB, kll MEDIUMBLOB, seq BIGINT NOT NULL,
  PRIMARY KEY (metric, size_s, start_at, k_hash), KEY (seq))""",
    """CREATE TABLE window_keys (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  n_keys INT NOT NULL, PRIMARY KEY (metric, size_s, start_at))""",
    """CREATE TABLE metrics (
  name VARCHAR(48) PRIMARY KEY, definition_hash BINARY(16) NOT NULL, since DATETIME NOT NULL)""",
)
WINDOWS_OF_2 = f"""(
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  k_hash BINARY(16) NOT NULL, k1 {TEXT_KEY}, k2 {TEXT_KEY}, k3 {TEXT_KEY},
  `count` BIGINT NOT NULL, `sum` DECIMAL(38,12), `min` DECIMAL(28,12), `max` DECIMAL(28,12),
  value DECIMAL(38,12), quantiles JSON, hll MEDIUMBLOB, kll MEDIUMBLOB, seq BIGINT NOT NULL,
  PRIMARY KEY (metric, size_s, start_at, k_hash))"""
VERSION_2 = (
    VERSION_1[0],
    VERSION_1[1],
    f"CREATE TABLE windows {WINDOWS_OF_2}",
    """CREATE TABLE window_keys (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  n_keys INT NOT NULL, seq BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (metric, size_s, start_at), KEY (seq))""",
    VERSION_1[4],
    "CREATE TABLE schema_version (id TINYINT PRIMARY KEY DEFAULT 1, version INT NOT NULL)",
    "INSERT INTO schema_version VALUES (1, 2)",
)
OF_VERSION = {1: VERSION_1, 2: VERSION_2}
CELL_TABLES = ("window_cells", "window_keys")
TABLES = ("windows", "window_keys", "ledger", "metrics")
# No reader needs a window's number. Versions before 3 do not note measures, versions before 4 do
# not say what is an estimate.
UNTOLD = ("window_number", "measure", "estimate")

PAIRS: list[Key] = [
    ("GET", "/"), ("GET", None), (None, "/"), (None, None), ("", ""), ("é", "🙂"), ("it's", "a\\b"),
    ("x" * 513, "/"), ("x" * 514, "/"), ("(other)", "(other)"), ("*", None), ("GET", "/ "),
]  # fmt: skip
TEN = worked.at("10:00:00")
TWO = dataclasses.replace(
    worked.DEFINITIONS[0],
    name="by_two",
    key_columns=("a", "b"),
    max_keys=len(PAIRS),
    definition_hash=b"two".ljust(16),
)
GONE = dataclasses.replace(TWO, name="gone", definition_hash=b"gone".ljust(16))
METRICS = [*worked.DEFINITIONS, TWO, GONE]


def batches() -> list[Batch]:
    """The worked example, with keys of two columns up to and beyond their limit."""
    more = [
        [
            FoldRow(name, worked.at("10:00:00"), pair, 3)
            for name in ("by_two", "gone")
            for pair in some
        ]
        for some in (PAIRS, [("too", "many"), ("GET", "/")])
    ]
    return [
        dataclasses.replace(batch, rows=[*batch.rows, *rows])
        for batch, rows in zip((worked.BATCH_7, worked.BATCH_8), more, strict=True)
    ]


NEXT = dataclasses.replace(batches()[1], batch_id=9, ranges=[OffsetRange("logs.access", 0, 7, 9)])


def hash_of_version_1(key: Key) -> bytes:
    """16 bytes over the full, length-prefixed values."""
    if is_other(key):
        return blake2b((-2).to_bytes(4, "big", signed=True), digest_size=16).digest()
    values = [None if part is None else part.encode() for part in key]
    parts = [
        (-1 if value is None else len(value)).to_bytes(4, "big", signed=True) + (value or b"")
        for value in values
    ]
    return blake2b(b"".join(parts), digest_size=16).digest()


HASHES = {
    key_hash(key): hash_of_version_1(key)
    for key in [
        *(row.key for batch in [*batches(), worked.BATCH_7] for row in batch.rows),
        (),
        other_key(1),
    ]
}


def read(server: MySqlServer, settings: MySqlSettings, table: str) -> list[dict[str, Any]]:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return list(cursor.fetchall())


def everything(server: MySqlServer, settings: MySqlSettings) -> dict[str, list[dict[str, Any]]]:
    found = {table: read(server, settings, table) for table in TABLES}
    for rows in found.values():
        for row in rows:
            for name in UNTOLD:
                row.pop(name, None)
        rows.sort(key=repr)
    return found


def write(
    server: MySqlServer, settings: MySqlSettings, table: str, rows: Sequence[dict[str, Any]]
) -> None:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        for row in rows:
            names = ", ".join(f"`{name}`" for name in row)
            marks = ", ".join(["%s"] * len(row))
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def without_estimate(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "estimate"}


def run(server: MySqlServer, settings: MySqlSettings, *statements: str) -> None:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def set_back(server: MySqlServer, of: MySqlSettings, to: MySqlSettings, version: int) -> None:
    """Fill an empty database as an older version would have."""
    run(server, to, *OF_VERSION[version])
    for row in read(server, of, "windows"):
        k_hash = bytes(row["k_hash"])
        write(
            server,
            to,
            "windows",
            [{**without_estimate(row), "k_hash": HASHES[k_hash] if version == 1 else k_hash}],
        )
    lacking = {"window_number", "measure"} | ({"seq"} if version == 1 else set())
    for table in ("window_keys", "metrics"):
        rows = read(server, of, table)
        write(server, to, table, [{n: v for n, v in r.items() if n not in lacking} for r in rows])
    for table in ("sink_guard", "ledger"):
        write(server, to, table, read(server, of, table))


def counted(
    settings: MySqlSettings, *some: Batch, metrics: Sequence[MetricDefinition] = METRICS
) -> MySqlSettings:
    """A database of today with these batches."""
    sink = MySqlSink(settings, patience_s=5)
    sink.open(worked.QUERY, metrics, 0)
    for batch in some:
        sink.apply(batch)
    sink.close()
    return settings


@pytest.fixture
def today(mysql_server: MySqlServer) -> MySqlSettings:
    return counted(mysql_server.new_database(), *batches())


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def old(mysql_server: MySqlServer, today: MySqlSettings, version: int) -> MySqlSettings:
    settings = mysql_server.new_database()
    set_back(mysql_server, today, settings, version)
    return settings


def opened(settings: MySqlSettings, **more: Any) -> MySqlSink:
    """A driver that does not know the metric `gone`."""
    sink = MySqlSink(settings, patience_s=5, **more)
    sink.open(worked.QUERY, METRICS[:-1], 0)
    return sink


def is_replay_of_next(settings: MySqlSettings) -> bool:
    """Apply the next batch by a driver that knows every metric; whether it was a replay."""
    later = MySqlSink(settings, patience_s=5)
    later.open(worked.QUERY, METRICS, 0)
    with contextlib.closing(later):
        return later.apply(NEXT).replayed


def test_an_old_database_becomes_what_today_would_have_written(
    mysql_server: MySqlServer,
    today: MySqlSettings,
    old: MySqlSettings,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(migrate, "CELLS_PER_STEP", 20)
    with caplog.at_level(logging.INFO, "sinks"):
        sink = opened(old)
    assert everything(mysql_server, old) == everything(mysql_server, today)
    told = [record.getMessage() for record in caplog.records]
    assert sum("cells copied" in line for line in told) > 3
    assert told[0] == f"bringing the database from version {version} to 4"
    assert told[-1] == "the database is of version 4"
    for settings in (old, today):
        assert [row["version"] for row in read(mysql_server, settings, "schema_version")] == [4]
    shape = [_shape(mysql_server, settings) for settings in (old, today)]
    assert shape[0] == shape[1]
    assert sorted({row["Table"] for row in shape[0]}) == ["window_cells", "window_keys"]
    # It continues as a database that always had this version.
    assert sink.apply(batches()[1]).replayed
    for settings in (old, today):
        assert not is_replay_of_next(settings)
    assert everything(mysql_server, old) == everything(mysql_server, today)
    caplog.clear()
    with caplog.at_level(logging.INFO, "sinks"):
        opened(old)
    assert not caplog.records


def _shape(server: MySqlServer, settings: MySqlSettings) -> list[dict[str, Any]]:
    shapes: list[dict[str, Any]] = []
    with server.connect(settings) as connection, connection.cursor() as cursor:
        for table in CELL_TABLES:
            cursor.execute(f"SHOW CREATE TABLE {table}")
            shapes += cursor.fetchall()
        cursor.execute("SHOW TABLES LIKE 'windows%'")
        assert len(cursor.fetchall()) == 1
    for shape in shapes:
        shape["Create Table"] = re.sub(r" AUTO_INCREMENT=\d+", "", shape["Create Table"])
    return shapes


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
def test_a_driver_that_dies_at_any_statement_leaves_it_to_the_next(
    mysql_server: MySqlServer, monkeypatch: pytest.MonkeyPatch, version: int, after: bool
) -> None:
    monkeypatch.setattr(migrate, "CELLS_PER_STEP", 14)
    few = [
        dataclasses.replace(one, rows=[row for row in one.rows if row.metric == TWO.name])
        for one in batches()
    ]
    today = counted(mysql_server.new_database(), *few, metrics=[TWO])
    expected = everything(mysql_server, today)
    kept, old = mysql_server.new_database(), mysql_server.new_database()
    set_back(mysql_server, today, kept, version)
    names = [*CELL_TABLES, *TABLES, "schema_version", "sink_guard", migrate.COPIED, migrate.OLD]
    at = 1
    while True:
        run(
            mysql_server,
            old,
            *OF_VERSION[version],
            *(
                f"INSERT INTO {name} SELECT * FROM {kept.database}.{name}"
                for name in ("sink_guard", *TABLES)
            ),
        )
        faults = Faults(at, after=after)
        dying = MySqlSink(old, patience_s=0, connect=faults.connect)
        with contextlib.suppress(SinkUnavailable):
            dying.open(worked.QUERY, [TWO], 0)
        dying.close()
        next_one = MySqlSink(old, patience_s=5)
        next_one.open(worked.QUERY, [TWO], 0)
        next_one.close()
        assert everything(mysql_server, old) == expected, f"died at call {at}"
        run(mysql_server, old, "DROP VIEW windows")
        run(mysql_server, old, *(f"DROP TABLE IF EXISTS {name}" for name in names))
        if not faults.broken:
            break
        at += 1
    assert at > 60


def test_a_rename_that_version_2_half_did_is_done_to_the_end(
    mysql_server: MySqlServer, today: MySqlSettings
) -> None:
    """Its copy of version 1 was whole, and had not yet taken the table's name."""
    old, copy = mysql_server.new_database(), mysql_server.new_database()
    set_back(mysql_server, today, old, 1)
    set_back(mysql_server, today, copy, 2)
    run(
        mysql_server,
        old,
        f"CREATE TABLE {migrate.COPY_OF_VERSION_2} {WINDOWS_OF_2}",
        f"INSERT INTO {migrate.COPY_OF_VERSION_2} SELECT * FROM {copy.database}.windows",
        f"RENAME TABLE windows TO {migrate.OLD}",
    )
    opened(old)
    assert everything(mysql_server, old) == everything(mysql_server, today)


def test_a_view_that_was_not_made_yet_is_made_by_the_next(
    mysql_server: MySqlServer, today: MySqlSettings, old: MySqlSettings
) -> None:
    sink = MySqlSink(old, patience_s=5)
    migration = Migration(old.database, {one.name: one for one in METRICS})
    sink._patiently(lambda: sink._plainly(migrate.prepare))
    while not _is_renamed(mysql_server, old):
        assert sink._patiently(lambda: sink._in_transaction(migration.step))
    opened(old)
    assert everything(mysql_server, old) == everything(mysql_server, today)


def test_a_window_without_a_row_of_its_own_is_copied_too(
    mysql_server: MySqlServer, today: MySqlSettings, old: MySqlSettings
) -> None:
    run(mysql_server, old, "DELETE FROM window_keys WHERE metric = 'by_two'")
    opened(old)
    assert read(mysql_server, old, "windows") != []
    found, expected = everything(mysql_server, old), everything(mysql_server, today)
    assert found["windows"] == expected["windows"]


def test_tables_that_somebody_dropped_are_made_anew(
    mysql_server: MySqlServer, old: MySqlSettings
) -> None:
    run(mysql_server, old, "DROP TABLE windows")
    sink = opened(old)
    assert everything(mysql_server, old)["window_keys"] == []
    run(mysql_server, old, "DROP TABLE window_keys")
    again = opened(old)
    assert again.ledger() == sink.ledger()
    assert read(mysql_server, old, "windows") == []


def test_values_are_shown_of_a_metric_that_comes_back(
    mysql_server: MySqlServer, today: MySqlSettings, old: MySqlSettings
) -> None:
    """While its measure is unknown its values stay in its cells; then they are derived."""
    opened(old).close()
    for settings in (old, today):
        later = MySqlSink(settings, patience_s=5)
        later.open(worked.QUERY, METRICS, 0)
        row = FoldRow("gone", TEN, ("GET", "/"), 5)
        ranges = [OffsetRange("logs.access", 0, 7, 9)]
        later.apply(dataclasses.replace(NEXT, rows=[row], ranges=ranges))
        later.close()
    found = everything(mysql_server, old)["windows"]
    assert found == everything(mysql_server, today)["windows"]
    assert {row["value"] - row["count"] for row in found if row["metric"] == "gone"} == {0}


def _is_renamed(server: MySqlServer, settings: MySqlSettings) -> bool:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        return bool(cursor.execute(f"SHOW TABLES LIKE '{migrate.OLD}'"))


def test_a_driver_that_was_fenced_leaves_the_tables_alone(
    mysql_server: MySqlServer, old: MySqlSettings
) -> None:
    first = opened(old)
    second = opened(old)
    migration = Migration(old.database, {})
    with pytest.raises(FencedWriter):
        first._plainly(lambda cursor: first._migrate(migration, cursor))
    with mysql_server.connect(old) as other, other.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", (migration._lock,))
        with pytest.raises(SinkUnavailable, match="another driver"):
            second._plainly(lambda cursor: second._migrate(migration, cursor))


def test_the_largest_numbers_of_version_1_are_kept_whole(
    mysql_server: MySqlServer, today: MySqlSettings
) -> None:
    old = mysql_server.new_database()
    set_back(mysql_server, today, old, 1)
    total, most = Decimal("-" + "9" * 32 + ".999999"), Decimal("9" * 22 + ".999999")
    values = f"`sum` = {total}, `max` = {most}, value = {total}"
    run(mysql_server, old, f"UPDATE windows SET {values} WHERE metric = 'bytes_by_host'")
    opened(old)
    rows = [r for r in read(mysql_server, old, "windows") if r["metric"] == "bytes_by_host"]
    assert {(row["sum"], row["value"], row["max"]) for row in rows} == {(total, total, most)}


# The numbers of version 3.
NARROW = (
    "ALTER TABLE window_cells MODIFY `sum` DECIMAL(38,12), MODIFY `min` DECIMAL(28,12), "
    "MODIFY `max` DECIMAL(28,12)",
    "UPDATE schema_version SET version = 3",
)


def test_numbers_of_version_3_get_more_digits(
    mysql_server: MySqlServer, today: MySqlSettings
) -> None:
    expected = everything(mysql_server, today)
    shape = _shape(mysql_server, today)
    run(mysql_server, today, *NARROW)
    opened(today).close()
    assert everything(mysql_server, today) == expected
    assert _shape(mysql_server, today) == shape
    assert [row["version"] for row in read(mysql_server, today, "schema_version")] == [4]
    assert not is_replay_of_next(today)


def test_a_driver_that_dies_while_version_3_is_brought_up_leaves_it_to_the_next(
    mysql_server: MySqlServer, today: MySqlSettings
) -> None:
    expected, shape = everything(mysql_server, today), _shape(mysql_server, today)
    at = 1
    while True:
        run(mysql_server, today, *NARROW)
        faults = Faults(at, after=bool(at % 2))
        dying = MySqlSink(today, patience_s=0, connect=faults.connect)
        with contextlib.suppress(SinkUnavailable):
            dying.open(worked.QUERY, METRICS[:-1], 0)
        dying.close()
        opened(today).close()
        assert everything(mysql_server, today) == expected, f"died at call {at}"
        assert _shape(mysql_server, today) == shape
        if not faults.broken:
            break
        at += 3
    assert at > 30


def test_an_old_copy_put_in_place_of_a_present_database_is_brought_up_too(
    mysql_server: MySqlServer, today: MySqlSettings, version: int
) -> None:
    expected = everything(mysql_server, today)
    target = counted(mysql_server.new_database(), NEXT)
    run(mysql_server, target, "DROP VIEW windows")
    # Its cells stay, although no row names their metric.
    for table in ("sink_guard", "window_keys", "ledger", "metrics"):
        run(mysql_server, target, f"DROP TABLE {table}")
    if version == 2:
        run(mysql_server, target, "DROP TABLE schema_version")
    set_back(mysql_server, today, target, version)
    opened(target)
    assert everything(mysql_server, target) == expected


def test_a_newer_database_is_left_alone(mysql_server: MySqlServer, today: MySqlSettings) -> None:
    run(mysql_server, today, "UPDATE schema_version SET version = 5")
    guard = read(mysql_server, today, "sink_guard")
    with pytest.raises(SchemaTooNew, match=r"version 5.*version 4"):
        opened(today)
    assert read(mysql_server, today, "sink_guard") == guard


def test_nothing_is_forgotten_before_the_tables_are_of_today(
    mysql_server: MySqlServer, old: MySqlSettings
) -> None:
    before = everything(mysql_server, old)
    with pytest.raises(SinkUnavailable, match="older version: let the stream start once"):
        forget_metric(SinksSettings(mysql=old), "gone")
    assert everything(mysql_server, old) == before
    opened(old)
    forget_metric(SinksSettings(mysql=old), "gone")
    assert [r for r in read(mysql_server, old, "windows") if r["metric"] == "gone"] == []
