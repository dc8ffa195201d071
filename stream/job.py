"""Builds the stream, starts it, and keeps it running. Only this module constructs its parts.

Order: local lock → JVM → check expressions → topics → open sinks (which fences the former writer)
→ warm-up → query. If a broker or a sink is away, this process waits for it, because a restart would
need seconds for a new JVM. If the checkpoint does not fit the ledger, it is removed, and a new
query resumes from the ledger. A fenced driver never restarts automatically, because it would then
fence its healthy successor.
"""

import logging
import os
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields
from protocol.status import EXIT_FENCED
from protocol.units import parse_duration_ms
from sinks.errors import DefinitionChanged, FencedWriter, LedgerMismatch, SinkUnavailable
from stream.archive.folders import root_of
from stream.archive.writer import ArchiveWriter
from stream.batch_writer import BatchWriter
from stream.config.settings import StreamSettings
from stream.fold.folding import Folding
from stream.live_configuration import LiveConfiguration, RunningConfiguration
from stream.lock import take_lock
from stream.overseer import JvmGone, Overseer, stop_query
from stream.quarantine.bisection import StopRequested, places
from stream.quarantine.crash_record import CrashRecord
from stream.quarantine.failures import error_words
from stream.quarantine.in_hand import Hand
from stream.quarantine.search import BLAME_ENDED, PartSize
from stream.recount import Recounter
from stream.source.admission import Admission
from stream.source.checkpoint import (
    CheckpointFault,
    CheckpointFolder,
    Offsets,
    forgotten_by,
    starting_offsets,
)
from stream.source.entry import with_password_file
from stream.source.kafka import (
    Divider,
    TopicOffsets,
    ask_readable,
    ask_topics,
    kafka_options,
    lost_lines,
    made_lines,
    passed_over,
    read_kafka,
)
from stream.source.progress import OffsetCommitter, ProgressListener
from stream.spark import java_classes
from stream.spark.masters import MasterAway, ask_masters
from stream.spark.memory import lines_per_batch, machine_bytes
from stream.spark.session import empty_scratch, start_session
from stream.state import QUERY_ENDED, StreamState
from stream.threads import ThreadKeeper

EXIT_STOPPED = 0
EXIT_CRASHED = 1
EXIT_SETTINGS = 2

RETRY_S = (0.5, 5.0)
WATCH_S = 0.1
STOP_BATCH_S = 20.0
WARM_UP_ROUNDS = 3

T = TypeVar("T")

logger = logging.getLogger(__name__)


