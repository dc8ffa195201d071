"""Keeps the raw lines of the topics as Parquet files, in a thread next to the running query.

At intervals this thread reads new lines of each topic with its own Spark session. It adds them to
the topic's archive (`topic_archive`) one piece at a time. An error here never stops the counting:
it is reported, and the next interval tries again. A recount reads from the archive the lines that
the topics no longer have.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pymysql
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields
from protocol.security.cluster_security import ClusterEntry
from protocol.units import parse_duration_ms
from sinks.errors import LedgerMismatch, SinkUnavailable
from sinks.mysql import archive_rows
from sinks.rows import OffsetRange
from stream.archive.contents import ArchivePiece, PieceRange, Spans, next_ranges
from stream.archive.folders import Folder, open_folder
from stream.archive.topic_archive import TopicArchive
from stream.config.settings import ArchiveSection
from stream.live_configuration import LiveConfiguration, RunningConfiguration
from stream.parse.host import headers_sql, host_sql
from stream.quarantine.failures import error_words
from stream.source.kafka import COLUMNS, COLUMNS_DDL, Readable, kafka_options, read_ranges
from stream.state import ArchivedTopic, ArchiveFacts, StreamState, clock_ms
from stream.threads import ThreadKeeper

# The most offsets of a piece. A single task writes a piece, so another core is free for live lines.
OFFSETS_AT_ONCE = 100_000

# The delay of the first archiving after a start, unless the interval is shorter. The machine is
# busy during a start, so the archive waits.
FIRST_LOOK_S = 10.0

# The longest pause after a piece. A pause is as long as its piece took, but the first piece of a
# JVM takes ten times as long as others, and must not cause such a long pause.
REST_S_MAX = 5.0

# The most that Parquet keeps in memory before it writes.
ROW_GROUP_BYTES = 32 << 20

ROWS_NOTED_AT_ONCE = 1_000

# `host` is the collector's name. It is NULL in files that were written before the column existed.
FILE_DDL = (
    "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP, host BINARY"
)
HOUR = "date_format(timestamp, \"yyyy-MM-dd'T'HH\") AS hour"

_FAULTS = (ApiError, ClientError, Py4JError, PySparkException, OSError, ValueError)

logger = logging.getLogger(__name__)


class ArchiveAway(Exception):
    """The error when the content of the archive is unknown at the moment.

    Its text gives the reason.
    """


class ArchiveWriter:
    """Archives lines in a thread. `ask` returns the readable (committed) offsets of topics.

    Other threads read the archives without a lock. That is safe, because pieces are only added, and
    an archive becomes visible only after its notes were read completely.
    """

    def __init__(
        self,
        configuration: LiveConfiguration,
        section: ArchiveSection,
        root: str,
        entry: ClusterEntry,
        ask: Callable[[Sequence[str]], Mapping[str, Readable]],
        state: StreamState,
        stop: threading.Event,
    ) -> None:
        self._configuration = configuration
        self._every_s = parse_duration_ms(section.every) / 1000
        self._root = root
        self._entry = entry
        self._ask = ask
        self._state = state
        self._stop = stop
        self._archives: dict[str, TopicArchive] = {}
        self._anew: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._noted: set[str] = set()

    def start(self, session: SparkSession, keeper: ThreadKeeper) -> None:
        """Start the thread that archives lines."""
        keeper.keep("archive", partial(self._run, session.newSession()))

    def held(self, topics: Sequence[str]) -> dict[str, Mapping[int, Spans]]:
        """Return the archived offsets by topic and partition.

        Raises ArchiveAway if the archive of one of the topics was not read yet.
        """
        found: dict[str, Mapping[int, Spans]] = {}
        for topic in topics:
            archive = self._archives.get(topic)
            if archive is not None:
                pieces = archive.pieces
                found[topic] = {one: pieces.spans(one) for one in list(pieces.ends)}
            elif topic in self._anew:
                # The archive is of an older topic, so its offsets belong to other lines.
                found[topic] = {}
            else:
                why = self._problems.get(topic) or self._problems.get("", "not read yet")
                raise ArchiveAway(f"the archive of {topic}: {why}")
        return found

    def read(self, session: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return archived lines as records with the same columns as those of the topics.

        Raises ArchiveAway if the archive of one of the topics is not open.
        """
        found: DataFrame | None = None
        for topic in sorted({one.topic for one in ranges}):
            archive = self._archives.get(topic)
            if archive is None:
                raise ArchiveAway(
                    f"the archive of {topic}: {self._problems.get(topic, 'not read yet')}"
                )
            lines = read_topic_archive(
                session, archive, topic, [one for one in ranges if one.topic == topic]
            )
            found = lines if found is None else found.unionByName(lines)
        return session.createDataFrame([], COLUMNS_DDL) if found is None else found

    def look(self, session: SparkSession) -> None:
        """Archive all new lines of all topics. Raises _JvmEnded if the JVM has ended."""
        now = self._configuration.now
        topics = now.section.topics
        try:
            readable = self._ask(topics)
            folder = open_folder(self._root, session)
        except _FAULTS as error:
            self._fail("", error)
            self._tell()
            return
        self._well("")
        for topic in topics:
            if topic in readable:
                self._open(folder, topic, readable[topic])
        self._tell()
        for topic in topics:
            if topic in readable and topic in self._archives:
                self._take(session, now, topic, readable[topic])
            self._tell()

    def _run(self, session: SparkSession) -> None:
        pause_s = min(FIRST_LOOK_S, self._every_s)
        while not self._stop.wait(pause_s):
            pause_s = self._every_s
            try:
                self.look(session)
            except _JvmEnded:
                # The job's main thread notices the end of the JVM too, and ends the process.
                return

    def _open(self, folder: Folder, topic: str, found: Readable) -> None:
        """Open the topic's archive, unless it belongs to an older topic of the same name."""
        archive = self._archives.get(topic)
        try:
            if archive is None:
                archive = TopicArchive(folder, topic)
                archive.open()
        except _FAULTS as error:
            self._fail(topic, error)
            return
        why = archive.pieces.made_anew(found.id, found.ends)
        if why is None:
            self._anew.pop(topic, None)
            self._archives[topic] = archive
            self._well(topic)
        else:
            text = f"{why}: move its folder topic={topic} away to archive the new one"
            if self._anew.get(topic) != text:
                logger.error(
                    "lines of a topic are not archived", extra=fields(topic=topic, why=text)
                )
            self._anew[topic] = text
            self._archives.pop(topic, None)
            self._noted.discard(topic)
            self._problems.pop(topic, None)
        self._note(topic)

    def _take(
        self, session: SparkSession, now: RunningConfiguration, topic: str, found: Readable
    ) -> None:
        """Archive the new lines of one topic."""
        archive = self._archives[topic]
        try:
            while not self._stop.is_set():
                ends = archive.pieces.ends
                ranges = next_ranges(topic, ends, found.starts, found.ends, OFFSETS_AT_ONCE)
                if not ranges:
                    return
                begin_s = time.monotonic()
                _say_lost(topic, ends, ranges)
                options = kafka_options(now.section, self._entry, None)
                piece = write_piece(session, archive, options, found.id, ranges)
                self._note(topic, [piece])
                self._tell()
                # Pause for as long as the piece took. So at least half of the time is left to
                # counting, even if many lines wait for the archive.
                self._stop.wait(min(time.monotonic() - begin_s, REST_S_MAX))
        except _FAULTS as error:
            # It is unknown whether the piece was noted, so the next round reads the folder again.
            self._archives.pop(topic, None)
            self._fail(topic, error)

    def _note(self, topic: str, pieces: Sequence[ArchivePiece] | None = None) -> None:
        """Write the archived offsets of pieces to MySQL.

        `pieces` is None when the topic was just opened. Then all pieces are written, unless MySQL
        has the same offsets already.
        """
        sinks = self._configuration.now.sinks
        if not sinks.takes_blocks or (pieces is None and topic in self._noted):
            return
        try:
            if pieces is None or topic not in self._noted:
                archive = self._archives.get(topic)
                rows = [] if archive is None else _rows(archive.pieces.all)
                known: Any = sinks.note(partial(archive_rows.summary, topic=topic))
                if known == archive_rows.summary_of(rows):
                    self._noted.add(topic)
                    return
                sinks.note(partial(archive_rows.clear, topic=topic))
            else:
                rows = _rows(pieces)
            for first in range(0, len(rows), ROWS_NOTED_AT_ONCE):
                some = rows[first : first + ROWS_NOTED_AT_ONCE]
                sinks.note(partial(archive_rows.note, topic=topic, rows=some))
            self._noted.add(topic)
        except (SinkUnavailable, LedgerMismatch, pymysql.err.Error) as error:
            # The next round compares MySQL with the archive, and writes all pieces if they differ.
            self._noted.discard(topic)
            logger.debug("could not write the archived offsets to MySQL: %s", error)

    def _fail(self, topic: str, error: Exception) -> None:
        gateway = SparkContext._gateway
        if gateway is None or gateway.proc.poll() is not None:
            raise _JvmEnded from error
        why = error_words(error)
        if topic not in self._problems and not self._stop.is_set():
            logger.warning(
                "archiving failed and is tried again", extra=fields(topic=topic or None, why=why)
            )
        self._problems[topic] = why

    def _well(self, topic: str) -> None:
        if self._problems.pop(topic, None) is not None:
            logger.info("archiving continues", extra=fields(topic=topic or None))

    def _tell(self) -> None:
        problems = [f"{topic}: {why}" if topic else why for topic, why in self._problems.items()]
        problems += [f"{topic}: {why}" for topic, why in self._anew.items()]
        topics = [
            ArchivedTopic(
                topic, len(archive.pieces.all), archive.pieces.lines, archive.pieces.lost()
            )
            for topic, archive in sorted(self._archives.items())
        ]
        self._state.archiving(
            ArchiveFacts(self._root, tuple(topics), "; ".join(problems) or None, clock_ms())
        )


