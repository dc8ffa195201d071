"""One connection to MySQL or MariaDB, opened when needed, and which faults mean what."""

from collections.abc import Callable
from typing import Any, Protocol

import pymysql
from pymysql.constants import CLIENT

from sinks.config import MySqlSettings
from sinks.mysql.schema import TOUCHED

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 60
SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION time_zone = '+00:00'",
    # Shorter than the wait for an answer, so that a lock is reported as one.
    "SET SESSION innodb_lock_wait_timeout = 5",
)
# A whole transaction is to be tried again: deadlock; lock wait (which undoes a statement only).
TRY_AGAIN = frozenset({1205, 1213})
# The server or the way to it is gone, or it will not have us at the moment.
AWAY = frozenset({1040, 1041, 1043, 1045, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1927,
                  2002, 2003, 2006, 2013, 2014, 2055, 4031})  # fmt: skip

Connect = Callable[[MySqlSettings], "Connection"]


class Connection(Protocol):
    """What the sink uses of a PyMySQL connection."""

    def cursor(self, cursor: Any = None) -> Any:
        """A new cursor, of another class if one is given."""
        ...

    def begin(self) -> None:
        """Open a transaction."""
        ...

    def commit(self) -> None:
        """Make it durable."""
        ...

    def rollback(self) -> None:
        """Undo it."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


def connect(settings: MySqlSettings) -> Connection:
    """Open a session set up for merging; raises pymysql.err.Error."""
    connection = pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password,
        database=settings.database,
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


def prepare_for_merging(connection: Connection) -> None:
    """Make the session's own table of touched keys."""
    with connection.cursor() as cursor:
        cursor.execute(TOUCHED)


def error_code(error: pymysql.err.Error) -> int | None:
    """The server's or client's number of a fault."""
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else None


def is_away(error: pymysql.err.Error) -> bool:
    """Whether the link is gone: nothing is known of a transaction that was under way."""
    return isinstance(error, pymysql.err.InterfaceError) or error_code(error) in AWAY


def is_worth_retrying(error: pymysql.err.Error) -> bool:
    """Whether the same transaction may pass when it is sent again on the same link."""
    return error_code(error) in TRY_AGAIN
