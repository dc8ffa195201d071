"""Folds a batch in one pass over its lines (`java/Fold.java`).

Spark's tasks fold the batch, or the driver's JVM if starting a job would take longer than folding.

The size of the result depends on the number of cells, not on the number of lines. The result comes
as frames. Each frame is a block of cells as text, a pickled list (of rows, numbers of lines, or
samples), or the times of a task.

The frames come through a socket that Spark opens, not as the return value of the call to the JVM. A
return value of more than a few kilobytes arrives 40 ms late, because Nagle's algorithm on one side
waits for the delayed acknowledgement of the other side. Send all large data through such a socket.
"""

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark.serializers import FramedSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import _load_from_socket

from sinks.rows import CellBlock, FoldRow, UnparsedSample
from stream.fold.compile import FoldPlan
from stream.fold.counts import (
    NOTHING_SPENT,
    BatchCounts,
    PartitionCount,
    Reason,
    Spent,
    Stamped,
    fault_reason,
    unparsed_rows,
)
from stream.fold.groupings import FRAMES, SAMPLES, faulty_readings, fold_spec
from stream.fold.judging import Judging
from stream.source.kafka import Span

# The head of a block: kind, metric, size and start of the window, number of keys.
_BLOCK_HEAD = struct.Struct(">BiiqI")

# The times of a task in nanoseconds: for reading, judging and folding. A task of the second stage
# reports only the time for writing cells as text.
_TASK_TIMES = struct.Struct(">Bqqq")
_TEXT_TIME = struct.Struct(">Bq")
_NS_PER_S = 1_000_000_000


class _Frames(FramedSerializer):
    """A serializer for PySpark that returns each frame as its bytes."""

    def loads(self, obj: bytes) -> bytes:
        return obj


class JavaFold:
    """Folds the batches of one plan in the JVM.

    With `as_blocks`, the JVM returns cells without a sketch as blocks of text, which the sinks
    store without parsing them. Otherwise it returns every cell as a row.
    """

    def __init__(self, plan: FoldPlan, *, as_blocks: bool) -> None:
        self._plan = plan
        self._spec = fold_spec(plan, as_blocks=as_blocks)

    def of_many(self, lines: DataFrame, judging: Judging, tasks: int, parallel: int) -> BatchCounts:
        """Judge and fold lines, which have the columns of `kafka.COLUMNS_DDL`.

        `tasks` is the number of tasks in the second stage, which combines the cells. `parallel` is
        how many tasks can run at the same time.
        """
        jvm: Any = lines.sparkSession._jvm
        place = jvm.millrace.Fold.serve(lines._jdf, judging.shared, self._spec, tasks)
        return self._counts(place, parallel)

    def of_span(self, session: SparkSession, span: Span, judging: Judging) -> BatchCounts:
        """Read, judge and fold the lines of an offset range in the driver's JVM, without a Spark
        job."""
        jvm: Any = session._jvm
        return self._counts(jvm.millrace.Fold.serveHere(*span, judging.java, self._spec))

    def of_few(self, lines: DataFrame, judging: Judging) -> BatchCounts:
        """Let Spark collect lines in the driver's JVM, and judge and fold them there."""
        jvm: Any = lines.sparkSession._jvm
        rows = lines._jdf.queryExecution().executedPlan().executeCollect()
        return self._counts(jvm.millrace.Fold.serveRows(rows, judging.java, self._spec))

    def _counts(self, place: Any, parallel: int = 1) -> BatchCounts:
        with _load_from_socket(place, _Frames()) as found:
            return counts_of(found, self._plan, parallel)


def counts_of(frames: Iterable[bytes], plan: FoldPlan, parallel: int = 1) -> BatchCounts:
    """Combine the frames of one batch. `parallel` is how many tasks ran at the same time.

    Raises OSError if the last frame is missing.
    """
    return _Counting(plan).counts(_whole(frames), parallel)


