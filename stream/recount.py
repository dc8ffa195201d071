"""Counts a metric over earlier lines, in a thread next to the running query.

The thread has its own session. It counts one *piece* (some offsets) after the other, going back
from the first offset that the metric has counted, so that the newest windows are complete first.
One transaction of the sinks adds the cells of a piece and moves the metric's beginning
(`sinks/mysql/recounts`). So after a crash the unfinished piece is counted again, and no other.
Pieces are small, because live lines wait for the same cores while a piece is counted.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields
from protocol.security.cluster_security import ClusterEntry
from sinks.errors import FencedWriter, LedgerMismatch, RangeMoved, SinkUnavailable
from sinks.mysql import recounts
from sinks.mysql.recounts import Recount
from sinks.rows import Batch, OffsetRange
from stream.archive.contents import Spans, reachable
from stream.archive.writer import ArchiveAway, ArchiveWriter
from stream.fold.compile import EXPRESSION_NULL, FoldPlan, compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from stream.live_configuration import LiveConfiguration, RunningConfiguration
from stream.quarantine.bisection import places
from stream.quarantine.failures import Origin, error_words, is_java_error, judge
from stream.quarantine.in_hand import HANG_OFFSETS_PER_S, HANG_S, Hand
from stream.quarantine.search import Part, size_of
from stream.source.checkpoint import Offsets
from stream.source.kafka import kafka_options, read_ranges
from stream.spark import java_classes
from stream.state import StreamState, clock_ms
from stream.threads import ThreadKeeper

LOOK_EVERY_S = 1.0
OFFSETS_AT_ONCE = 20_000

# The most tries to count one piece of the lines. Then the recount is given up, because a line of
# the piece can be what crashes the driver.
TRIES_MAX = 5

Archived = Mapping[tuple[str, int], Spans]
"""The offsets that the archive has, by topic and partition."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _OwnPlan:
    """The plan that counts a single metric; `of` is the configuration that has the metric."""

    of: RunningConfiguration
    metric: str
    plan: FoldPlan
    folding: Folding


class Recounter:
    """Runs recounts. `first_offsets` asks the broker for the first offset of each partition.

    `hand` shows what is being counted. `may_count` returns false while a batch is suspected to have
    ended the JVM. Then no piece is started, because it would be unclear which of the two ends the
    JVM next.
    """

    def __init__(
        self,
        configuration: LiveConfiguration,
        entry: ClusterEntry,
        first_offsets: Callable[[], Offsets],
        archive: ArchiveWriter | None,
        state: StreamState,
        stop: threading.Event,
        *,
        hand: Hand,
        may_count: Callable[[], bool],
    ) -> None:
        self._archive = archive
        self._hand = hand
        self._may_count = may_count
        self._metric: str | None = None
        self._configuration = configuration
        self._entry = entry
        self._first_offsets = first_offsets
        self._state = state
        self._stop = stop
        self._own: _OwnPlan | None = None

    def start(self, session: SparkSession, keeper: ThreadKeeper) -> None:
        """Start the thread that looks for requested recounts."""
        own = session.newSession()
        java_classes.register(own)
        keeper.keep("recount", partial(self.work, own))

    def work(self, session: SparkSession) -> None:
        """Count requested recounts until the driver stops or the JVM has ended."""
        pause_s = LOOK_EVERY_S
        while not self._stop.wait(pause_s):
            pause_s = LOOK_EVERY_S
            try:
                if self._count_some(session):
                    pause_s = 0.0
            except (SinkUnavailable, FencedWriter, LedgerMismatch, RangeMoved) as error:
                logger.debug("recounting waits: %s", error)
            except (ApiError, ClientError, ArchiveAway) as error:
                logger.info("recounting waits and tries again", extra=fields(why=error))
            except (Py4JError, PySparkException, OSError) as error:
                if judge(error)[0] is Origin.JVM:
                    # The job's main thread notices the end of the JVM too, and ends the process.
                    return
                logger.warning(
                    "recounting failed and is tried again", extra=fields(why=error_words(error))
                )

    def _count_some(self, session: SparkSession) -> bool:
        """Count one piece for every requested metric; return False if there is nothing to do."""
        now = self._configuration.now
        found = now.sinks.recounts()
        self._state.recounting(found)
        wanted = [one for one in found if one.problem is None and one.metric in now.names]
        for one in wanted:
            if one.tries >= TRIES_MAX:
                self._give_up(one.metric, f"{one.tries} tries of {places(one.gaps)}")
            elif self._may_count():
                self._count_piece(session, now, one)
        return bool(wanted) and self._may_count()

    def give_up(self, why: str) -> None:
        """Give up the recount that is running; called by the thread that watches the JVM."""
        held = self._hand.holds
        if held is not None and self._metric is not None:
            try:
                self._give_up(self._metric, f"{places(held.part)}: {why}")
            except (SinkUnavailable, FencedWriter, LedgerMismatch) as error:
                # The recount ends without this note too, because its tries are stored in MySQL and
                # will reach TRIES_MAX.
                logger.warning("cannot store that a recount ended", extra=fields(why=error))

    def _give_up(self, metric: str, after: str) -> None:
        why = f"given up after {after}"
        logger.error("a recount is given up", extra=fields(metric=metric, why=why))
        note = partial(recounts.give_up, metric=metric, why=why)
        self._configuration.now.sinks.note(note)

    def _count_piece(self, session: SparkSession, now: RunningConfiguration, one: Recount) -> None:
        held = self._first_offsets()
        archived = self._archived_below(held, one.gaps)
        floors = unreachable(one.gaps, held, archived)
        if floors:
            # Retention deleted wanted lines, and the archive has none of them.
            lost = [gap for gap in one.gaps if (gap.topic, gap.partition) in floors]
            logger.warning(
                "lines to recount were deleted from the topic",
                extra=fields(metric=one.metric, offsets=places(lost)),
            )
            now.sinks.note(partial(recounts.raise_floors, metric=one.metric, held=floors))
            return
        piece, is_archived = next_piece(one.gaps, held, archived, OFFSETS_AT_ONCE)
        if is_archived:
            assert self._archive is not None, "something is archived"
            lines = self._archive.read(session, piece)
        else:
            options = kafka_options(now.section, self._entry, None)
            lines = read_ranges(session, options, piece)
        now.sinks.note(partial(recounts.note_try, metric=one.metric))
        counts = self._fold(lines, now, one.metric, piece)
        batch = Batch(
            "",
            -1,
            counts.rows,
            [row for row in counts.unparsed if row.reason == EXPRESSION_NULL + one.metric],
            piece,
            counts.lines,
            clock_ms(),
            None,
            counts.blocks,
        )
        now.sinks.fill(one.metric, batch)

    def _archived_below(self, held: Offsets, gaps: Sequence[OffsetRange]) -> Archived:
        """Return the archived offsets of those topics that no longer have all wanted offsets.

        Raises ArchiveAway if the content of the archive is unknown, so that no offset is taken for
        lost before it is known.
        """
        below = [one for one in gaps if one.start < held.get((one.topic, one.partition), 0)]
        if self._archive is None or not below:
            return {}
        topics = self._archive.held(sorted({one.topic for one in below}))
        return {
            (topic, partition): spans
            for topic, partitions in topics.items()
            for partition, spans in partitions.items()
        }

    def _fold(
        self, lines: DataFrame, now: RunningConfiguration, metric: str, piece: Part
    ) -> BatchCounts:
        if self._own is None or self._own.of is not now or self._own.metric != metric:
            self._own = _own_plan(now, metric)
        self._metric = metric
        self._hand.take(piece, HANG_S + size_of(piece) / HANG_OFFSETS_PER_S)
        try:
            counts = self._own.folding.fold(lines, size_of(piece))
            # If the JVM ends while it sends rows, PySpark takes that for the end of the rows. So
            # call the JVM, because this call fails if the JVM has ended.
            lines.sparkSession.sparkContext._jsc.sc().isStopped()
        except Exception as error:
            origin, causes = judge(error)
            if origin is not Origin.JVM:
                self._hand.let_go()
                if is_java_error(causes):
                    self._hand.met_error(piece)
            raise
        self._hand.let_go()
        return counts


