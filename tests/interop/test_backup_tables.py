"""A database written as SQL and run on another server has every value of one moment, unchanged."""

import io
import os
from datetime import UTC, datetime
from typing import Any

import pytest

from appliance.backup import tables
from sinks.config import MySqlSettings
from sinks.mysql.link import connect
from sinks.mysql.tables import prepare
from tests.harness.mysql import MySqlServer

ODD_TEXTS = (
    "",
    "plain",
    "a 'quote', a \"double\" one, a \\ and a ;",
    "two\nlines\r\nand a tab\t",
    "\x00 NUL, \x1a end, \x85 next line, \u2028 separator",
    "Straße 東京 🌍",
    "%s %(name)s {}",
)
ODD_BYTES = (b"", b"\x00\xff'\\\n;", bytes(range(256)))


def everything(settings: MySqlSettings) -> dict[str, list[tuple[Any, ...]]]:
    connection = connect(settings)
    with connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        names = [name for (name,) in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(f"SELECT * FROM `{name}`")
            found[name] = sorted(cursor.fetchall(), key=repr)
    connection.close()
    return found


def fill(settings: MySqlSettings) -> None:
    """Create the tables and a view, with values of every kind."""
    connection = connect(settings)
    with connection.cursor() as cursor:
        prepare(cursor)
        for number, text in enumerate(ODD_TEXTS):
            for index, data in enumerate(ODD_BYTES):
                start_at = datetime(2026, 8, 1, 10, index, tzinfo=UTC).replace(tzinfo=None)
                cursor.execute(
                    "INSERT INTO window_keys (metric, size_s, start_at, n_keys)"
                    " VALUES ('m', %s, %s, 1)",
                    (number, start_at),
                )
                cursor.execute(
                    "INSERT INTO window_cells (window_number, k_id, k1, `count`, `sum`, `min`,"
                    " value, quantiles, hll, seq)"
                    " VALUES (LAST_INSERT_ID(), %s, %s, %s, %s, %s, NULL, %s, %s, 7)",
                    (
                        b"#" + os.urandom(16),
                        text,
                        2**63 - 1,
                        "99999999999999999999999999.123456789012",
                        "-0.000000000001",
                        '{"p50": 1.5}' if index else None,
                        data,
                    ),
                )
        cursor.execute("INSERT INTO ledger VALUES ('logs.access', 0, 12345)")
        cursor.execute("CREATE SQL SECURITY INVOKER VIEW `a view` AS SELECT k1 FROM windows")
    connection.close()


@pytest.fixture
def old(mysql_server: MySqlServer) -> MySqlSettings:
    settings = mysql_server.new_database()
    fill(settings)
    return settings


def test_every_value_comes_back(
    old: MySqlSettings, mysql_server: MySqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Make statements short, so that a table needs several of them.
    monkeypatch.setattr(tables, "STATEMENT_BYTES", 500)
    view, text = tables.open_view(old), io.StringIO(newline="\n")
    tables.begin(view)
    rows = tables.write(view, text)
    view.close()
    new = mysql_server.new_database()
    connection = tables.open_view(new)
    tables.run(connection, io.StringIO(text.getvalue(), newline="\n"))
    connection.close()
    before = everything(old)
    assert everything(new) == before
    assert rows == sum(len(before[name]) for name in before.keys() - {"a view", "windows"})
    assert len(before["windows"]) == len(ODD_TEXTS) * len(ODD_BYTES)


def test_what_is_written_after_the_moment_is_not_in_it(
    old: MySqlSettings, mysql_server: MySqlServer
) -> None:
    view, text = tables.open_view(old), io.StringIO(newline="\n")
    tables.begin(view)
    before = everything(old)
    connection = connect(old)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger SET end_offset = 99999")
        cursor.execute("DELETE FROM window_cells WHERE window_number < 3")
    connection.close()
    tables.write(view, text)
    view.close()
    new = mysql_server.new_database()
    connection = tables.open_view(new)
    tables.run(connection, io.StringIO(text.getvalue(), newline="\n"))
    connection.close()
    assert everything(new) == before
    assert everything(old) != before


def test_what_the_server_refuses_is_said(old: MySqlSettings, mysql_server: MySqlServer) -> None:
    connection = tables.open_view(mysql_server.new_database())
    with pytest.raises(tables.DatabaseFailed, match="doesn't exist"):
        tables.run(connection, ["INSERT INTO nothing VALUES (1);\n"])
    connection.close()
    with pytest.raises(tables.DatabaseFailed, match="cannot connect to MySQL for the backup: "):
        tables.open_view(old.model_copy(update={"password": "not the password"}))
