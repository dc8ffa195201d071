"""A large batch in pieces, on real servers: each once, whatever ends in between."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor

from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import LedgerMismatch
from sinks.mysql import link as mysql_link
from sinks.mysql.growth import rows_of
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, OffsetRange
from sinks.store import Outcome, Sinks
from tests.harness import worked
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

METRIC = worked.DEFINITIONS[0]
TEN = worked.at("10:00:00")
Drive = Callable[[], Sinks]


@pytest.fixture
def database(mysql_server: MySqlServer) -> MySqlSettings:
    return mysql_server.new_database()


@pytest.fixture
def drive(database: MySqlSettings, redis_server: RedisServer) -> Iterator[Drive]:
    """Drivers of one query, opened; closed when the test ends."""
    settings = SinksSettings(mysql=database, redis=redis_server.settings)
    with contextlib.ExitStack() as stack:

        def make() -> Sinks:
            sinks = Sinks(settings, [METRIC], clock_ms=lambda: worked.NOW_MS, tend_every_s=60)
            stack.callback(sinks.close)
            sinks.open(worked.QUERY)
            return sinks

        yield make


def piece(batch_id: int, start: int, end: int, *, is_last: bool) -> Batch:
    key = tuple("a" for _ in METRIC.key_columns)
    return Batch(
        worked.QUERY,
        batch_id,
        [FoldRow(METRIC.name, TEN, key, end - start)],
        (),
        [OffsetRange("logs.access", 0, start, end)],
        end - start,
        worked.NOW_MS,
        is_last=is_last,
    )


def counted(mysql_server: MySqlServer, database: MySqlSettings) -> int:
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(`count`) AS n FROM windows WHERE size_s = %s", (METRIC.windows_s[0],)
        )
        (found,) = cursor.fetchall()
    return int(found["n"])


def test_pieces_of_a_batch_count_once_each_and_the_id_with_the_last(
    drive: Drive, mysql_server: MySqlServer, database: MySqlSettings
) -> None:
    sinks = drive()
    first, second = piece(0, 0, 10, is_last=False), piece(0, 10, 25, is_last=True)
    assert [sinks.apply(one) for one in (first, first)] == [Outcome.MERGED, Outcome.REPLAYED]
    # Spark gives the whole batch again to a driver that died here.
    sinks = drive()
    assert [sinks.apply(one) for one in (first, second)] == [Outcome.REPLAYED, Outcome.MERGED]
    assert [sinks.apply(one) for one in (first, second)] == [Outcome.REPLAYED] * 2
    assert sinks.apply(piece(1, 25, 30, is_last=True)) is Outcome.MERGED
    assert counted(mysql_server, database) == 30


def test_a_batch_that_is_cut_otherwise_than_before_is_refused(
    drive: Drive, mysql_server: MySqlServer, database: MySqlSettings
) -> None:
    sinks = drive()
    sinks.apply(piece(0, 0, 10, is_last=False))
    with pytest.raises(LedgerMismatch):
        sinks.apply(piece(0, 0, 25, is_last=True))
    assert counted(mysql_server, database) == 10


class SlowCommit:
    """A connection whose server is still at its COMMIT when the client takes the link for lost."""

    def __init__(self, real: mysql_link.Connection) -> None:
        self._real = real
        self.may_commit = threading.Event()
        self.committing: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self) -> None:
        self.committing = threading.Thread(target=self._commit)
        self.committing.start()
        raise pymysql.err.OperationalError(2013, "Lost connection to server during query")

    def close(self) -> None:
        """The server does not hear of it before it has committed."""

    def _commit(self) -> None:
        assert self.may_commit.wait(30)
        self._real.commit()
        self._real.close()


def waits_for_a_lock(mysql_server: MySqlServer, database: MySqlSettings) -> bool:
    with mysql_server.connect(database) as connection, connection.cursor(Cursor) as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        )
        return bool(cursor.fetchone()[0])


def test_a_piece_whose_commit_is_slow_is_not_counted_by_the_next_try_as_well(
    mysql_server: MySqlServer, database: MySqlSettings
) -> None:
    slow: list[SlowCommit] = []

    def connect(settings: MySqlSettings) -> Any:
        real = mysql_link.connect(settings)
        if not is_slow.is_set() or slow:
            return real
        slow.append(SlowCommit(real))
        return slow[0]

    is_slow = threading.Event()
    sink = MySqlSink(database, patience_s=20, connect=connect)
    sink.open(worked.QUERY, [METRIC], worked.NOW_MS // 1000)
    sink.close()
    is_slow.set()
    found: list[bool] = []
    trying = threading.Thread(
        target=lambda: found.append(sink.apply(piece(0, 0, 10, is_last=False)).replayed)
    )
    trying.start()
    wait_until(lambda: waits_for_a_lock(mysql_server, database), 20, "the next try waits")
    slow[0].may_commit.set()
    trying.join()
    sink.close()
    assert found == [True]
    assert counted(mysql_server, database) == 10


def test_a_server_knows_its_rows_without_counting_them(
    drive: Drive, mysql_server: MySqlServer, database: MySqlSettings
) -> None:
    drive().apply(piece(0, 0, 10, is_last=True))
    with (
        mysql_server.connect(database) as connection,
        connection.cursor(Cursor) as cursor,
    ):
        stored = rows_of(cursor, worked.NOW_MS // 1000)
    assert {one.size_s: one.rows for one in stored.sizes} == dict.fromkeys(METRIC.windows_s, 1)
    assert {one.size_s: one.recent for one in stored.sizes if one.size_s} == {
        size_s: 1 for size_s in METRIC.windows_s if size_s
    }
    assert stored.table_bytes > 0 and stored.bytes_per_row > 0
