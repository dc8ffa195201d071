"""The stream creates missing tables of the current version, and leaves tables of other versions
unchanged."""

import contextlib
import re
from typing import Any

import pytest

from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import SchemaTooNew, SchemaTooOld, SinkUnavailable
from sinks.forget import forget_metric
from sinks.mysql.sink import MySqlSink
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.interop.test_sinks_faults import Faults

pytestmark = pytest.mark.live

METRICS = worked.DEFINITIONS

WINDOWS_BEFORE = (
    "CREATE TABLE windows (metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, "
    "start_at DATETIME NOT NULL, k_hash BINARY(16) NOT NULL, `count` BIGINT NOT NULL, "
    "PRIMARY KEY (metric, size_s, start_at, k_hash))"
)
KEYS_BEFORE = (
    "CREATE TABLE window_keys (metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, "
    "start_at DATETIME NOT NULL, n_keys INT NOT NULL, PRIMARY KEY (metric, size_s, start_at))"
)
METRICS_BEFORE = (
    "CREATE TABLE metrics (name VARCHAR(48) PRIMARY KEY, definition_hash BINARY(16) NOT NULL, "
    "since DATETIME NOT NULL)"
)
VERSION_BEFORE = (
    "CREATE TABLE schema_version (id TINYINT PRIMARY KEY DEFAULT 1, version INT NOT NULL)",
    "INSERT INTO schema_version VALUES (1, 2)",
)
NARROW = "ALTER TABLE window_cells MODIFY `sum` DECIMAL(38,12)"


def run(server: MySqlServer, settings: MySqlSettings, *statements: str) -> None:
    with server.connect(settings) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def everything(server: MySqlServer, settings: MySqlSettings) -> dict[str, Any]:
    """Return the rows of each table and view, and the CREATE statement of each."""
    found: dict[str, Any] = {}
    with server.connect(settings) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        for name in [str(*row.values()) for row in cursor.fetchall()]:
            cursor.execute(f"SHOW CREATE TABLE {name}")
            (made,) = cursor.fetchall()
            cursor.execute(f"SELECT * FROM {name}")
            found[name] = (made, sorted(cursor.fetchall(), key=repr))
    return found


def shapes(server: MySqlServer, settings: MySqlSettings) -> dict[str, str]:
    """Return the CREATE statement of each table and view, without the database's name."""
    return {
        name: re.sub(rf"`{settings.database}`\.| AUTO_INCREMENT=\d+", "", str(made))
        for name, (made, _) in everything(server, settings).items()
    }


def opened(settings: MySqlSettings, **more: Any) -> MySqlSink:
    sink = MySqlSink(settings, patience_s=5, **more)
    sink.open(worked.QUERY, METRICS, 0)
    return sink


@pytest.fixture
def today(mysql_server: MySqlServer) -> MySqlSettings:
    """Return a database of the current version that has counts."""
    settings = mysql_server.new_database()
    sink = opened(settings)
    sink.apply(worked.BATCH_7)
    sink.close()
    return settings


def refused(
    server: MySqlServer, settings: MySqlSettings, error: type[Exception], text: str
) -> None:
    """Check that the stream and `stream forget` raise this error and change nothing."""
    before = everything(server, settings)
    with pytest.raises(error, match=text):
        opened(settings)
    with pytest.raises(error, match=text):
        forget_metric(SinksSettings(mysql=settings), METRICS[0].name)
    assert everything(server, settings) == before


@pytest.mark.parametrize(
    ("found", "statements"),
    [
        ("an older version", (WINDOWS_BEFORE, KEYS_BEFORE, METRICS_BEFORE)),
        ("an older version", (WINDOWS_BEFORE,)),
        ("an older version", (KEYS_BEFORE,)),
        ("an older version", (METRICS_BEFORE,)),
        ("version 2", (WINDOWS_BEFORE, KEYS_BEFORE, METRICS_BEFORE, *VERSION_BEFORE)),
        ("version 2", VERSION_BEFORE),
    ],
    ids=["version 1", "windows", "keys", "metrics", "version 2", "version alone"],
)
def test_tables_of_before_the_first_release_are_refused(
    mysql_server: MySqlServer, found: str, statements: tuple[str, ...]
) -> None:
    settings = mysql_server.new_database()
    run(mysql_server, settings, *statements)
    text = rf"MySQL has counts of {found}, .* reads version 4 .*under sinks\.mysql\.database"
    refused(mysql_server, settings, SchemaTooOld, text)


