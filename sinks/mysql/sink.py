"""The truth in MySQL: one transaction has guard, cells and ledger.

`ledger` decides what a batch is, `cell_writer` writes its cells, and `tables` creates the tables.
Rows are written sorted by primary key. Each transaction first locks the writer row (the guard). So
two drivers take turns, and the older one finds that it is fenced.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pymysql

from sinks.cells.recent import RecentCells
from sinks.config import MySqlSettings
from sinks.errors import DefinitionChanged, LedgerMismatch, SinkUnavailable
from sinks.keeping import Place, Term, in_force, waiting, words
from sinks.ledger import BatchKind, after, compare
from sinks.mysql import link
from sinks.mysql.cell_writer import CellWriter, Written
from sinks.mysql.metric_changes import change_metrics
from sinks.mysql.purging import agree, purge, read_terms
from sinks.mysql.recounts import move_beginnings
from sinks.mysql.rows import to_datetime
from sinks.mysql.tables import prepare
from sinks.mysql.views import view
from sinks.rows import Batch, MetricDefinition, definitions_differing, size_text
from sinks.truth import Merged, WriterGuard, check_ours
from sinks.unparsed import write_unparsed

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = (0.02, 1.0)
NO_SUCH_TABLE = 1146

Result = TypeVar("Result")


class MySqlSink:
    """The truth in MySQL, as one driver uses it. Only one thread at a time may use it.

    `notices` are the deletion terms that are not in effect yet. They say which windows will be
    deleted, and from when on.
    """

    def __init__(
        self,
        settings: MySqlSettings,
        *,
        patience_s: float,
        connect: link.Connect = link.connect,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._patience_s = patience_s
        self._connect = connect
        self._clock_s = clock_s
        self._pause = pause
        self._connection: link.MySqlConnection | None = None
        self._configured: Sequence[MetricDefinition] = ()
        # The configured metrics with the `keep` that is in effect now.
        self._definitions: dict[str, MetricDefinition] = {}
        self._recent = RecentCells()
        self._packet_octets: int | None = None
        self._query_id = ""
        self._epoch = -1
        self.notices: tuple[Term, ...] = ()

    def open(
        self, query_id: str, definitions: Sequence[MetricDefinition], now_s: int
    ) -> WriterGuard:
        """Create tables and views, check definitions, raise the epoch for this driver.

        Raises DefinitionChanged, SchemaTooNew, SchemaTooOld, SinkUnavailable.
        """
        self._configured = definitions
        self._definitions = in_force(definitions, {}, now_s)
        self._recent.forget_all()

        def show(cursor: Any) -> None:
            sizes = {size_s for definition in definitions for size_s in definition.windows_s}
            cursor.executemany(
                "INSERT IGNORE INTO window_sizes (size, size_s) VALUES (%s,%s)",
                [(size_text(size_s), size_s) for size_s in sorted(sizes)],
            )
            for definition in definitions:
                cursor.execute(view(definition))

        def register(cursor: Any) -> WriterGuard:
            # Lock the guard row first, as a merge does, so that two drivers cannot deadlock.
            cursor.execute(
                "UPDATE sink_guard SET epoch = epoch + 1, "
                "batch_id = IF(query_id = %s, batch_id, -1), query_id = %s WHERE id = 1",
                (query_id, query_id),
            )
            cursor.execute("SELECT name, definition_hash FROM metrics")
            stored = {str(name): bytes(digest) for name, digest in cursor.fetchall()}
            if changed := definitions_differing(definitions, stored):
                raise DefinitionChanged(changed)
            cursor.executemany(
                "INSERT INTO metrics (name, definition_hash, since, measure) VALUES (%s,%s,%s,%s) "
                "ON DUPLICATE KEY UPDATE measure = VALUES(measure)",
                [(d.name, d.definition_hash, to_datetime(now_s), d.measure) for d in definitions],
            )
            names = {definition.name: definition.topics for definition in definitions}
            for name in change_metrics(cursor, names, stored, _read_ledger(cursor)).resumed:
                logger.warning(
                    "%s is back in the configuration; a recount can count the lines it missed", name
                )
            return self._read_guard(cursor)

        self._patiently(lambda: self._plainly(prepare))
        # Accept the definitions before changing views, so a refused file does not break readers.
        guard = self._patiently(lambda: self._in_transaction(register))
        self._query_id, self._epoch = query_id, guard.epoch
        self._patiently(lambda: self._plainly(show))
        agreed = self._patiently(
            lambda: self._in_transaction(lambda cursor: agree(cursor, definitions, now_s))
        )
        self._take(agreed, now_s)
        for term in self.notices:
            logger.warning("%s", words(term))
        return guard

    def read(self, work: Callable[[Any], Result]) -> Result:
        """Run queries that change nothing, with the same retries as all other work."""
        return self._patiently(lambda: self._plainly(work))

    def ledger(self) -> Mapping[tuple[str, int], int]:
        """Return end offsets by (topic, partition)."""
        return self._patiently(lambda: self._plainly(_read_ledger))

    def guard(self) -> WriterGuard:
        """Return the writer row, whichever driver owns it."""
        return self._patiently(lambda: self._plainly(self._read_guard))

    def apply(self, batch: Batch) -> Merged:
        """Merge a batch exactly once, even if it is sent again after a crash.

        If the connection is lost during COMMIT, the next try reads the result from the guard.
        """
        return self._patiently(lambda: self._merge_once(batch))

    def fill(self, metric: str, batch: Batch) -> Merged:
        """Add the counts of a metric for offsets before its first one, and lower its first offset.

        The batch's query and id are ignored. Raises RangeMoved, FencedWriter, SinkUnavailable. If
        the connection is lost during COMMIT, the result is unknown, and the next call raises
        RangeMoved if it was committed.
        """
        return self._patiently(lambda: self._fill_once(metric, batch))

    def _fill_once(self, metric: str, batch: Batch) -> Merged:
        def fill(cursor: Any) -> tuple[WriterGuard, Written]:
            before = self._read_guard(cursor)
            check_ours(before, self._query_id, self._epoch)
            self._recent.begin(before.seq)
            # The update locks the writer row, as a merge does.
            cursor.execute(
                "UPDATE sink_guard SET seq = seq + 1 WHERE id = 1 AND query_id = %s AND epoch = %s",
                (self._query_id, self._epoch),
            )
            guard = self._read_guard(cursor)
            check_ours(guard, self._query_id, self._epoch)
            move_beginnings(cursor, metric, batch.ranges)
            writer = CellWriter(cursor, self._definitions, self._recent, guard.seq)
            written = writer.write(batch, self._largest_packet(cursor))
            write_unparsed(cursor, batch)
            return guard, written

        return self._merged(*self._remembering(fill))

    def work(self, do: Callable[[Any], Result]) -> Result:
        """Run the caller's own transaction, which must not change cells."""
        return self._patiently(lambda: self._in_transaction(do))

    def check_ours(self) -> None:
        """Raise FencedWriter unless the writer row is still this driver's."""
        check_ours(self.guard(), self._query_id, self._epoch)

    def purge(self, now_s: int, *, rows_max: int = 10_000) -> bool:
        """Delete some windows older than their `keep`, and old samples.

        Returns True if there are more to delete.
        """

        def delete(cursor: Any) -> bool:
            # Read the deletion terms again, because one can have come into effect in the meantime.
            self._take(read_terms(cursor), now_s)
            return purge(cursor, self._definitions.values(), now_s, rows_max)

        self._recent.forget_all()
        return self._patiently(lambda: self._plainly(delete))

    def _take(self, terms: Mapping[Place, Term], now_s: int) -> None:
        self._definitions = in_force(self._configured, terms, now_s)
        self.notices = waiting(terms, self._configured, now_s)

    def close(self) -> None:
        """Close the connection. A connection that is lost already is not an error."""
        connection, self._connection = self._connection, None
        # Forget the limit of the server, because the next connection may be to another server.
        self._packet_octets = None
        if connection is not None:
            try:
                connection.close()
            except pymysql.err.Error as error:
                logger.debug("the connection to MySQL was lost before it was closed: %s", error)

    def _merge_once(self, batch: Batch) -> Merged:
        def merge(cursor: Any) -> tuple[WriterGuard, Written | None]:
            # Lock the guard before reading the ledger. A COMMIT on a lost connection can still be
            # running, and only the ledger shows which pieces of the batch it has merged.
            guard = self._read_guard(cursor, is_locked=True)
            check_ours(guard, self._query_id, self._epoch)
            ledger = _read_ledger(cursor)
            new_id = batch.batch_id > guard.batch_id
            if compare(batch.ranges, ledger, after_guard=new_id) is BatchKind.REPLAY:
                return guard, None
            self._recent.begin(guard.seq)
            cursor.execute(
                "UPDATE sink_guard SET batch_id = %s, seq = seq + 1 WHERE id = 1",
                (batch.merged_id,),
            )
            guard = self._read_guard(cursor)
            writer = CellWriter(cursor, self._definitions, self._recent, guard.seq)
            written = writer.write(batch, self._largest_packet(cursor))
            write_unparsed(cursor, batch)
            _write_ledger(cursor, batch)
            return guard, written

        return self._merged(*self._remembering(merge))

    def _remembering(self, merge: Callable[[Any], Result]) -> Result:
        """Run a transaction that can change cells. After a failure empty the cache of cells."""
        try:
            return self._in_transaction(merge)
        except BaseException:
            self._recent.forget_all()
            raise

    def _merged(self, guard: WriterGuard, written: Written | None) -> Merged:
        if written is None:
            return Merged(guard, {}, replayed=True)
        self._recent.commit(guard.seq, written.by_rows, written.key_counts)
        return Merged(
            guard,
            written.cells,
            False,
            written.fallen,
            written.bulk,
            changed=written.changed,
            left_out=written.left_out,
        )

    def _largest_packet(self, cursor: Any) -> int:
        if self._packet_octets is None:
            cursor.execute("SELECT @@max_allowed_packet")
            self._packet_octets = int(cursor.fetchone()[0])
        return self._packet_octets

    def _read_guard(self, cursor: Any, *, is_locked: bool = False) -> WriterGuard:
        """Return the writer row; `is_locked`: lock it until this transaction ends."""
        lock = " FOR UPDATE" if is_locked else ""
        cursor.execute(f"SELECT query_id, epoch, batch_id, seq FROM sink_guard WHERE id = 1{lock}")
        # If there is no row, the database was emptied. Treat this like a restore from before the
        # first epoch.
        query_id, epoch, batch_id, seq = cursor.fetchone() or ("", 0, -1, 0)
        return WriterGuard(str(query_id), int(epoch), int(batch_id), int(seq))

    def _session(self) -> link.MySqlConnection:
        if self._connection is None:
            self._connection = self._connect(self._settings)
            link.prepare_for_merging(self._connection)
        return self._connection

    def _plainly(self, work: Callable[[Any], Result]) -> Result:
        with self._session().cursor() as cursor:
            return work(cursor)

    def _in_transaction(self, work: Callable[[Any], Result]) -> Result:
        connection = self._session()
        connection.begin()
        try:
            with connection.cursor() as cursor:
                result = work(cursor)
        except BaseException:
            self._undo(connection)
            raise
        connection.commit()
        return result

    def _undo(self, connection: link.MySqlConnection) -> None:
        # Error 1205 undoes only its statement, so the transaction must be ended here.
        try:
            connection.rollback()
        except pymysql.err.Error:
            self.close()

    def _patiently(self, attempt: Callable[[], Result]) -> Result:
        deadline = self._clock_s() + self._patience_s
        pause_s = RETRY_PAUSE_S[0]
        while True:
            try:
                return attempt()
            except pymysql.err.Error as error:
                away = link.is_away(error)
                if away:
                    self.close()
                if link.error_code(error) == NO_SUCH_TABLE:
                    raise LedgerMismatch(f"the database was emptied: {_say(error)}") from error
                if not away and not link.is_worth_retrying(error):
                    raise
                if self._clock_s() + pause_s > deadline:
                    raise SinkUnavailable("mysql", _say(error)) from error
                logger.debug("repeating a transaction in MySQL: %s", error)
            self._pause(pause_s)
            pause_s = min(pause_s * 2, RETRY_PAUSE_S[1])


def _read_ledger(cursor: Any) -> dict[tuple[str, int], int]:
    cursor.execute("SELECT topic, part, end_offset FROM ledger")
    return {(str(topic), int(part)): int(end) for topic, part, end in cursor.fetchall()}


def _write_ledger(cursor: Any, batch: Batch) -> None:
    cursor.executemany(
        "INSERT INTO ledger (topic, part, end_offset) VALUES (%s,%s,%s) "
        "ON DUPLICATE KEY UPDATE end_offset = VALUES(end_offset)",
        [(topic, part, end) for (topic, part), end in sorted(after(batch.ranges).items())],
    )


def _say(error: pymysql.err.Error) -> str:
    return " ".join(str(part) for part in error.args) or type(error).__name__
