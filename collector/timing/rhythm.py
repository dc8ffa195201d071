"""Decides when a transaction is opened, and when it must be committed.

This module is pure. Fresh lines are committed as soon as the shortest time between two commits has
passed, so a single line is sent at once. Lines of files that are far behind are committed after a
number of bytes or a longer time. Positions that changed without lines (for example after a rename)
can wait too.

At the default interval, full batches are sent before the commit is due. At a longer interval the
collector *gathers*: a transaction is opened only when its commit is due, and no transaction is open
in between. `read_committed` readers of a partition stop at its oldest open transaction, so many
collectors that keep transactions open while they wait would hold these readers back all the time.
"""

from collector.config.settings import BACKFILL_COMMIT_MS, COMMIT_MS, POSITIONS_INTERVAL_MS
from collector.timing.schedule import ReadQueue

_NEVER_MS = -(10**15)


class Rhythm:
    """Decides about the transactions of a collector, which hold at most `commit_bytes` of lines.

    `interval_ms` is the shortest time between two commits, unless the lines fill a transaction.
    """

    def __init__(self, commit_bytes: int, interval_ms: int = COMMIT_MS):
        self._commit_bytes = commit_bytes
        self._interval_ms = interval_ms
        self.gathers = interval_ms > COMMIT_MS
        """True if nothing is sent before the commit is due."""
        self._cut_ms = _NEVER_MS
        self._live_ms: int | None = None
        self._backfill_ms: int | None = None
        self._changed_ms: int | None = None
        self._bytes = 0

    def handed_out(self, read_queue: ReadQueue, size_bytes: int, now_ms: int) -> None:
        """Count lines that were put into batches."""
        self._bytes += size_bytes
        if read_queue is ReadQueue.LIVE:
            self._live_ms = now_ms if self._live_ms is None else self._live_ms
        else:
            self._backfill_ms = now_ms if self._backfill_ms is None else self._backfill_ms

    def changed(self, now_ms: int) -> None:
        """Remember that a position record changed although no lines were read."""
        self._changed_ms = now_ms if self._changed_ms is None else self._changed_ms

    def cut(self, now_ms: int) -> None:
        """Begin the next transaction, because the current one is about to be committed."""
        self._cut_ms = now_ms
        self._live_ms = self._backfill_ms = self._changed_ms = None
        self._bytes = 0

    @property
    def deadline_ms(self) -> int | None:
        """The time when a commit is due; None while there is nothing to commit."""
        if self._bytes >= self._commit_bytes:
            return self._cut_ms
        times = []
        if self._live_ms is not None:
            times.append(self._live_ms)
        if self._backfill_ms is not None:
            times.append(self._backfill_ms + BACKFILL_COMMIT_MS)
        if self._changed_ms is not None:
            times.append(self._changed_ms + POSITIONS_INTERVAL_MS)
        return max(min(times), self._cut_ms + self._interval_ms) if times else None

    def is_due(self, now_ms: int) -> bool:
        """Tell whether to commit now."""
        deadline_ms = self.deadline_ms
        return deadline_ms is not None and now_ms >= deadline_ms