@pytest.mark.parametrize(
    ("found", "statements"),
    [
        ("version 3", (NARROW, "UPDATE schema_version SET version = 3")),
        ("an older version", (NARROW,)),
        ("an older version", ("DROP TABLE schema_version", NARROW)),
        ("an older version", ("DROP VIEW windows", WINDOWS_BEFORE)),
        ("an older version", ("DROP VIEW windows", "DROP TABLE window_keys", KEYS_BEFORE)),
    ],
    ids=["version 3", "narrow sums", "without a version", "windows", "keys"],
)
def test_older_tables_among_those_of_today_are_refused(
    mysql_server: MySqlServer, today: MySqlSettings, found: str, statements: tuple[str, ...]
) -> None:
    """Older tables can be among current ones after a user has restored an older backup over a
    current database."""
    run(mysql_server, today, *(f"DROP VIEW {one.name}" for one in METRICS))
    run(mysql_server, today, *statements)
    refused(mysql_server, today, SchemaTooOld, f"MySQL has counts of {found}, ")


def test_a_newer_database_is_refused(mysql_server: MySqlServer, today: MySqlSettings) -> None:
    run(mysql_server, today, "UPDATE schema_version SET version = 5")
    refused(mysql_server, today, SchemaTooNew, r"version 5.*version 4")


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
def test_a_driver_that_dies_at_any_statement_leaves_the_rest_to_the_next(
    mysql_server: MySqlServer, today: MySqlSettings, after: bool
) -> None:
    expected = shapes(mysql_server, today)
    at, is_dead = 1, True
    while is_dead:
        settings = mysql_server.new_database()
        faults = Faults(at, after=after)
        dying = MySqlSink(settings, patience_s=0, connect=faults.connect)
        with contextlib.suppress(SinkUnavailable):
            dying.open(worked.QUERY, METRICS, 0)
        dying.close()
        sink = opened(settings)
        assert not sink.apply(worked.BATCH_7).replayed, f"died at call {at}"
        sink.close()
        assert shapes(mysql_server, settings) == expected, f"died at call {at}"
        is_dead, at = faults.broken, at + 1
    assert at > 30


@pytest.mark.parametrize("name", ["window_cells", "window_keys", "window_sizes", "schema_version"])
def test_tables_that_a_user_dropped_are_made_again(
    mysql_server: MySqlServer, today: MySqlSettings, name: str
) -> None:
    before = everything(mysql_server, today)
    expected = shapes(mysql_server, today)
    run(mysql_server, today, f"DROP TABLE {name}")
    opened(today).close()
    assert shapes(mysql_server, today) == expected
    found = everything(mysql_server, today)
    assert found["ledger"] == before["ledger"]
    # If the table of cells or of windows was dropped, the other one must be emptied, too.
    # Otherwise old cells would appear in a later window that gets the same number.
    emptied = name in ("window_cells", "window_keys")
    assert (found["window_cells"][1] == []) == emptied
    assert (found["windows"][1] == []) == emptied


def test_views_that_a_user_dropped_are_made_again(
    mysql_server: MySqlServer, today: MySqlSettings
) -> None:
    before = everything(mysql_server, today)
    run(mysql_server, today, *(f"DROP VIEW {name}" for name in ("windows", METRICS[0].name)))
    opened(today).close()
    found = everything(mysql_server, today)
    assert {k: v for k, v in found.items() if k != "sink_guard"} == {
        k: v for k, v in before.items() if k != "sink_guard"
    }
