"""Group commit: logs with unflushed bytes are synced in threads, and then told so.

Floor: replicas. A log that is marked while its sync is under way is synced once more right after
it, together with everything written meanwhile; so the slower the disk, the larger the groups. A
failed sync is final: the kernel may have dropped the pages and would call a second try a success.
Where only a descriptor was missing to sync something by, it is tried again.
What renames a log's folder or cuts its files waits by `drain` until no thread works there any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker.storage.errors import DiskError
from broker.storage.flush import FlushTarget
from broker.storage.log import Log
from broker.world import World

FLUSH_THREADS = 4

RETRY_MS = 1_000
"""How long logs wait that could not be synced for want of a descriptor."""

STOP_S_MAX = 5.0
"""How long a stop waits for a sync that hangs."""


class Flusher:
    """Syncs marked logs. `on_flushed(log)` comes in the loop after `log.recovery_point` has moved;
    `on_failed(error)` means the process must stop."""

    def __init__(
        self,
        world: World,
        on_flushed: Callable[[Log], None],
        on_failed: Callable[[Exception], None],
        on_timed: Callable[[int], None] = lambda took_ns: None,
        on_refused: Callable[[Log, DiskError], None] = lambda log, error: None,
    ) -> None:
        """`on_timed` hears how many nanoseconds each group commit took, `on_refused` of a log that
        has to wait for a descriptor."""
        self._soon = world.soon
        self._later = world.later
        self._turn_ns = world.turn_ns
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_timed = on_timed
        self._on_refused = on_refused
        self._refused: dict[Log, None] = {}
        """Logs that wait for a descriptor, and are marked again in a while."""
        self._marked: dict[Log, None] = {}
        self._in_flight: set[Log] = set()
        self._drains: list[tuple[Collection[Log], Callable[[], None]]] = []
        """Logs that are not synced for now, and what is to be called when none is under way."""
        self._idle = [world.jobs(f"flush-{number}") for number in range(FLUSH_THREADS)]
        self._workers = list(self._idle)
        self._is_scheduled = False
        self._is_stopped = False

    @property
    def is_idle(self) -> bool:
        """Whether everything marked has been synced."""
        return not (self._marked or self._in_flight or self._refused)

    def mark(self, log: Log) -> None:
        """See to it that what is written in `log` gets to the disk soon."""
        self._marked[log] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            # Other connections' reads of this turn join the same sync.
            self._soon(self._start)

    def drain(self, logs: Collection[Log], done: Callable[[], None]) -> None:
        """Call `done` when no sync of these logs is under way; until then none begins.

        Drain before you rename a log's folder or truncate the log. A sync writes indexes and
        producer snapshots by their path, and a snapshot that is written after a truncation would
        describe batches that are gone.
        """
        if any(log in self._in_flight for log in logs):
            self._drains.append((logs, done))
        else:
            done()

    def _drained(self) -> None:
        """Tell those whose logs are under way no more."""
        drains, self._drains = self._drains, []
        for logs, done in drains:
            self.drain(logs, done)

    def _start(self) -> None:
        self._is_scheduled = False
        self._share([log for log in self._marked if self._may_begin(log)])

    def _may_begin(self, log: Log) -> bool:
        return log not in self._in_flight and not any(log in logs for logs, _ in self._drains)

    def _share(self, ready: list[Log]) -> None:
        """Have these synced by the workers that are idle, each a share."""
        while ready and self._idle:
            share = -(-len(ready) // len(self._idle))
            batch, ready = ready[:share], ready[share:]
            targets = []
            for log in batch:
                del self._marked[log]
                try:
                    target = log.flush_target()
                except DiskError as error:
                    self._refuse(log, error)
                    continue
                if target is not None:
                    targets.append((log, target))
            if targets:
                self._in_flight.update(log for log, _ in targets)
                self._sync(targets)

    def _sync(self, targets: list[tuple[Log, FlushTarget]]) -> None:
        worker = self._idle.pop()

        def job() -> int:
            start_ns = self._turn_ns()
            for _log, target in targets:
                target.perform()
            return self._turn_ns() - start_ns

        def done(took_ns: int) -> None:
            self._on_timed(took_ns)
            self._idle.append(worker)
            for log, target in targets:
                self._in_flight.discard(log)
                log.flushed(target)
            for log, _target in targets:
                self._on_flushed(log)
            self._go_on()

        def failed(error: Exception) -> None:
            if not isinstance(error, DiskError) or not error.is_short:
                self._on_failed(error)
                return
            self._idle.append(worker)
            for log, target in targets:
                self._in_flight.discard(log)
                log.flush_refused(target)
                self._refuse(log, error)
            self._go_on()

        worker.run(job, done, failed)

    def _go_on(self) -> None:
        """A worker is free: tell who waited for its logs, and sync what was marked meanwhile."""
        if self._drains:
            self._drained()
        if self._marked:
            self._start()

    def _refuse(self, log: Log, error: DiskError) -> None:
        """Have a log wait that could not be synced; no sync of it has failed."""
        if not error.is_short:
            self._on_failed(error)
            return
        self._on_refused(log, error)
        if not self._refused:
            self._later(RETRY_MS, self._retry)
        self._refused[log] = None

    def _retry(self) -> None:
        refused, self._refused = self._refused, {}
        for log in refused if not self._is_stopped else ():
            self.mark(log)

    def stop(self) -> bool:
        """End the threads; whether everything they had begun has been synced.

        What failed, or hangs, must not be synced again: the kernel tells of a failure once.
        """
        self._is_stopped = True
        ended = [worker.stop(STOP_S_MAX) for worker in self._workers]
        return all(ended)
