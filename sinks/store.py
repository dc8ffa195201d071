"""The sinks of one driver: the truth is written first, and the live view follows it.

Between batches a separate thread maintains both, even while no line arrives. It refills a Redis
that came back empty, compares what Redis shows with the truth, and deletes what is older than its
`keep`. A lock separates it from merging, so each of its steps runs between two merges.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from sinks.config import SinksSettings
from sinks.errors import SinkUnavailable
from sinks.facts import SinkFacts
from sinks.mysql.cell_reader import MySqlCellReader
from sinks.mysql.recounts import Recount, wanted
from sinks.mysql.sink import MySqlSink
from sinks.redis.link import MergeFacts, progress_of
from sinks.redis.truth import RedisTruth
from sinks.redis.view_writer import RedisView
from sinks.rows import Batch, MetricDefinition
from sinks.tending import start_tending
from sinks.truth import Merged, Truth, WriterGuard

PATIENCE_S = 5.0
PURGE_EVERY_S = 600.0
TEND_EVERY_S = 1.0
# The time limits of a refill: at the start, after a batch, and between batches of an idle stream.
REFILL_AT_START_S = 2.0
REFILL_AFTER_BATCH_S = 0.05
REFILL_WHEN_IDLE_S = 0.2

Result = TypeVar("Result")


def clock_ms() -> int:
    """Return epoch milliseconds."""
    return time.time_ns() // 1_000_000


class BatchOutcome(Enum):
    """The result of applying a batch: merged now, or merged before."""

    MERGED = "merged"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The cost of the last batch: seconds at MySQL and Redis, and cells created or changed.

    The seconds of a sink are None if the mill does not have that sink.
    """

    mysql_s: float | None = None
    redis_s: float | None = None
    cells: int = 0


