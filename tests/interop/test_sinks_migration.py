"""Databases of version 1 are brought to the present shape in place, whatever dies meanwhile.

The statements of version 1 stand here. What it would have written is made of what is written today:
six places, hashes over the full values, an index on `seq`.
"""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pytest

from sinks import migrate
from sinks.config import MySqlSettings, RedisSettings, SinksSettings
from sinks.errors import Fenced, SchemaTooNew, SinkUnavailable
from sinks.keys import Key, is_other, key_hash, other_key
from sinks.migrate import Migration
from sinks.mysql_sink import MySqlSink
from sinks.redis_truth import RedisTruth
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Outcome, Sinks
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
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
CELL_TABLES = ("windows", "window_keys")
TABLES = (*CELL_TABLES, "ledger", "metrics")

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
    return {table: read(server, settings, table) for table in TABLES}


def write(
    server: MySqlServer, settings: MySqlSettings, table: str, rows: Sequence[dict[str, Any]]
) -> None:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        for row in rows:
            names = ", ".join(f"`{name}`" for name in row)
            marks = ", ".join(["%s"] * len(row))
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def run(server: MySqlServer, settings: MySqlSettings, *statements: str) -> None:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def set_back(server: MySqlServer, of: MySqlSettings, to: MySqlSettings) -> None:
    """Fill an empty database as version 1 would have."""
    run(server, to, *VERSION_1)
    for row in read(server, of, "windows"):
        write(server, to, "windows", [{**row, "k_hash": HASHES[bytes(row["k_hash"])]}])
    for row in read(server, of, "window_keys"):
        write(server, to, "window_keys", [{n: v for n, v in row.items() if n != "seq"}])
    for table in ("sink_guard", "ledger", "metrics"):
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


@pytest.fixture
def old(mysql_server: MySqlServer, today: MySqlSettings) -> MySqlSettings:
    settings = mysql_server.new_database()
    set_back(mysql_server, today, settings)
    return settings


def opened(settings: MySqlSettings, **more: Any) -> MySqlSink:
    """A driver that does not know the metric `gone`."""
    sink = MySqlSink(settings, patience_s=5, **more)
    sink.open(worked.QUERY, METRICS[:-1], 0)
    return sink