def _whole(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield all frames except the last, which marks the end.

    Raises ConnectionResetError without that mark, because PySpark takes a broken socket for the end
    of the frames.
    """
    for frame in frames:
        if frame[0] == FRAMES["end"]:
            return
        yield frame
    raise ConnectionResetError("Java has sent only a part of a batch's cells")


class _Counting:
    """Combines the frames of one batch."""

    def __init__(self, plan: FoldPlan) -> None:
        self._plan = plan
        self._faulty = faulty_readings(plan)
        self._rows: list[FoldRow] = []
        self._blocks: list[CellBlock] = []
        self._partitions: dict[tuple[str, int], PartitionCount] = {}
        self._unparsed: dict[Reason, int] = {}
        self._samples: dict[Reason, list[UnparsedSample]] = {}
        self._stamped: list[Stamped] = []
        self._tasks: list[Spent] = []
        self._texts: list[Spent] = []

    def counts(self, frames: Iterable[bytes], parallel: int) -> BatchCounts:
        """Return the combined counts."""
        take: dict[int, Callable[..., None]] = {
            FRAMES["rows"]: self._row,
            FRAMES["tallies"]: self._tally,
            FRAMES["samples"]: self._sample,
        }
        for frame in frames:
            if frame[0] == FRAMES["block"]:
                self._block(frame)
            elif frame[0] == FRAMES["task"]:
                _, *nanos = _TASK_TIMES.unpack(frame)
                self._tasks.append(Spent(*(one / _NS_PER_S for one in nanos)))
            elif frame[0] == FRAMES["text"]:
                _, nanos_of_text = _TEXT_TIME.unpack(frame)
                self._texts.append(Spent(folded_s=nanos_of_text / _NS_PER_S))
            else:
                for one in pickle.loads(memoryview(frame)[1:]):
                    take[frame[0]](*one)
        unparsed = {
            why: (lines, _first(self._samples.get(why, ())))
            for why, lines in self._unparsed.items()
        }
        partitions = [self._partitions[place] for place in sorted(self._partitions)]
        spent = _beside(self._tasks, parallel) + _beside(self._texts, parallel)
        return BatchCounts(
            self._rows, unparsed_rows(unparsed), partitions, self._blocks, spent, self._stamped
        )

    def _block(self, frame: bytes) -> None:
        _, number, size_s, start_s, keys = _BLOCK_HEAD.unpack_from(frame)
        name = self._plan.metrics[number].name
        self._blocks.append(CellBlock(name, size_s, start_s, keys, frame[_BLOCK_HEAD.size :]))

    def _row(
        self, number: int, start_s: int, key: Any, count: int, total: Any, low: Any, high: Any,
        sketch: Any,
    ) -> None:  # fmt: skip
        is_hll = self._plan.readings[number].measure == "unique"
        found = None if sketch is None else bytes(sketch)
        hll, kll = (found, None) if is_hll else (None, found)
        name = self._plan.metrics[number].name
        self._rows.append(FoldRow(name, start_s, tuple(key), count, total, low, high, hll, kll))

    def _tally(
        self, topic: str, partition: int, file: str | None, reason: str | None, lines: int,
        low: int, high: int, latest_s: int | None, faults: Any, stamps: Any,
    ) -> None:  # fmt: skip
        self._stamped.append(Stamped(topic, partition, *stamps))
        one = PartitionCount(topic, partition, lines, low, high, latest_s)
        known = self._partitions.get((topic, partition))
        self._partitions[topic, partition] = one if known is None else known.joined(one)
        if reason is not None:
            self._not_counted(Reason(topic, file, reason), lines)
        for reading, count in zip(self._faulty, faults, strict=True):
            self._not_counted(Reason(topic, file, fault_reason(self._plan, reading.number)), count)

    def _not_counted(self, why: Reason, lines: int) -> None:
        if lines:
            self._unparsed[why] = self._unparsed.get(why, 0) + lines

    def _sample(
        self, topic: str, partition: int, file: str | None, reason: str | None,
        number: int | None, offset: int, line: Any,
    ) -> None:  # fmt: skip
        if reason is None:
            assert number is not None
            reason = fault_reason(self._plan, number)
        sample = UnparsedSample(partition, offset, bytes(line))
        self._samples.setdefault(Reason(topic, file, reason), []).append(sample)


def _beside(tasks: Sequence[Spent], parallel: int) -> Spent:
    """Return the elapsed time of tasks if `parallel` of them ran at the same time."""
    return sum(tasks, NOTHING_SPENT).over(max(1, min(parallel, len(tasks))))


def _first(samples: Iterable[UnparsedSample]) -> list[UnparsedSample]:
    """Return the first SAMPLES samples of each partition, because each task sends up to SAMPLES."""
    kept: dict[int, int] = {}
    first: list[UnparsedSample] = []
    for one in sorted(samples, key=lambda one: (one.partition, one.offset)):
        kept[one.partition] = kept.get(one.partition, 0) + 1
        if kept[one.partition] <= SAMPLES:
            first.append(one)
    return first