class Sinks:
    """Applies batches exactly once to the sinks that are switched on.

    With MySQL, Redis is a view that can fall behind and is then brought up to date. Without MySQL,
    Redis is the truth. `states` has `ok`, `rebuilding` or `down: …` for each sink. `Tended`
    explains `untended`. `taken` is the cost of the last batch. `left_out_total` is the number of
    cells that were not written, because their windows were older than their `keep`.
    """

    def __init__(
        self,
        settings: SinksSettings,
        metrics: Sequence[MetricDefinition],
        *,
        clock_ms: Callable[[], int] = clock_ms,
        patience_s: float = PATIENCE_S,
        tend_every_s: float = TEND_EVERY_S,
    ) -> None:
        self._metrics = list(metrics)
        self._clock_ms = clock_ms
        self._tend_every_s = tend_every_s
        self._mysql: MySqlSink | None = None
        self._view: RedisView | None = None
        self._truth: Truth
        self._guard: WriterGuard | None = None
        self._progress = MergeFacts(0, None, 0, ())
        self._purge_at_s = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._tender: threading.Thread | None = None
        self.states: dict[str, str] = {}
        self.left_out_total = 0
        self.untended: str | None = None
        self.taken = BatchCost()
        if settings.mysql is not None:
            self._truth = self._mysql = MySqlSink(settings.mysql, patience_s=patience_s)
            self.states["mysql"] = "not asked yet"
            if settings.redis is not None:
                cell_reader = MySqlCellReader(self._mysql, metrics)
                self._view = RedisView(settings.redis, metrics, cell_reader)
        elif settings.redis is not None:
            self._truth = RedisTruth(settings.redis)
        else:
            raise ValueError("found no sink, expected mysql or redis")
        if settings.redis is not None:
            self.states["redis"] = "not asked yet"

    @property
    def scrubbed_total(self) -> int:
        """The number of windows of the live view that differed from the truth and were
        rewritten."""
        return 0 if self._view is None else self._view.scrubbed_total

    @property
    def facts(self) -> SinkFacts:
        """The present state of the sinks."""
        notices = () if self._mysql is None else self._mysql.notices
        return SinkFacts(
            dict(self.states), self.scrubbed_total, self.left_out_total, notices, self.untended
        )

    @property
    def takes_blocks(self) -> bool:
        """True if batches may have blocks. Without MySQL the sinks accept only rows."""
        return self._mysql is not None

    def open(self, query_id: str) -> int:
        """Become the only writer, and bring Redis up to MySQL's state; return the epoch.

        When this returns, Redis has the totals and the newest windows; older ones can follow.
        Raises DefinitionChanged, SchemaTooNew, SchemaTooOld, SinkUnavailable.
        """
        with self._lock, _Noting(self):
            self._guard = None
            now_ms = self._clock_ms()
            guard = self._truth.open(query_id, self._metrics, now_ms // 1000)
            self._progress = MergeFacts(0, None, now_ms, ())
            self._bring_up(guard, REFILL_AT_START_S)
            self._guard = guard
        self._start_tending()
        return guard.epoch

    def ledger(self) -> Mapping[tuple[str, int], int]:
        """Return the end offsets of counted lines by (topic, partition); raises SinkUnavailable."""
        with self._lock:
            return self._truth.ledger()

    def apply(self, batch: Batch) -> BatchOutcome:
        """Merge a batch exactly once, even if it is sent several times.

        Raises SinkUnavailable (send the same batch again), FencedWriter (end and do not restart),
        LedgerMismatch (resume from the ledger under a new query id).
        """
        with self._lock, _Noting(self):
            begin = time.monotonic()
            merged = self._truth.apply(batch)
            self._guard = merged.guard
            middle = time.monotonic()
            self.left_out_total += merged.left_out
            self._show(batch, merged)
            self.taken = self._taken(middle - begin, time.monotonic() - middle, merged.changed)
        return BatchOutcome.REPLAYED if merged.replayed else BatchOutcome.MERGED

    def _taken(self, truth_s: float, view_s: float, cells: int) -> BatchCost:
        if self._mysql is None:
            return BatchCost(None, truth_s, cells)
        return BatchCost(truth_s, None if self._view is None else view_s, cells)

    def recounts(self) -> list[Recount]:
        """Return the pending recounts; raises SinkUnavailable, also before `open`."""
        if self._mysql is None:
            return []
        return self.note(wanted)

    def note(self, note: Callable[[Any], Result]) -> Result:
        """Run a function with a MySQL cursor in a transaction, for recounts and the archive."""
        assert self._mysql is not None, "this needs MySQL"
        with self._lock:
            if self._guard is None:
                # The tables may not exist before `open` has created them.
                raise SinkUnavailable("mysql", "the sinks are not opened yet")
            return self._mysql.work(note)

    def fill(self, metric: str, batch: Batch) -> None:
        """Merge a batch of a recount; raises as `apply` does, and RangeMoved."""
        assert self._mysql is not None, "recounts need MySQL"
        with self._lock, _Noting(self):
            merged = self._mysql.fill(metric, batch)
            self._guard = merged.guard
            self.left_out_total += merged.left_out
            if self._view is not None:
                told = progress_of(batch, merged.cells, merged.bulk)
                self._progress = replace(self._progress_at(batch.now_ms), changed=told.changed)
                self._view.follow(merged.guard, merged.cells, merged.fallen, self._progress)

    def rest(self) -> None:
        """Change nothing until `open` is called again, because another driver takes over."""
        with self._lock:
            self._guard = None

    def tend(self) -> None:
        """Do one round of maintenance between batches; raises as `apply` does."""
        with self._lock:
            if self._guard is None or self._closed.is_set():
                return
            with _Noting(self):
                self._progress = self._progress_at(self._clock_ms())
                self._bring_up(self._guard, REFILL_WHEN_IDLE_S)
                if self._view is not None:
                    self._view.scrub(self._guard, self._progress.now_ms // 1000)
                self._purge_sometimes()

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        if self._tender is not None and self._tender is not threading.current_thread():
            self._tender.join()
        with self._lock:
            self._truth.close()
            if self._view is not None:
                self._view.close()

    def _show(self, batch: Batch, merged: Merged) -> None:
        if self._view is None:
            return
        if merged.replayed:
            self._progress = self._progress_at(batch.now_ms)
            self._view.catch_up(merged.guard, self._progress)
        else:
            self._progress = progress_of(batch, merged.cells, merged.bulk)
            self._view.follow(merged.guard, merged.cells, merged.fallen, self._progress)
        self._view.refill(merged.guard, batch.now_ms // 1000, REFILL_AFTER_BATCH_S)

    def _bring_up(self, guard: WriterGuard, budget_s: float) -> None:
        if self._view is not None:
            self._view.catch_up(guard, self._progress)
            self._view.refill(guard, self._progress.now_ms // 1000, budget_s)

    def _progress_at(self, now_ms: int) -> MergeFacts:
        return MergeFacts(self._progress.lines, self._progress.lag, now_ms, ())

    def _purge_sometimes(self) -> None:
        if self._mysql is not None and time.monotonic() >= self._purge_at_s:
            left = self._mysql.purge(self._clock_ms() // 1000)
            self._purge_at_s = time.monotonic() + (0 if left else PURGE_EVERY_S)

    def _start_tending(self) -> None:
        if self._mysql is not None and self._tender is None:
            self._tender = start_tending(self, self._closed, self._tend_every_s)


class _Noting:
    """A context that records in `states` whether the work inside it succeeded."""

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        states = self._sinks.states
        if isinstance(error, SinkUnavailable):
            states[error.sink] = f"down: {error.reason}"
        elif error is None:
            states.update(dict.fromkeys(states, "ok"))
            view = self._sinks._view
            if view is not None and view.is_refilling:
                states["redis"] = "rebuilding"
