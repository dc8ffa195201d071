"""Counts one batch for Spark's foreachBatch: folds the lines, and passes the result to the sinks.

It runs on a thread of the JVM bridge. If a batch cannot be counted as a whole, `bisection.py`
counts it in parts and leaves out the lines that cause the error. The sinks still receive one batch.
If a sink is away, the batch waits here until the sink is back. If the query ended instead, it would
have to read and fold the lines again.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from protocol.log import fields
from sinks.errors import SinkUnavailable
from sinks.rows import Batch, OffsetRange
from sinks.store import BatchCost, BatchOutcome
from stream.fold.compile import FoldPlan
from stream.fold.counts import BatchCounts, PartitionCount, Spent
from stream.fold.folding import READ_HERE_LINES, Folding
from stream.pieces import PIECE_OFFSETS_MIN, pieces_of
from stream.quarantine.bisection import (
    Bisection,
    CountedBatch,
    OffsetsDiffer,
    StopRequested,
    with_starts,
)
from stream.quarantine.crash_record import CrashRecord
from stream.quarantine.in_hand import InHand
from stream.quarantine.part_reader import SparkParts
from stream.quarantine.search import Part, PartSize
from stream.source.admission import Admission
from stream.source.checkpoint import EARLIEST, CheckpointFolder, Offsets
from stream.source.kafka import LINES_PER_TASK_MIN, span_of
from stream.stages import BatchWork
from stream.state import StreamState, clock_ms
from stream.write_behind import WriteBehind

RETRY_SINK_S = 0.5

logger = logging.getLogger(__name__)


class Destination(Protocol):
    """An object that receives batches. `sinks.store.Sinks` implements it."""

    taken: BatchCost

    @property
    def takes_blocks(self) -> bool: ...

    def apply(self, batch: Batch) -> BatchOutcome: ...


class BatchWriter:
    """Writes the batches of one query.

    `failure` is the exception with which this writer ended the query, or None. `has_applied` is
    true once the sinks have accepted a batch.
    """

    def __init__(
        self,
        query_id: str,
        plan: FoldPlan,
        sinks: Destination,
        checkpoint: CheckpointFolder,
        state: StreamState,
        stop: threading.Event,
        *,
        crash_record: CrashRecord,
        size: PartSize,
        admission: Admission,
        options: Mapping[str, str],
        first_offsets: Callable[[], Offsets],
        is_local: bool,
    ) -> None:
        """`options` are the options of Spark's Kafka source, for reading parts of a batch again.

        `is_local`: Spark's tasks run in the driver's process, and not in executors.
        `first_offsets` asks the broker for the first offset that it has of each partition.
        """
        self.failure: Exception | None = None
        self.has_applied = False
        self._query_id = query_id
        self._batch_id = -1
        self._plan = plan
        self._sinks = sinks
        self._checkpoint = checkpoint
        self._state = state
        self._stop = stop
        self._crash_record = crash_record
        self._bisection = Bisection(state, stop, crash_record, size, lambda: self._is_held)
        self._admission = admission
        self._options = options
        self._first_offsets = first_offsets
        self._folding = Folding(plan, as_blocks=sinks.takes_blocks, is_local=is_local)
        self._idle = threading.Event()
        self._idle.set()
        self._is_held = False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch; Spark calls this. An exception ends the query."""
        self._idle.clear()
        self._state.batch_begins()
        begin = time.monotonic()
        try:
            lines = self._write(frame, batch_id)
            self._admission.counted(lines, time.monotonic() - begin)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._state.batch_ends()
            self._idle.set()

    def hold(self) -> None:
        """Refuse further batches, because another query will replace this one.

        A search for lines that cause an error stops. A batch that is being counted can still end,
        but within a shorter time limit (`Hand.hurry`).
        """
        self._is_held = True
        self._bisection.hand.hurry()

    @property
    def is_idle(self) -> bool:
        """True if no batch is being counted."""
        return self._idle.is_set()

    def wait_between_batches(self, timeout_s: float) -> bool:
        """Wait until no batch is being counted; return False after the time-out."""
        return self._idle.wait(timeout_s)

    @property
    def in_hand(self) -> InHand | None:
        """The part that the JVM is counting for this writer; None if it counts none."""
        return self._bisection.hand.holds

    def note_death(self, blame: int) -> Part | None:
        """Record the part that the JVM was counting when it ended, and return that part.

        None if the JVM was counting nothing. `blame` is added to what is recorded for the part.
        """
        part = self._bisection.hand.to_blame
        if part is not None:
            self._crash_record.note(self._query_id, self._batch_id, part, blame)
        return part

    def _write(self, frame: DataFrame, batch_id: int) -> int:
        if self._stop.is_set() or self._is_held:
            raise StopRequested
        self._batch_id = batch_id
        ranges = list(self._checkpoint.ranges(batch_id).values())
        offsets = sum(one.end - max(one.start, 0) for one in ranges)
        parts = SparkParts(
            frame.sparkSession,
            self._options,
            self._plan,
            self._count,
            self._folding.tasks,
            self._first_offsets,
        )
        pieces = [tuple(ranges)]
        if self._sinks.takes_blocks and offsets >= 2 * PIECE_OFFSETS_MIN:
            pieces = pieces_of(with_starts(ranges, parts))
        if len(pieces) == 1:
            count = partial(self._count_batch, frame, ranges, offsets, parts)
            counted, spent = self._counted(ranges, count, parts)
            lines = self._hand_over(counted, spent, is_last=True)
        else:
            lines = self._write_pieces(pieces, parts)
        self._crash_record.clear()
        return lines

    def _write_pieces(self, pieces: Sequence[Part], parts: SparkParts) -> int:
        """Count one piece after the other. The sinks store the previous piece in the meantime."""
        lines = 0
        with WriteBehind("sinks") as sinks:
            for number, piece in enumerate(pieces, 1):
                if self._stop.is_set():
                    raise StopRequested
                count = partial(parts.count, _held(piece))
                counted, spent = self._counted(piece, count, parts)
                lines += counted.counts.lines
                is_last = number == len(pieces)
                sinks.do(partial(self._hand_over, counted, spent, is_last=is_last))
        return lines

    def _counted(
        self, ranges: Sequence[OffsetRange], count: Callable[[], BatchCounts], parts: SparkParts
    ) -> tuple[CountedBatch, Spent]:
        """Count a batch or piece. Return the result, and the time that each step took."""
        begin = time.monotonic()
        counted = self._bisection.count(ranges, count, parts)
        return counted, counted.counts.spent.within(time.monotonic() - begin)

    def _hand_over(self, counted: CountedBatch, spent: Spent, *, is_last: bool) -> int:
        """Pass the counts of a batch to the sinks. Return the number of lines."""
        counts = counted.counts
        exact = exact_ranges(counted.ranges, counts.partitions)
        batch = Batch(
            self._query_id,
            self._batch_id,
            counts.rows,
            counts.unparsed,
            exact,
            counts.lines,
            clock_ms(),
            self._state.lines_behind(exact),
            counts.blocks,
            is_last,
        )
        begin = time.monotonic()
        outcome = self._apply(batch)
        self.has_applied = True
        sinks_ms = int((time.monotonic() - begin) * 1000)
        work = work_of(counts, spent, self._sinks.taken, self._admission.kept_up, clock_ms())
        self._note(batch, counted, outcome, sinks_ms, work)
        return counts.lines

    def _count_batch(
        self, frame: DataFrame, ranges: Sequence[OffsetRange], offsets: int, parts: SparkParts
    ) -> BatchCounts:
        """Fold a batch that is a single piece.

        A local driver reads a small batch itself, because that is faster than a Spark job. On a
        cluster, all executors share a large batch. It is read again for that, because the frame
        that Spark passes in has only one task per partition.
        """
        session, folding = frame.sparkSession, self._folding
        is_known = all(one.start != EARLIEST for one in ranges)
        if is_known and folding.is_local and offsets <= READ_HERE_LINES:
            return self._whole(session, folding.fold_here(session, span_of(ranges), offsets))
        if is_known and not folding.is_local and offsets > LINES_PER_TASK_MIN:
            return parts.count(_held(ranges))
        return self._count(frame, offsets)

    def _count(self, frame: DataFrame, offsets: int) -> BatchCounts:
        """Fold a frame that covers this many offsets."""
        return self._whole(frame.sparkSession, self._folding.fold(frame, offsets))

    @staticmethod
    def _whole(session: SparkSession, counts: BatchCounts) -> BatchCounts:
        """Return the counts, after checking that the JVM has sent all of them."""
        # If the JVM ends while it sends rows, PySpark takes that for the end of the rows. So call
        # the JVM, because this call fails if the JVM has ended.
        session.sparkContext._jsc.sc().isStopped()
        return counts

    def _apply(self, batch: Batch) -> BatchOutcome:
        """Pass the batch to the sinks until they accept it.

        Raises StopRequested for a stop, and the exception of a sink that refuses the batch.
        """
        was_away = False
        while True:
            try:
                return self._sinks.apply(batch)
            except SinkUnavailable as error:
                self._state.waiting(f"{error.sink}-away", str(error))
                if not was_away:
                    logger.warning(
                        "MySQL or Redis does not answer; the batch waits",
                        extra=fields(reason=error),
                    )
                was_away = True
            if self._stop.wait(RETRY_SINK_S):
                raise StopRequested

    def _note(
        self,
        batch: Batch,
        counted: CountedBatch,
        outcome: BatchOutcome,
        sinks_ms: int,
        work: BatchWork,
    ) -> None:
        latest_s = counted.counts.latest_s
        replayed = outcome is BatchOutcome.REPLAYED
        if replayed:
            logger.info(
                "batch skipped, because the sinks have it already",
                extra=fields(batch=batch.batch_id),
            )
        self._state.batch_applied(
            batch.batch_id,
            batch.lines,
            len(batch.rows),
            batch.unparsed,
            batch.ranges,
            replayed=replayed,
            event_time_ms=None if latest_s is None else latest_s * 1000,
            sinks_ms=sinks_ms,
            poison=counted.poison,
            work=work,
        )