def _own_plan(now: RunningConfiguration, metric: str) -> _OwnPlan:
    own = tuple(one for one in now.section.metrics if one.name == metric)
    plan = compile_plan(now.section.model_copy(update={"metrics": own}))
    folding = Folding(plan, as_blocks=now.sinks.takes_blocks, is_local=now.section.is_local)
    return _OwnPlan(now, metric, plan, folding)


def unreachable(gaps: Sequence[OffsetRange], held: Offsets, archived: Archived) -> Offsets:
    """Return the partitions in which wanted lines were deleted.

    For each, the result has the lowest offset from which on all lines still exist. `held` are the
    first offsets of the topics' partitions.
    """
    found: Offsets = {}
    for one in gaps:
        place = (one.topic, one.partition)
        bottom = reachable(one.end, held.get(place, 0), archived.get(place, ()))
        if one.start < bottom:
            found[place] = bottom
    return found


def next_piece(
    gaps: Sequence[OffsetRange], held: Offsets, archived: Archived, offsets_max: int
) -> tuple[Part, bool]:
    """Return the offsets of the next piece, and whether to read them from the archive.

    All of them are either in the topics or in the archive. Every offset in `gaps` must still exist.
    Offsets in the topics come first, because retention can delete them soon.
    """
    firsts = {(one.topic, one.partition): held.get((one.topic, one.partition), 0) for one in gaps}
    in_topic = [
        OffsetRange(one.topic, one.partition, max(one.start, first), one.end)
        for one in gaps
        if (first := firsts[one.topic, one.partition]) < one.end
    ]
    if in_topic:
        return highest(in_topic, offsets_max), False
    in_archive = [
        OffsetRange(one.topic, one.partition, max(one.start, start), one.end)
        for one in gaps
        for start, end in archived.get((one.topic, one.partition), ())
        if start < one.end <= end
    ]
    return highest(in_archive, offsets_max), True


def highest(gaps: Sequence[OffsetRange], offsets_max: int) -> Part:
    """Return the last offsets of each range: an equal share of `offsets_max`, at least one."""
    share = max(1, offsets_max // len(gaps))
    return tuple(
        OffsetRange(one.topic, one.partition, max(one.start, one.end - share), one.end)
        for one in gaps
    )