class _JvmEnded(Exception):
    """The error when the JVM has ended."""


def write_piece(
    session: SparkSession,
    archive: TopicArchive,
    options: Mapping[str, str],
    topic_id: str,
    ranges: Sequence[OffsetRange],
) -> ArchivePiece:
    """Write some offsets of a topic as the next piece of its archive, and return it."""
    draft = archive.new_draft()
    target = archive.draft_uri(draft)
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    lines = read_ranges(session, options, ranges)
    # Use one task, so that each hour becomes one file. Sort the lines, so that a reader can skip
    # row groups.
    host = f"{host_sql('headers')} AS host"
    lines.selectExpr("key", "value", "partition", "offset", "timestamp", host, HOUR).coalesce(
        1
    ).sortWithinPartitions("hour", "partition", "offset").write.partitionBy("hour").option(
        "compression", "zstd"
    ).option("parquet.block.size", str(ROW_GROUP_BYTES)).parquet(target)
    # Read the written files back once, so that a damaged file never becomes part of the archive.
    counted = {
        int(row[0]): (int(row[1]), int(row[2]))
        for row in session.read.schema(FILE_DDL)
        .parquet(target)
        .groupBy("partition")
        .agg({"offset": "count", "timestamp": "max"})
        .selectExpr("partition", "`count(offset)`", "unix_millis(`max(timestamp)`)")
        .collect()
    }
    # If the JVM ends while it sends rows, PySpark takes that for the end of the rows. So call the
    # JVM, because this call fails if the JVM has ended.
    session.sparkContext._jsc.sc().isStopped()
    piece = ArchivePiece(
        archive.pieces.next_number,
        topic_id,
        draft,
        sum(lines for lines, _ in counted.values()),
        tuple(
            PieceRange(one.partition, one.start, one.end, counted.get(one.partition, (0, -1))[1])
            for one in ranges
        ),
        archive.hours(draft),
    )
    archive.commit(piece)
    return piece


