"""A large batch is applied in pieces on real servers. Each piece counts once, even if the driver
ends between two pieces."""

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
from sinks.mysql.recounts import ask_for, give_up
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, OffsetRange, UnparsedRow
from sinks.store import BatchOutcome, Sinks
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
    """Return a function that opens drivers of one query. They are closed after the test."""
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
    assert [sinks.apply(one) for one in (first, first)] == [
        BatchOutcome.MERGED,
        BatchOutcome.REPLAYED,
    ]
    # After the death of a driver Spark gives the whole batch to the next driver.
    sinks = drive()
    assert [sinks.apply(one) for one in (first, second)] == [
        BatchOutcome.REPLAYED,
        BatchOutcome.MERGED,
    ]
    assert [sinks.apply(one) for one in (first, second)] == [BatchOutcome.REPLAYED] * 2
    assert sinks.apply(piece(1, 25, 30, is_last=True)) is BatchOutcome.MERGED
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
    """A connection that the client gives up during COMMIT, while the server commits later."""

    def __init__(self, real: mysql_link.MySqlConnection) -> None:
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
        """Do nothing, because a close before the commit would make the server roll back."""

    def _commit(self) -> None:
        assert self.may_commit.wait(30)
        self._real.commit()
        self._real.close()


def waits_for_a_lock(mysql_server: MySqlServer, database: MySqlSettings) -> bool:
    """Return True while a transaction waits for the lock on the writer's row.

    This does not read `innodb_trx`, because MySQL refreshes that table only if the last read is
    at least 0.1 s ago.
    """
    with mysql_server.connect(database) as connection, connection.cursor(Cursor) as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s "
            "AND info LIKE 'SELECT query_id%%FOR UPDATE'",
            (database.database,),
        )
        ((waiting,),) = cursor.fetchall()
        return bool(waiting)


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


def test_topics_that_differ_in_case_alone_are_two_whatever_the_database_is_made_with(
    mysql_server: MySqlServer,
) -> None:
    database = mysql_server.new_database(collation="utf8mb4_general_ci")
    sinks = Sinks(SinksSettings(mysql=database), [METRIC], clock_ms=lambda: worked.NOW_MS)
    sinks.open(worked.QUERY)
    ends = {("logs.App", 0): 7, ("logs.app", 0): 90}
    ranges = [OffsetRange(*place, 0, end) for place, end in ends.items()]
    unparsed = [UnparsedRow(topic, "a.log", "format", 1, ()) for topic, _ in ends]
    sinks.apply(Batch(worked.QUERY, 0, (), unparsed, ranges, 97, worked.NOW_MS))
    assert sinks.ledger() == ends
    sinks.close()
    with mysql_server.connect(database) as connection, connection.cursor(Cursor) as cursor:
        cursor.execute("SELECT topic, `count` FROM unparsed ORDER BY topic")
        assert cursor.fetchall() == tuple((topic, 1) for topic, _ in ends)


def test_files_and_faults_of_any_script_are_told_whatever_the_database_is_made_with(
    mysql_server: MySqlServer,
) -> None:
    database = mysql_server.new_database(collation="latin1_swedish_ci")
    sinks = Sinks(SinksSettings(mysql=database), [METRIC], clock_ms=lambda: worked.NOW_MS)
    sinks.open(worked.QUERY)
    unparsed = [UnparsedRow("logs.access", "日志/access.log", "format", 1, ())]
    covered = [OffsetRange("logs.access", 0, 0, 1)]
    sinks.apply(Batch(worked.QUERY, 0, (), unparsed, covered, 1, worked.NOW_MS))
    sinks.note(lambda cursor: ask_for(cursor, METRIC.name, {("logs.access", 0): 0}))
    sinks.note(lambda cursor: give_up(cursor, METRIC.name, "日志"))
    sinks.close()
    with mysql_server.connect(database) as connection, connection.cursor(Cursor) as cursor:
        cursor.execute("SELECT file, problem FROM unparsed, recounts")
        assert cursor.fetchall() == (("日志/access.log", "日志"),)


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
