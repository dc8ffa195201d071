"""foreachBatch: one batch of lines, folded, brought back once, and handed to the sinks.

Runs on a thread of the JVM bridge. The frame is used for one action, because every action reads
Kafka again; a second one brings samples of what does not parse in a large batch. A sink that is
away keeps the batch here until it is back: the rows are in hand, and a query that ended would have
to read and fold them again.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from protocol.log import fields
from sinks.errors import SinkUnavailable
from sinks.rows import Batch, OffsetRange, UnparsedRow
from sinks.store import Outcome
from stream.checkpoint import EARLIEST, Checkpoint
from stream.compile import SAMPLES, FoldPlan
from stream.counts import Counts, PartitionCount, add_samples, group, read_rows
from stream.state import StreamState, clock_ms

# Up to this many offsets a batch is folded by one task, which saves the shuffle.
ONE_TASK_LINES = 10_000

RETRY_SINK_S = 0.5

logger = logging.getLogger(__name__)


class StopRequested(Exception):
    """The part stops; the batch was not begun, or is given up before the sinks have it."""


class OffsetsDiffer(Exception):
    """A batch holds a line outside of the offsets that Spark's log names for it."""


class Destination(Protocol):
    """What a batch is handed to; `sinks.store.Sinks`."""

    def apply(self, batch: Batch) -> Outcome: ...


class _Sampled:
    """How many samples a file has given today; the sinks keep no more of it than SAMPLES."""

    def __init__(self) -> None:
        self._day = 0
        self._given: dict[tuple[str, str], int] = {}

    def wants(self, unparsed: Sequence[UnparsedRow], now_ms: int) -> bool:
        """Is there a file among these of which more samples would be kept?"""
        day = now_ms // 86_400_000
        if day != self._day:
            self._day, self._given = day, {}
        return any(self._given.get((row.topic, row.file), 0) < SAMPLES for row in unparsed)

    def note(self, unparsed: Sequence[UnparsedRow]) -> None:
        """These samples are on their way to the sinks."""
        for row in unparsed:
            file = (row.topic, row.file)
            self._given[file] = self._given.get(file, 0) + len(row.samples)


class BatchWriter:
    """Writes the batches of one query. `failure` is why the query ended, if this ended it."""

    def __init__(
        self,
        query_id: str,
        plan: FoldPlan,
        sinks: Destination,
        checkpoint: Checkpoint,
        state: StreamState,
        stop: threading.Event,
    ) -> None:
        self.failure: Exception | None = None
        self._query_id = query_id
        self._plan = plan
        self._sinks = sinks
        self._checkpoint = checkpoint
        self._state = state
        self._stop = stop
        self._sampled = _Sampled()
        self._idle = threading.Event()
        self._idle.set()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What Spark calls for every batch; an exception ends the query."""
        self._idle.clear()
        try:
            self._write(frame, batch_id)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._idle.set()

    def wait_between_batches(self, timeout_s: float) -> bool:
        """Wait until no batch is in hand."""
        return self._idle.wait(timeout_s)

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        if self._stop.is_set():
            raise StopRequested
        ranges = self._checkpoint.ranges(batch_id)
        offsets = sum(one.end - max(one.start, 0) for one in ranges.values())
        counts = self._count(frame, is_small=offsets <= ONE_TASK_LINES)
        exact = exact_ranges(list(ranges.values()), counts.partitions)
        batch = Batch(
            self._query_id,
            batch_id,
            counts.rows,
            counts.unparsed,
            exact,
            counts.lines,
            clock_ms(),
            self._state.lines_behind(exact),
        )
        begin = time.monotonic()
        outcome = self._apply(batch)
        self._note(batch, counts, outcome, int((time.monotonic() - begin) * 1000))

    def _count(self, frame: DataFrame, *, is_small: bool) -> Counts:
        """Fold the batch by one action; a large one with lines that do not parse by two."""
        plan = self._plan
        if is_small:
            groups = group(frame.coalesce(1), plan.sampled_groups_sql).collect()
            return read_rows(groups, plan)
        counts = read_rows(group(frame, plan.groups_sql).collect(), plan)
        if self._sampled.wants(counts.unparsed, clock_ms()):
            counts = add_samples(counts, group(frame, plan.samples_sql).collect(), plan)
            self._sampled.note(counts.unparsed)
        return counts

    def _apply(self, batch: Batch) -> Outcome:
        """Offer the batch until it is taken; only a stop or a refusal ends that."""
        was_away = False
        while True:
            try:
                return self._sinks.apply(batch)
            except SinkUnavailable as error:
                self._state.waiting(f"{error.sink}-away", str(error))
                if not was_away:
                    logger.warning("waiting for a sink", extra=fields(reason=error))
                was_away = True
            if self._stop.wait(RETRY_SINK_S):
                raise StopRequested

    def _note(self, batch: Batch, counts: Counts, outcome: Outcome, sinks_ms: int) -> None:
        latest_s = counts.latest_s
        replayed = outcome is Outcome.REPLAYED
        if replayed:
            logger.info("batch was counted before", extra=fields(batch=batch.batch_id))
        self._state.batch_applied(
            batch.batch_id,
            batch.lines,
            len(batch.rows),
            batch.unparsed,
            batch.ranges,
            replayed=replayed,
            event_time_ms=None if latest_s is None else latest_s * 1000,
            sinks_ms=sinks_ms,
        )


def exact_ranges(
    ranges: Sequence[OffsetRange], seen: Sequence[PartitionCount]
) -> list[OffsetRange]:
    """The ranges with every start known, checked against the lines that were really there.

    A partition that appeared with this batch starts at its first line, or is empty.
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
                f"{one.topic}-{one.partition}: lines from {count.first_offset} to"
                f" {count.last_offset} in a batch from {start} to {one.end}"
            )
        exact.append(OffsetRange(one.topic, one.partition, start, one.end))
    if found:
        raise OffsetsDiffer(f"lines of {sorted(found)}, which the batch does not cover")
    return exact
