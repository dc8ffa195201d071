"""Writes the database as SQL from a consistent snapshot, one statement per line, and runs such a
file.

It works like `mysqldump --single-transaction`, except that the caller chooses the moment of the
snapshot, which must be while the mill is paused. Every client of MySQL or MariaDB can run the file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import pymysql
from pymysql.converters import encoders, escape_string
from pymysql.cursors import SSCursor

from appliance.errors import Failure
from sinks.config import MySqlSettings
from sinks.connections import connect_mysql
from sinks.mysql.link import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S

AS_WRITTEN: dict[Any, Any] = dict(encoders)
"""The conversions of a connection that returns values as the server writes them.

PyMySQL's conversions to numbers and dates are slow, and this module needs the values as text.
"""

STATEMENT_BYTES = 1 << 20
"""The length in bytes of an INSERT statement. It is far below the 16 MiB that a server accepts by
default."""

HEAD = (
    "SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION autocommit = 0",
)


class DatabaseFailed(Failure):
    """Raised when the database could not be read or restored. The text says why."""


def open_view(settings: MySqlSettings) -> Any:
    """Open a connection that returns values as the server writes them. Raises DatabaseFailed."""
    try:
        return connect_mysql(
            settings,
            charset="utf8mb4",
            conv=AS_WRITTEN,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=ANSWER_TIMEOUT_S,
            init_command="SET SESSION time_zone = '+00:00'",
        )
    except pymysql.err.Error as error:
        raise DatabaseFailed(f"cannot connect to MySQL for the backup: {error}") from error


def begin(connection: Any) -> None:
    """Start a consistent snapshot. All later reads of this connection return the state at this
    moment."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    except pymysql.err.Error as error:
        raise DatabaseFailed(f"MySQL cannot start a snapshot for the backup: {error}") from error


def write(connection: Any, file: TextIO) -> int:
    """Write every table and view; return the number of rows. Raises DatabaseFailed."""
    try:
        return sum(_lines(connection, file))
    except pymysql.err.Error as error:
        raise DatabaseFailed(f"MySQL's tables cannot be read for the backup: {error}") from error


def _lines(connection: Any, file: TextIO) -> Iterator[int]:
    for statement in HEAD:
        file.write(f"{statement};\n")
    with connection.cursor() as cursor:
        cursor.execute("SHOW FULL TABLES")
        kinds = dict(cursor.fetchall())
    views: dict[str, str] = {}
    for name in sorted(kinds):
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW CREATE TABLE {quoted(name)}")
            made = one_line(cursor.fetchone()[1])
        if kinds[name] == "VIEW":
            views[name] = made
            continue
        file.write(f"{made};\n")
        with connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT * FROM {quoted(name)}")
            columns = [column[0] for column in cursor.description]
            yield from _inserts(name, columns, iter(cursor.fetchone, None), file)
    for name in _in_order(views):
        file.write(f"{views[name]};\n")
    file.write("COMMIT;\n")


def _in_order(views: Mapping[str, str]) -> Iterator[str]:
    """Order views so that each comes after the views that its statement names."""
    left = set(views)
    while left:
        ready = [n for n in left if not any(quoted(o) in views[n] for o in left - {n})]
        # Two views can name each other in their columns. In this case no order is right, so use any
        # order.
        for name in sorted(ready or left):
            left.discard(name)
            yield name


def _inserts(
    table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], file: TextIO
) -> Iterator[int]:
    head = f"INSERT INTO {quoted(table)} ({', '.join(map(quoted, columns))}) VALUES "
    length = 0
    for row in rows:
        text = f"({', '.join(map(literal, row))})"
        file.write(f", {text}" if length else f"{head}{text}")
        length += len(text)
        if length >= STATEMENT_BYTES:
            file.write(";\n")
            length = 0
        yield 1
    if length:
        file.write(";\n")


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return f"`{name.replace('`', '``')}`"


def literal(value: str | bytes | None) -> str:
    """Return a value as an SQL literal in one line. A number is written as exact text."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return f"'{escape_string(value)}'"


def one_line(statement: str) -> str:
    """Join the lines of a CREATE statement. It has line ends only between its columns."""
    return " ".join(line.strip() for line in statement.splitlines())


def run(connection: Any, lines: Iterable[str]) -> None:
    """Run the statements that `write` has written. Raises DatabaseFailed."""
    try:
        with connection.cursor() as cursor:
            for line in lines:
                cursor.execute(line.rstrip("\n").removesuffix(";"))
    except pymysql.err.Error as error:
        raise DatabaseFailed(f"MySQL cannot run a statement of the backup: {error}") from error