class StreamJob:
    """One driver process, from its start to its end."""

    def __init__(self, settings: StreamSettings, state: StreamState, stop: threading.Event) -> None:
        self._settings = settings
        self._state = state
        self._stop = stop
        self._keeper = ThreadKeeper(state, stop)
        self._configuration = LiveConfiguration(settings, state)
        self._checkpoint = CheckpointFolder(settings.data_dir / "checkpoint")
        self._committer = OffsetCommitter(settings.entry, settings.part)
        self._listener = ProgressListener(self._committer, state)
        self._crash_record = CrashRecord(settings.data_dir / "suspects.json")
        self._part_size = PartSize()
        self._admission = Admission(lines_per_batch(settings.section, machine_bytes()))
        self._recount_hand = Hand()
        self._overseer = Overseer(self._recount_hand, lambda _: None)
        self._opened: str | None = None
        self._entry = settings.entry
        state.watch_sinks(lambda: self._configuration.now.sinks.facts)

    def run(self) -> int:
        """Run the stream until it is stopped. Return the exit code."""
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        lock = take_lock(self._settings.data_dir / "lock")
        try:
            self._say_suspects()
            self._persist(lambda: ask_masters(self._settings.section.master))
            scratch = empty_scratch(self._settings.data_dir)
            self._entry = with_password_file(self._settings.entry, scratch)
            session = start_session(self._settings, scratch=scratch)
            java_classes.load(session, self._settings.data_dir)
            faults = self._configuration.faults(session)
            for fault in faults:
                logger.error("an expression is not valid for Spark", extra=fields(fault=fault))
            if faults and not self._configuration.stop(faults):
                return EXIT_SETTINGS
            return self._run_queries(session)
        except DefinitionChanged as error:
            logger.error("%s", error)
            return EXIT_SETTINGS
        except StopRequested:
            return EXIT_STOPPED
        except JvmGone as error:
            logger.error("%s", error)
            return EXIT_CRASHED
        finally:
            # End the threads that wait for a server, even if one has a batch that is not stored.
            self._stop.set()
            self._committer.close(STOP_BATCH_S)
            self._state.stopped()
            self._configuration.close()
            os.close(lock)

    def _run_queries(self, session: SparkSession) -> int:
        self._committer.start(self._keeper)
        self._listener.register(session)
        self._warm_up_what_can_run(session)
        self._configuration.start(self._keeper)
        self._start_beside(session)
        pause_s, before = RETRY_S[0], ""
        while not self._stop.is_set():
            try:
                writer, query = self._start_query(session)
            except DefinitionChanged as error:
                if not self._configuration.can_go_on(error.names, str(error)):
                    raise
                self._opened = None
                continue
            self._configuration.settle()
            failure = self._watch(session, query, writer)
            if failure is None:
                return EXIT_STOPPED
            if isinstance(failure, RunningConfiguration):
                self._configuration.adopt(failure)
                self._opened = None
                continue
            if isinstance(failure, FencedWriter):
                logger.error("a newer driver has fenced this one", extra=fields(why=failure))
                return EXIT_FENCED
            if isinstance(failure, LedgerMismatch | CheckpointFault):
                logger.warning("a new query starts at the ledger's ends", extra=fields(why=failure))
                self._opened = None
                self._begin_anew()
                continue
            why = error_words(failure)
            if writer.has_applied:
                pause_s = RETRY_S[0]
            elif why == before and self._configuration.stop_failing(session):
                self._opened = None
                continue
            before = why
            self._state.waiting(QUERY_ENDED, f"the query ended and is started again: {why}")
            # Spark's own stack trace is kept out of the log (`log4j2.properties`).
            logger.warning(
                "query ended; starting it again", extra=fields(why=why), exc_info=writer.failure
            )
            self._stop.wait(pause_s)
            pause_s = min(pause_s * 2, RETRY_S[1])
        return EXIT_STOPPED

    def _warm_up_what_can_run(self, session: SparkSession) -> None:
        """Fold made-up lines, so that the first batch is fast. If Spark cannot run an
        input or a metric, stop this input or metric, and count without it."""
        try:
            self._warm_up(session)
        except PySparkException:
            if not self._configuration.stop_failing(session):
                raise

    def _start_beside(self, session: SparkSession) -> None:
        """Start the threads for the archive and for recounts, which run next to the query."""
        settings, archive = self._settings, None
        if settings.section.archive is not None:
            archive = ArchiveWriter(
                self._configuration,
                settings.section.archive,
                root_of(settings.section.archive.folder, settings.home),
                self._entry,
                partial(ask_readable, settings.entry, settings.part),
                self._state,
                self._stop,
            )
            archive.start(session, self._keeper)
        recounter = Recounter(
            self._configuration,
            self._entry,
            lambda: self._ask_topics().starts,
            archive,
            self._state,
            self._stop,
            hand=self._recount_hand,
            may_count=lambda: not self._crash_record.blame,
        )
        self._overseer = Overseer(self._recount_hand, recounter.give_up)
        recounter.start(session, self._keeper)

    def _warm_up(self, session: SparkSession) -> None:
        """Fold made-up lines, so that the JVM has compiled the code before the first batch. The
        result is dropped."""
        now = self._configuration.now
        if not now.section.topics:
            return
        lines = made_lines(session, now.section.topics)
        folding = Folding(now.plan, as_blocks=True)
        small = folding.fold_in_driver if now.section.is_local else folding.fold_in_tasks
        for fold in (*[small] * WARM_UP_ROUNDS, folding.fold_in_tasks):
            if not self._stop.is_set():
                fold(lines)

    def _start_query(self, session: SparkSession) -> tuple[BatchWriter, StreamingQuery]:
        query_id, starting = self._prepare()
        now = self._configuration.now
        options = kafka_options(now.section, self._entry, starting)
        writer = BatchWriter(
            query_id,
            now.plan,
            now.sinks,
            self._checkpoint,
            self._state,
            self._stop,
            crash_record=self._crash_record,
            size=self._part_size,
            admission=self._admission,
            options=options,
            first_offsets=lambda: self._ask_topics().starts,
            is_local=now.section.is_local,
        )
        cores = None if now.section.is_local else lambda: session.sparkContext.defaultParallelism
        divider = Divider(self._admission, self._state.topics_end_at, cores)
        query: StreamingQuery = (
            read_kafka(session, options, divider)
            .writeStream.foreachBatch(writer)
            .option("checkpointLocation", self._checkpoint.location)
            .trigger(processingTime=f"{parse_duration_ms(now.section.trigger)} milliseconds")
            .start()
        )
        self._state.running()
        logger.info(
            "the query runs",
            extra=fields(query=query_id, resumed=starting is None, metrics=len(now.plan.metrics)),
        )
        return writer, query

    def _prepare(self) -> tuple[str, dict[str, dict[str, int]] | None]:
        """Return the id of the query to run, and its starting offsets.

        The offsets are None for a query that already has batches, because Spark then takes the
        offsets from its checkpoint.

        This method opens the sinks unless this driver has already opened them for the same query.
        Each opening raises the epoch, and a query that is only restarted must not fence a
        successor.
        """
        held = self._persist(self._ask_topics)
        self._state.topics_end_at(held.ends)
        try:
            begun = self._checkpoint.resumption(self._configuration.now.section.topics)
        except CheckpointFault as fault:
            logger.warning("checkpoint removed; the ledger replaces it", extra=fields(why=fault))
            begun = None
        if begun is not None:
            self._open(begun.query_id)
            ledger = self._persist(self._configuration.now.sinks.ledger)
            misfit = forgotten_by(begun.committed, ledger)
            misfit = misfit or passed_over(begun.committed, ledger, held)
            if misfit is None:
                self._wait_for_lines(begun.committed, held)
                self._state.begins_at({**held.starts, **begun.committed})
                self._listener.begins_at(begun.committed, f"{begun.query_id} start")
                return begun.query_id, None if begun.last_batch is not None else (
                    starting_offsets(held.partitions(), ledger)
                )
            logger.warning("checkpoint removed; the ledger replaces it", extra=fields(why=misfit))
        query_id = str(uuid.uuid4())
        self._open(query_id)
        ledger = dict(self._persist(self._configuration.now.sinks.ledger))
        mine = {key: end for key, end in ledger.items() if key in held.ends}
        self._wait_for_lines(mine, held)
        self._checkpoint.begin(query_id)
        self._state.begins_at({**held.starts, **mine})
        self._listener.begins_at(mine, f"{query_id} start")
        return query_id, starting_offsets(held.partitions(), ledger)

    def _open(self, query_id: str) -> None:
        if self._opened != query_id:
            epoch = self._persist(lambda: self._configuration.now.sinks.open(query_id))
            self._opened = query_id
            self._state.starting(query_id, epoch)
            logger.info("sinks opened", extra=fields(query=query_id, epoch=epoch))

    def _begin_anew(self) -> None:
        """Remove the checkpoint, so that the next query gets a new id."""
        self._state.resumed()
        self._checkpoint.give_up()

    def _ask_topics(self) -> TopicOffsets:
        now = self._configuration.now
        return ask_topics(self._settings.entry, self._settings.part, now.section.topics, now.topics)

    def _wait_for_lines(self, wanted: Offsets, held: TopicOffsets) -> None:
        """Wait while the broker lacks the lines that must be read next, and report the missing
        lines."""
        pause_s = RETRY_S[0]
        while (lost := lost_lines(wanted, held)) is not None:
            self._state.waiting("lines-lost", lost)
            logger.error("the broker lacks the next lines; waiting", extra=fields(why=lost))
            if self._stop.wait(pause_s):
                raise StopRequested
            pause_s = min(pause_s * 2, 60.0)
            held = self._persist(self._ask_topics)

    def _persist(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt while a server does not answer. Raises StopRequested at a stop."""
        pause_s, was_away = RETRY_S[0], False
        while True:
            try:
                return attempt()
            except SinkUnavailable as error:
                code, text = f"{error.sink}-away", str(error)
            except MasterAway as error:
                code, text = "spark-away", str(error)
            except (ApiError, ClientError, OSError) as error:
                code, text = "broker-away", str(error)
            self._state.waiting(code, text)
            if not was_away:
                logger.warning("a server is away; trying again", extra=fields(why=text))
            was_away = True
            if self._stop.wait(pause_s):
                raise StopRequested
            pause_s = min(pause_s * 2, RETRY_S[1])

    def _watch(
        self, session: SparkSession, query: StreamingQuery, writer: BatchWriter
    ) -> Exception | RunningConfiguration | None:
        """Wait until the query ends, the part stops, or the configuration changes.

        Returns the exception that ended the query, or the new configuration, or None for a stop.
        """
        change: RunningConfiguration | None = None
        try:
            while not self._stop.wait(WATCH_S):
                if not query.isActive:
                    failure = writer.failure or query.exception()
                    if change is not None and isinstance(failure, StopRequested | None):
                        return change
                    return failure or RuntimeError("the query ended without an error")
                self._overseer.end_jvm_that_stands_still(writer)
                if change is None:
                    change = self._configuration.wanted(session)
                    if change is not None:
                        writer.hold()
                elif writer.is_idle and stop_query(query):
                    return change
            self._state.stopping()
            writer.wait_between_batches(STOP_BATCH_S)
            stop_query(query)
        except (Py4JError, OSError) as error:
            # A stop of the whole mill also ends the JVM. Then no line is the cause, so nothing is
            # recorded.
            if not self._stop.is_set():
                self._overseer.note_end(writer)
            raise JvmGone(f"the JVM does not answer any more: {error_words(error)}") from error
        return writer.failure if isinstance(writer.failure, FencedWriter) else None

    def _say_suspects(self) -> None:
        """Report at the start that a batch has probably ended the JVM of an earlier run."""
        suspects = [part for part, n in self._crash_record.blame.items() if n >= BLAME_ENDED]
        if suspects:
            self._state.halving(
                f"Java ended while it counted {places(suspects[-1])}:"
                " the line that caused it is searched for, and will be set aside"
            )
