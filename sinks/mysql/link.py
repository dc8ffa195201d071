"""Opens connections to MySQL or MariaDB, and classifies their errors."""

from collections.abc import Callable
from typing import Any, Protocol

import pymysql
from pymysql.constants import CLIENT

from sinks.config import MySqlSettings
from sinks.connections import connect_mysql
from sinks.mysql.schema import TOUCHED

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 60
SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION time_zone = '+00:00'",
    # Keep this below ANSWER_TIMEOUT_S, so that a long wait for a lock ends with the error for a
    # lock and not with a lost connection.
    "SET SESSION innodb_lock_wait_timeout = 5",
)
# Errors after which the whole transaction is tried again: a lock wait that took too long (which
# undoes only one statement), and a deadlock.
TRY_AGAIN = frozenset({1205, 1213})
# Errors after which the batch waits: the server or the connection is lost, or the server refuses
# the connection at the moment.
AWAY = frozenset({1040, 1041, 1043, 1045, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1927,
                  2002, 2003, 2006, 2013, 2014, 2026, 2055, 4031})  # fmt: skip

Connect = Callable[[MySqlSettings], "MySqlConnection"]


class MySqlConnection(Protocol):
    """The methods of a PyMySQL connection that the sink uses."""

    def cursor(self, cursor: Any = None) -> Any:
        """Return a new cursor, of another class if one is given."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def commit(self) -> None:
        """Commit the transaction."""
        ...

    def rollback(self) -> None:
        """Roll the transaction back."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def connect(settings: MySqlSettings) -> MySqlConnection:
    """Open a session for merging; raises pymysql.err.Error."""
    connection = connect_mysql(
        settings,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=ANSWER_TIMEOUT_S,
        write_timeout=ANSWER_TIMEOUT_S,
        client_flag=CLIENT.FOUND_ROWS,
    )
    with connection.cursor() as cursor:
        for statement in SESSION:
            cursor.execute(statement)
    return connection


def prepare_for_merging(connection: MySqlConnection) -> None:
    """Create the session's temporary table `touched`, for the keys that a merge reads."""
    with connection.cursor() as cursor:
        cursor.execute(TOUCHED)


def error_code(error: pymysql.err.Error) -> int | None:
    """Return the error code of the server or the client library; None if the error has none."""
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else None


def is_away(error: pymysql.err.Error) -> bool:
    """Tell whether the connection is lost, so the result of an open transaction is unknown."""
    return isinstance(error, pymysql.err.InterfaceError) or error_code(error) in AWAY


def is_worth_retrying(error: pymysql.err.Error) -> bool:
    """Tell whether the same transaction can succeed when it is repeated on this connection."""
    return error_code(error) in TRY_AGAIN