def read_topic_archive(
    session: SparkSession, archive: TopicArchive, topic: str, ranges: Sequence[OffsetRange]
) -> DataFrame:
    """Return the archived lines of one topic that are in `ranges`, with the columns COLUMNS.

    `ranges` has at most one range per partition.
    """
    files = archive.files(archive.pieces.overlapping(ranges))
    if not files:
        return session.createDataFrame([], COLUMNS_DDL)
    wanted = " OR ".join(
        f"(partition = {one.partition} AND offset >= {one.start} AND offset < {one.end})"
        for one in ranges
    )
    lines = session.read.schema(FILE_DDL).parquet(*files).where(wanted)
    made = (f"'{topic}' AS topic", "0 AS timestampType", f"{headers_sql('host')} AS headers")
    return lines.selectExpr("*", *made).select(*COLUMNS)


def _rows(pieces: Sequence[ArchivePiece]) -> list[archive_rows.Row]:
    return [
        (one.partition, one.start, one.end, one.until_ms)
        for piece in pieces
        for one in piece.ranges
    ]


def _say_lost(topic: str, ends: Mapping[int, int], ranges: Sequence[OffsetRange]) -> None:
    """Report lines that retention deleted before they were archived."""
    for one in ranges:
        end = ends.get(one.partition)
        if end is not None and one.start > end:
            logger.error(
                "lines were deleted before they were archived",
                extra=fields(topic=topic, partition=one.partition, first=end, end=one.start),
            )
