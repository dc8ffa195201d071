"""The sinks of one driver: the truth first, then the live view behind it."""

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from sinks.config import SinksSettings
from sinks.errors import SinkUnavailable
from sinks.mysql_sink import MySqlSink
from sinks.redis_sink import Progress, RedisView, progress_of
from sinks.redis_truth import RedisTruth
from sinks.rows import Batch, MetricDefinition
from sinks.truth import Merged, Truth

PATIENCE_S = 5.0
PURGE_EVERY_S = 600.0


def clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Outcome(Enum):
    """What became of a batch."""

    MERGED = "merged"
    REPLAYED = "replayed"


class Sinks:
    """Applies batches exactly once to whatever sinks are switched on.

    With MySQL, Redis is a view that may fall behind and is brought up again; alone, Redis is the
    truth. Not for use by several threads.
    """

    def __init__(
        self,
        settings: SinksSettings,
        metrics: Sequence[MetricDefinition],
        *,
        clock_ms: Callable[[], int] = clock_ms,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._metrics = list(metrics)
        self._clock_ms = clock_ms
        self._mysql: MySqlSink | None = None
        self._view: RedisView | None = None
        self._truth: Truth
        self._purge_at_s = time.monotonic() + PURGE_EVERY_S
        self.states: dict[str, str] = {}
        if settings.mysql is not None:
            self._truth = self._mysql = MySqlSink(settings.mysql, patience_s=patience_s)
            self.states["mysql"] = "not asked yet"
            if settings.redis is not None:
                self._view = RedisView(settings.redis, metrics)
        elif settings.redis is not None:
            self._truth = RedisTruth(settings.redis)
        else:
            raise ValueError("found no sink, expected mysql or redis")
        if settings.redis is not None:
            self.states["redis"] = "not asked yet"

    def open(self, query_id: str) -> int:
        """Take over as the one writer, and bring Redis up to MySQL; returns the epoch.

        Raises DefinitionChanged, SinkUnavailable.
        """
        try:
            now_ms = self._clock_ms()
            guard = self._truth.open(query_id, self._metrics, now_ms // 1000)
            if self._mysql is not None and self._view is not None:
                self._view.catch_up(guard, Progress(0, None, now_ms, ()), self._mysql)
        except SinkUnavailable as error:
            self._note_away(error)
            raise
        self._note_all_well()
        return guard.epoch

    def ledger(self) -> Mapping[tuple[str, int], int]:
        """End offsets of what is counted, by (topic, partition); raises SinkUnavailable."""
        return self._truth.ledger()

    def apply(self, batch: Batch) -> Outcome:
        """Count a batch once, however often it comes.

        Raises SinkUnavailable (send the same batch again), Fenced (end and stay down),
        LedgerMismatch (resume from the ledger under a new query id).
        """
        try:
            merged = self._truth.apply(batch)
            self._show(batch, merged)
            self._purge_sometimes()
        except SinkUnavailable as error:
            self._note_away(error)
            raise
        self._note_all_well()
        return Outcome.REPLAYED if merged.replayed else Outcome.MERGED

    def close(self) -> None:
        """Leave the servers."""
        self._truth.close()
        if self._view is not None:
            self._view.close()

    def _show(self, batch: Batch, merged: Merged) -> None:
        if self._view is None or self._mysql is None:
            return
        # The guard of our own transaction, never one read later: that may be a successor's.
        progress = progress_of(batch, merged.cells)
        if merged.replayed:
            self._view.catch_up(merged.guard, progress, self._mysql)
        else:
            self._view.follow(merged.guard, merged.cells, progress, self._mysql)

    def _purge_sometimes(self) -> None:
        if self._mysql is not None and time.monotonic() >= self._purge_at_s:
            self._mysql.purge(self._clock_ms() // 1000)
            self._purge_at_s = time.monotonic() + PURGE_EVERY_S

    def _note_away(self, error: SinkUnavailable) -> None:
        self.states[error.sink] = f"down: {error.reason}"

    def _note_all_well(self) -> None:
        self.states.update(dict.fromkeys(self.states, "ok"))
