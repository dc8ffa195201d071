"""Puts the stream together, starts it, and keeps it going: the one place that constructs.

Order: local lock → JVM → expressions checked → topics → sinks opened (which fences whoever wrote
before) → warm-up → query. What is away (a broker, a sink) is waited for inside this process, since
a new JVM costs seconds. A checkpoint that does not fit the ledger is given up and a new query
resumes from the ledger. A driver that was fenced never comes back by itself: that would fence its
healthy successor.
"""

import fcntl
import logging
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields
from protocol.units import parse_duration_ms
from sinks.errors import DefinitionChanged, Fenced, LedgerMismatch, SinkUnavailable
from sinks.store import Sinks
from stream.check import check_section
from stream.checkpoint import Checkpoint, CheckpointFault, Offsets, forgotten_by, starting_offsets
from stream.compile import compile_plan
from stream.config import StreamSettings
from stream.counts import fold, rows_of
from stream.progress import Committer, ProgressListener
from stream.session import empty_scratch, start_session
from stream.sources import TopicOffsets, ask_topics, kafka_options, lost_lines, read_kafka
from stream.state import Phase, StreamState
from stream.writers import BatchWriter, StopRequested

EXIT_STOPPED = 0
EXIT_CRASHED = 1
EXIT_SETTINGS = 2
EXIT_FENCED = 75

RETRY_S = (0.5, 5.0)
WATCH_S = 0.1
STOP_BATCH_S = 20.0
WARM_UP_ROUNDS = 3

T = TypeVar("T")

logger = logging.getLogger(__name__)


class AlreadyRunning(Exception):
    """Another stream of this data folder is alive."""


class JvmGone(Exception):
    """The JVM does not answer any more."""