def test_an_old_database_becomes_what_today_would_have_written(
    mysql_server: MySqlServer,
    today: MySqlSettings,
    old: MySqlSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(migrate, "CELLS_PER_STEP", 20)
    with caplog.at_level(logging.INFO, "sinks"):
        sink = opened(old)
    assert everything(mysql_server, old) == everything(mysql_server, today)
    told = [record.getMessage() for record in caplog.records]
    assert sum("cells copied" in line for line in told) > 3
    assert told[-1] == "the database is of version 2"
    for settings in (old, today):
        assert [row["version"] for row in read(mysql_server, settings, "schema_version")] == [2]
    shape = [_shape(mysql_server, settings) for settings in (old, today)]
    assert shape[0] == shape[1]
    assert sorted({row["Table"] for row in shape[0]}) == ["window_keys", "windows"]
    # It goes on as one that was always of this version.
    assert sink.apply(batches()[1]).replayed
    for settings in (old, today):
        later = MySqlSink(settings, patience_s=5)
        later.open(worked.QUERY, METRICS, 0)
        assert not later.apply(NEXT).replayed
        later.close()
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
    return shapes


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
def test_a_driver_that_dies_at_any_statement_leaves_it_to_the_next(
    mysql_server: MySqlServer, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(migrate, "CELLS_PER_STEP", 14)
    few = [
        dataclasses.replace(one, rows=[row for row in one.rows if row.metric == TWO.name])
        for one in batches()
    ]
    today = counted(mysql_server.new_database(), *few, metrics=[TWO])
    expected = everything(mysql_server, today)
    kept, old = mysql_server.new_database(), mysql_server.new_database()
    set_back(mysql_server, today, kept)
    names = ["schema_version", "sink_guard", *TABLES, migrate.COPY, migrate.OLD]
    at = 1
    while True:
        run(
            mysql_server,
            old,
            *VERSION_1,
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
        run(mysql_server, old, *(f"DROP TABLE IF EXISTS {name}" for name in names))
        if not faults.broken:
            break
        at += 1
    assert at > 60


def test_a_rename_that_was_half_done_is_done_to_the_end(
    mysql_server: MySqlServer, today: MySqlSettings, old: MySqlSettings
) -> None:
    sink = MySqlSink(old, patience_s=5)
    migration = Migration(old.database, {one.name: one for one in METRICS})
    monkey = mysql_server.connect(old)
    sink._patiently(lambda: sink._plainly(migrate.prepare))
    while not _is_renamed(mysql_server, old):
        assert sink._patiently(lambda: sink._in_transaction(migration.step))
    with monkey, monkey.cursor() as cursor:
        cursor.execute(f"RENAME TABLE windows TO {migrate.COPY}")
    opened(old)
    assert everything(mysql_server, old) == everything(mysql_server, today)


def _is_renamed(server: MySqlServer, settings: MySqlSettings) -> bool:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        return bool(cursor.execute(f"SHOW TABLES LIKE '{migrate.OLD}'"))


def test_a_driver_that_was_fenced_leaves_the_tables_alone(
    mysql_server: MySqlServer, old: MySqlSettings
) -> None:
    first = opened(old)
    second = opened(old)
    migration = Migration(old.database, {})
    with pytest.raises(Fenced):
        first._plainly(lambda cursor: first._migrate(migration, cursor))
    with mysql_server.connect(old) as other, other.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", (migration._lock,))
        with pytest.raises(SinkUnavailable, match="another driver"):
            second._plainly(lambda cursor: second._migrate(migration, cursor))


def test_numbers_beyond_the_present_columns_stand_at_their_limits(
    mysql_server: MySqlServer, old: MySqlSettings, caplog: pytest.LogCaptureFixture
) -> None:
    run(
        mysql_server,
        old,
        f"UPDATE windows SET `sum` = -{'9' * 32}, `max` = {'9' * 20}, value = {'9' * 32} "
        "WHERE metric = 'bytes_by_host'",
    )
    with caplog.at_level(logging.WARNING, "sinks"):
        opened(old)
    rows = [r for r in read(mysql_server, old, "windows") if r["metric"] == "bytes_by_host"]
    limit = "9" * 26 + "." + "9" * 12
    assert {str(row["sum"]) for row in rows} == {"-" + limit}
    assert {str(row["value"]) for row in rows} == {limit}
    assert {str(row["max"]) for row in rows} == {"9" * 16 + "." + "9" * 12}
    assert "6 cells of bytes_by_host" in caplog.text


def test_an_old_copy_put_in_place_of_a_present_database_is_brought_up_too(
    mysql_server: MySqlServer, today: MySqlSettings
) -> None:
    expected = everything(mysql_server, today)
    target = counted(mysql_server.new_database())
    for table in ("sink_guard", *TABLES):
        run(mysql_server, target, f"DROP TABLE {table}")
    set_back(mysql_server, today, target)
    opened(target)
    assert everything(mysql_server, target) == expected


def test_a_newer_database_is_left_alone(mysql_server: MySqlServer, today: MySqlSettings) -> None:
    run(mysql_server, today, "UPDATE schema_version SET version = 3")
    guard = read(mysql_server, today, "sink_guard")
    with pytest.raises(SchemaTooNew, match=r"version 3.*version 2"):
        opened(today)
    assert read(mysql_server, today, "sink_guard") == guard


def redis_driver(settings: RedisSettings, metrics: Sequence[MetricDefinition] = METRICS) -> Sinks:
    return Sinks(SinksSettings(redis=settings), metrics, clock_ms=lambda: worked.NOW_MS)


def states(client: Any) -> dict[str, dict[str, str]]:
    return {key: client.hgetall(key) for key in client.scan_iter("mill:state:*")}


def set_states_back(client: Any) -> None:
    """Cells under the hashes of version 1."""
    client.delete("mill:state_version")
    for key, fields in states(client).items():
        expiry = client.expiretime(key)
        client.delete(key)
        for name, text in fields.items():
            is_cell = name != "n_keys"
            old = HASHES[bytes.fromhex(name)].hex() if is_cell else name
            client.hset(key, old, text)
        if expiry > 0:
            client.expireat(key, expiry)


def test_a_redis_that_is_the_only_sink_is_brought_up_and_goes_on(tmp_path: Any) -> None:
    with RedisServer(tmp_path / "r", durable=True) as server:
        client: Any = server.client()
        sinks = redis_driver(server.settings)
        assert not sinks.takes_blocks
        sinks.open(worked.QUERY)
        for batch in batches():
            sinks.apply(batch)
        expected = states(client)
        expiries = {key: client.expiretime(key) for key in expected}
        set_states_back(client)
        assert states(client) != expected
        # As a driver leaves it that died half way: some keys are done.
        done = sorted(expected)[: len(expected) // 2]
        for key in done:
            client.delete(key)
            client.hset(key, mapping=expected[key])
            client.expireat(key, expiries[key])
        again = redis_driver(server.settings)
        again.open(worked.QUERY)
        assert states(client) == expected
        assert {key: client.expiretime(key) for key in expected} == expiries
        assert client.get("mill:state_version") == "2"
        assert again.apply(batches()[1]) is Outcome.REPLAYED
        assert again.apply(NEXT) is Outcome.MERGED
        assert client.hget("mill:requests_by_status:1m:21260801T100000Z", "404") == "2"
        key = "mill:state:by_two:1m:21260801T100000Z"
        cell = json.loads(states(client)[key][key_hash(("GET", "/")).hex()])
        assert cell["count"] == 9


def test_a_fenced_driver_brings_no_states_up(tmp_path: Any) -> None:
    with RedisServer(tmp_path / "r", durable=True) as server:
        first, second = RedisTruth(server.settings), RedisTruth(server.settings)
        first.open(worked.QUERY, METRICS, 0)
        first.apply(batches()[0])
        second.open(worked.QUERY, METRICS, 0)
        set_states_back(server.client())
        before = states(server.client())
        with pytest.raises(Fenced):
            first._bring_states_up()
        assert states(server.client()) == before