def work_of(
    counts: BatchCounts,
    spent: Spent,
    taken: BatchCost,
    kept_up: Collection[tuple[str, int]],
    now_ms: int,
) -> BatchWork:
    """Return the time of each stage of the counting, and the present age of the live lines.

    `kept_up` are the partitions whose lines are live.
    """
    seconds = {"source": spent.read_s, "parse": spent.judged_s, "fold": spent.folded_s}
    for name, sink_s in (("mysql", taken.mysql_s), ("redis", taken.redis_s)):
        if sink_s is not None:
            seconds[name] = sink_s
    ages = [
        (now_ms - at_ms, lines)
        for one in counts.stamped
        if (one.topic, one.partition) in kept_up
        for at_ms, lines in one.moments()
    ]
    return BatchWork(seconds, counts.lines, taken.cells, ages)


def _held(ranges: Sequence[OffsetRange]) -> Part:
    """Return the offset ranges that are not empty."""
    return tuple(one for one in ranges if one.start < one.end)


def exact_ranges(
    ranges: Sequence[OffsetRange], seen: Sequence[PartitionCount]
) -> list[OffsetRange]:
    """Return the ranges of a batch with every start known.

    Raises OffsetsDiffer if the lines that were read (`seen`) are not in these ranges.

    A partition that appeared with this batch starts at its first line. Without lines its range is
    empty.
    """
    found = {(count.topic, count.partition): count for count in seen}
    exact: list[OffsetRange] = []
    for one in ranges:
        count = found.pop((one.topic, one.partition), None)
        start = one.start
        if start == EARLIEST:
            start = one.end if count is None else count.first_offset
        if count is not None and not start <= count.first_offset <= count.last_offset < one.end:
            raise OffsetsDiffer(
                f"{one.topic}-{one.partition}: the lines have the offsets {count.first_offset} to"
                f" {count.last_offset}, but the batch goes from {start} to {one.end}"
            )
        exact.append(OffsetRange(one.topic, one.partition, start, one.end))
    if found:
        raise OffsetsDiffer(f"found lines of {sorted(found)}, which the batch does not cover")
    return exact