class StreamJob:
    """One driver, from start to end."""

    def __init__(self, settings: StreamSettings, state: StreamState, stop: threading.Event) -> None:
        self._settings = settings
        self._state = state
        self._stop = stop
        self._plan = compile_plan(settings.section)
        self._checkpoint = Checkpoint(settings.data_dir / "checkpoint")
        self._sinks = Sinks(settings.sinks, [metric.definition for metric in self._plan.metrics])
        self._committer = Committer(settings.bootstrap_servers, settings.part)
        self._listener = ProgressListener(self._committer, state)
        self._opened: str | None = None
        state.watch_sinks(lambda: self._sinks.states)

    def run(self) -> int:
        """Run until told to stop; returns the exit code."""
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        lock = take_lock(self._settings.data_dir / "lock")
        try:
            session = start_session(self._settings, scratch=empty_scratch(self._settings.data_dir))
            faults = check_section(session, self._settings.section)
            for fault in faults:
                logger.error(
                    "expression cannot be used",
                    extra=fields(
                        key=".".join(str(step) for step in fault.path),
                        found=fault.found,
                        expected=fault.expected,
                    ),
                )
            if faults:
                return EXIT_SETTINGS
            return self._run_queries(session)
        except DefinitionChanged as error:
            logger.error("%s", error)
            return EXIT_SETTINGS
        except StopRequested:
            return EXIT_STOPPED
        except JvmGone as error:
            logger.error("the JVM is gone: %s", error)
            return EXIT_CRASHED
        finally:
            self._state.stopped()
            self._sinks.close()
            os.close(lock)

    def _run_queries(self, session: SparkSession) -> int:
        self._committer.start()
        self._listener.register(session)
        self._warm_up(session)
        pause_s = RETRY_S[0]
        try:
            while not self._stop.is_set():
                writer, query = self._start_query(session)
                failure = self._watch(query, writer)
                if failure is None:
                    return EXIT_STOPPED
                if isinstance(failure, Fenced):
                    logger.error("a newer driver writes; this one ends", extra=fields(why=failure))
                    return EXIT_FENCED
                if isinstance(failure, LedgerMismatch | CheckpointFault):
                    logger.warning("resuming from the ledger", extra=fields(why=failure))
                    self._opened = None
                    self._begin_anew(str(failure))
                    continue
                if self._state.snapshot().details["phase"] == Phase.RUNNING:
                    pause_s = RETRY_S[0]
                self._state.waiting("query-ended", _first_line(failure))
                logger.warning(
                    "query ended; starting it again", extra=fields(why=_first_line(failure))
                )
                self._stop.wait(pause_s)
                pause_s = min(pause_s * 2, RETRY_S[1])
            return EXIT_STOPPED
        finally:
            self._committer.close(STOP_BATCH_S)

    def _warm_up(self, session: SparkSession) -> None:
        """Fold some lines that count nowhere, so that the first real batch finds warm code."""
        topics = self._settings.section.topics
        if not topics:
            return
        listed = ", ".join(f"'{topic}'" for topic in topics)
        rows = session.range(0, 300, 1, 1).selectExpr(
            "CAST('warm/up' AS BINARY) AS key",
            "CAST(concat('line ', id, ' {\"a\": 1} k=v') AS BINARY) AS value",
            f"element_at(array({listed}), CAST(id % {len(topics)} + 1 AS INT)) AS topic",
            "0 AS partition",
            "id AS offset",
            "current_timestamp() AS timestamp",
            "0 AS timestampType",
        )
        for _ in range(WARM_UP_ROUNDS):
            if not self._stop.is_set():
                fold(rows, self._plan).collect()

    def _start_query(self, session: SparkSession) -> tuple[BatchWriter, StreamingQuery]:
        query_id, starting = self._prepare()
        writer = BatchWriter(
            query_id, self._plan, self._sinks, self._checkpoint, self._state, self._stop
        )
        section = self._settings.section
        options = kafka_options(section, self._settings.bootstrap_servers, starting)
        query: StreamingQuery = (
            rows_of(read_kafka(session, options), self._plan)
            .writeStream.foreachBatch(writer)
            .option("checkpointLocation", self._checkpoint.folder.resolve().as_uri())
            .trigger(processingTime=f"{parse_duration_ms(section.trigger)} milliseconds")
            .start()
        )
        self._state.running()
        logger.info(
            "query runs",
            extra=fields(query=query_id, resumed=starting is None, metrics=len(self._plan.metrics)),
        )
        return writer, query

    def _prepare(self) -> tuple[str, dict[str, dict[str, int]] | None]:
        """The query to run; starting offsets only for a new one.

        Opens the sinks when this driver has not done so for that query: each opening raises the
        epoch, and a query that merely starts again must not fence a successor.
        """
        held = self._persist(self._ask_topics)
        self._state.topics_end_at(held.ends)
        try:
            standing = self._checkpoint.standing(self._settings.section.topics)
        except CheckpointFault as fault:
            logger.warning("checkpoint is given up", extra=fields(why=fault))
            standing = None
        if standing is not None:
            self._open(standing.query_id)
            ledger = self._persist(self._sinks.ledger)
            forgotten = forgotten_by(standing.committed, ledger)
            if forgotten is None:
                self._wait_for_lines(standing.committed, held)
                self._listener.begins_at(standing.committed, f"{standing.query_id} start")
                return standing.query_id, None if standing.last_batch is not None else (
                    starting_offsets(held.partitions(), ledger)
                )
            logger.warning("checkpoint is given up", extra=fields(why=forgotten))
        query_id = str(uuid.uuid4())
        self._open(query_id)
        ledger = dict(self._persist(self._sinks.ledger))
        mine = {key: end for key, end in ledger.items() if key in held.ends}
        self._wait_for_lines(mine, held)
        self._checkpoint.begin(query_id)
        self._listener.begins_at(mine, f"{query_id} start")
        return query_id, starting_offsets(held.partitions(), ledger)

    def _open(self, query_id: str) -> None:
        if self._opened != query_id:
            epoch = self._persist(lambda: self._sinks.open(query_id))
            self._opened = query_id
            self._state.starting(query_id, epoch)
            logger.info("sinks opened", extra=fields(query=query_id, epoch=epoch))

    def _begin_anew(self, why: str) -> None:
        """Forget the checkpoint; the next query gets a new id."""
        self._state.resumed()
        self._checkpoint.give_up()

    def _ask_topics(self) -> TopicOffsets:
        return ask_topics(
            self._settings.bootstrap_servers,
            self._settings.part,
            self._settings.section.topics,
            self._settings.topics,
        )

    def _wait_for_lines(self, wanted: Offsets, held: TopicOffsets) -> None:
        """Wait, and say so, while the broker does not hold what must be read next."""
        pause_s = RETRY_S[0]
        while (lost := lost_lines(wanted, held)) is not None:
            self._state.waiting("lines-lost", lost)
            logger.error("lines are gone; waiting for them", extra=fields(why=lost))
            if self._stop.wait(pause_s):
                raise StopRequested
            pause_s = min(pause_s * 2, 60.0)
            held = self._persist(self._ask_topics)

    def _persist(self, attempt: Callable[[], T]) -> T:
        """Repeat what fails because something is away, until it succeeds or the part stops."""
        pause_s, was_away = RETRY_S[0], False
        while True:
            try:
                return attempt()
            except SinkUnavailable as error:
                code, text = f"{error.sink}-away", str(error)
            except (ApiError, ClientError, OSError) as error:
                code, text = "broker-away", str(error)
            self._state.waiting(code, text)
            if not was_away:
                logger.warning("waiting", extra=fields(why=text))
            was_away = True
            if self._stop.wait(pause_s):
                raise StopRequested
            pause_s = min(pause_s * 2, RETRY_S[1])

    def _watch(self, query: StreamingQuery, writer: BatchWriter) -> Exception | None:
        """Wait until the query ends or the part stops; returns why it ended, None for a stop."""
        try:
            while not self._stop.wait(WATCH_S):
                if not query.isActive:
                    error = query.exception()
                    return writer.failure or error or RuntimeError("the query ended by itself")
            self._state.stopping()
            writer.wait_between_batches(STOP_BATCH_S)
            query.stop()
        except (Py4JError, OSError) as error:
            raise JvmGone(_first_line(error)) from error
        return writer.failure if isinstance(writer.failure, Fenced) else None


def take_lock(path: Path) -> int:
    """Hold the data folder's lock as long as the descriptor is open; raises AlreadyRunning.

    It lies outside of the checkpoint, because that may be deleted while a driver lives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AlreadyRunning(f"another stream holds {path}") from None
    return descriptor


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines() or [repr(error)])[0][:1_000]
