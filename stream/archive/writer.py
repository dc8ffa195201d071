"""Keeps the raw lines of the topics as Parquet files, beside the running stream.

At intervals a thread with its own session takes new lines of each topic, one piece at a time, and
adds them to the topic's archive (`topic_archive`), which knows its own content. An error here never
stops the counting: it is reported, and the next interval tries again. A recount asks the archive
for lines that the topics no longer have.
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
from protocol.units import parse_duration_ms
from sinks.errors import LedgerMismatch, SinkUnavailable
from sinks.mysql import archive_rows
from sinks.rows import OffsetRange
from stream.archive.contents import ArchivePiece, PieceRange, Spans, next_ranges
from stream.archive.folders import Folder, open_folder
from stream.archive.topic_archive import TopicArchive
from stream.config.settings import ArchiveSection
from stream.live_configuration import LiveConfiguration, RunningConfiguration
from stream.quarantine.failures import error_words
from stream.source.kafka import COLUMNS, COLUMNS_DDL, Readable, kafka_options, read_ranges
from stream.state import ArchivedTopic, ArchiveFacts, StreamState, clock_ms
from stream.threads import ThreadKeeper

# One task writes a piece, so that another core is free for live lines.
OFFSETS_AT_ONCE = 100_000

# The first archiving after a start, unless the interval is shorter: a start has enough to do.
FIRST_LOOK_S = 10.0

# The longest pause after a piece; the first piece of a JVM takes ten times as long as others.
REST_S_MAX = 5.0

# How much Parquet keeps in memory before it writes.
ROW_GROUP_BYTES = 32 << 20

ROWS_NOTED_AT_ONCE = 1_000

FILE_DDL = "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP"
HOUR = "date_format(timestamp, \"yyyy-MM-dd'T'HH\") AS hour"

_FAULTS = (ApiError, ClientError, Py4JError, PySparkException, OSError, ValueError)

logger = logging.getLogger(__name__)


class ArchiveAway(Exception):
    """The content of the archive is unknown at the moment; the text gives the reason."""


class ArchiveWriter:
    """Archives lines in a thread; `ask` returns the committed offsets of topics.

    Other threads read the archives too. Pieces are only ever added, and an archive is published
    only after it was read completely.
    """

    def __init__(
        self,
        configuration: LiveConfiguration,
        section: ArchiveSection,
        root: str,
        bootstrap_servers: str,
        ask: Callable[[Sequence[str]], Mapping[str, Readable]],
        state: StreamState,
        stop: threading.Event,
    ) -> None:
        self._configuration = configuration
        self._every_s = parse_duration_ms(section.every) / 1000
        self._root = root
        self._bootstrap_servers = bootstrap_servers
        self._ask = ask
        self._state = state
        self._stop = stop
        self._archives: dict[str, TopicArchive] = {}
        self._anew: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._noted: set[str] = set()

    def start(self, session: SparkSession, keeper: ThreadKeeper) -> None:
        """Start to archive."""
        keeper.keep("archive", partial(self._run, session.newSession()))

    def held(self, topics: Sequence[str]) -> dict[str, Mapping[int, Spans]]:
        """Return the archived offsets by topic and partition; raises ArchiveAway."""
        found: dict[str, Mapping[int, Spans]] = {}
        for topic in topics:
            archive = self._archives.get(topic)
            if archive is not None:
                pieces = archive.pieces
                found[topic] = {one: pieces.spans(one) for one in list(pieces.ends)}
            elif topic in self._anew:
                # Its offsets are those of other lines.
                found[topic] = {}
            else:
                why = self._problems.get(topic) or self._problems.get("", "not looked at yet")
                raise ArchiveAway(f"the archive of {topic}: {why}")
        return found

    def read(self, session: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return archived offsets as records like those of the topics; raises ArchiveAway."""
        found: DataFrame | None = None
        for topic in sorted({one.topic for one in ranges}):
            archive = self._archives.get(topic)
            if archive is None:
                raise ArchiveAway(f"the archive of {topic}: {self._problems.get(topic, 'closed')}")
            lines = read_topic_archive(
                session, archive, topic, [one for one in ranges if one.topic == topic]
            )
            found = lines if found is None else found.unionByName(lines)
        return session.createDataFrame([], COLUMNS_DDL) if found is None else found

    def look(self, session: SparkSession) -> None:
        """Archive new lines; raises only errors that end the JVM or the stream."""
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
                # The job's own thread notices it too, and ends the process.
                return

    def _open(self, folder: Folder, topic: str, found: Readable) -> None:
        """Open the topic's archive, unless it belongs to an older topic of that name."""
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
                logger.error("a topic is not archived", extra=fields(topic=topic, why=text))
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
                options = kafka_options(now.section, self._bootstrap_servers, None)
                piece = write_piece(session, archive, options, found.id, ranges)
                self._note(topic, [piece])
                self._tell()
                # At least half of the time is left to counting, however much there is to archive.
                self._stop.wait(min(time.monotonic() - begin_s, REST_S_MAX))
        except _FAULTS as error:
            # Only the folder shows how far the piece has come.
            self._archives.pop(topic, None)
            self._fail(topic, error)

    def _note(self, topic: str, pieces: Sequence[ArchivePiece] | None = None) -> None:
        """Write the archived offsets to MySQL: these pieces, or all if they are missing there."""
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
            # The next round compares, and writes what is missing.
            self._noted.discard(topic)
            logger.debug("what is archived is not noted yet: %s", error)

    def _fail(self, topic: str, error: Exception) -> None:
        gateway = SparkContext._gateway
        if gateway is None or gateway.proc.poll() is not None:
            raise _JvmEnded from error
        why = error_words(error)
        if topic not in self._problems and not self._stop.is_set():
            logger.warning("archiving waits", extra=fields(topic=topic or None, why=why))
        self._problems[topic] = why

    def _well(self, topic: str) -> None:
        if self._problems.pop(topic, None) is not None:
            logger.info("archiving goes on", extra=fields(topic=topic or None))

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
    """The JVM is gone."""


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
    # In one task, so that each hour is one file; sorted, so that a reader can skip.
    lines.selectExpr("key", "value", "partition", "offset", "timestamp", HOUR).coalesce(
        1
    ).sortWithinPartitions("hour", "partition", "offset").write.partitionBy("hour").option(
        "compression", "zstd"
    ).option("parquet.block.size", str(ROW_GROUP_BYTES)).parquet(target)
    # Read the result once, before anything relies on it.
    counted = {
        int(row[0]): (int(row[1]), int(row[2]))
        for row in session.read.schema(FILE_DDL)
        .parquet(target)
        .groupBy("partition")
        .agg({"offset": "count", "timestamp": "max"})
        .selectExpr("partition", "`count(offset)`", "unix_millis(`max(timestamp)`)")
        .collect()
    }
    # PySpark takes the end of a JVM that sends rows for the end of the rows, so call the JVM.
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
    """Read offsets of one topic, at most one range per partition, with the columns COLUMNS."""
    files = archive.files(archive.pieces.overlapping(ranges))
    if not files:
        return session.createDataFrame([], COLUMNS_DDL)
    wanted = " OR ".join(
        f"(partition = {one.partition} AND offset >= {one.start} AND offset < {one.end})"
        for one in ranges
    )
    lines = session.read.schema(FILE_DDL).parquet(*files).where(wanted)
    return lines.selectExpr("*", f"'{topic}' AS topic").select(*COLUMNS)


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
