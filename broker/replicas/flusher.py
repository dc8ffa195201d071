"""Group commit: threads fsync the logs that have data without an fsync.

If a log is marked during its own fsync, it is fsynced again directly afterwards, with all data
appended in the meantime. So a slower disk gets larger groups. A failed fsync is final, because the
kernel can drop the pages and report success for a second try. Only a missing file descriptor is a
reason to retry.

A separate worker fsyncs the logs of partitions that catch up (`keep_apart`). Otherwise
acknowledgements of other logs would wait for the bytes of a large copy (decision 0131).

Code that renames a log's folder or truncates its files must first call `drain`, and wait until no
thread works in the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from broker.storage.errors import DiskError
from broker.storage.flush import FlushTarget
from broker.storage.log import Log
from broker.world import Jobs, World

FLUSH_THREADS = 4

RETRY_MS = 1_000
"""The wait in milliseconds before the fsync of a log is retried that had no file descriptor."""

STOP_S_MAX = 5.0
"""The longest time in seconds that a stop waits for an fsync that hangs."""


class FlushListener(Protocol):
    """The interface to the object that is notified of fsyncs, in the event loop (`replicas`)."""

    def flushed(self, log: Log) -> None:
        """Handle a changed recovery point of the log."""


class Flusher:
    """Fsyncs marked logs. Calls `on_failed(error)` when the process must stop."""

    def __init__(
        self,
        world: World,
        on_failed: Callable[[Exception], None],
        on_timed: Callable[[int], None] = lambda took_ns: None,
        on_refused: Callable[[Log, DiskError], None] = lambda log, error: None,
    ) -> None:
        """`on_timed` gets the duration of each group commit in nanoseconds. `on_refused` gets each
        log that must wait for a file descriptor."""
        self._soon = world.soon
        self._later = world.later
        self._turn_ns = world.turn_ns
        self._listener: FlushListener | None = None
        self._on_failed = on_failed
        self._on_timed = on_timed
        self._on_refused = on_refused
        self._refused: dict[Log, None] = {}
        """The logs that wait for a file descriptor. They are marked again later."""
        self._marked: dict[Log, None] = {}
        self._in_flight: set[Log] = set()
        self._drains: list[tuple[Collection[Log], Callable[[], None]]] = []
        """The logs that must not be fsynced now, and the callback for the moment when no fsync of
        them runs."""
        self._apart: set[Log] = set()
        """The logs that only `_apart_worker` fsyncs."""
        self._apart_worker = world.jobs("flush-catch-up")
        self._is_apart_idle = True
        self._idle = [world.jobs(f"flush-{number}") for number in range(FLUSH_THREADS)]
        self._workers = [*self._idle, self._apart_worker]
        self._is_scheduled = False
        self._is_stopped = False

    def report_to(self, listener: FlushListener) -> None:
        """Notify this object of fsyncs."""
        self._listener = listener

    @property
    def is_idle(self) -> bool:
        """True if all marked logs are fsynced."""
        return not (self._marked or self._in_flight or self._refused)

    def mark(self, log: Log) -> None:
        """Schedule an fsync of all data appended to the log."""
        self._marked[log] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            # Start in the next iteration of the event loop, so that appends of other connections
            # join the same fsync.
            self._soon(self._start)

    def keep_apart(self, log: Log, is_apart: bool) -> None:
        """Choose the worker for this log: the separate worker, or the other workers, which fsync it
        together with other logs."""
        if is_apart:
            self._apart.add(log)
        else:
            self._apart.discard(log)

    def drain(self, logs: Collection[Log], done: Callable[[], None]) -> None:
        """Call `done` when no fsync of these logs is running. No fsync of them starts before.

        Drain before you rename a log's folder or truncate the log. An fsync writes indexes and
        producer snapshots by their path. A snapshot that is written after a truncation would
        describe truncated batches.
        """
        if any(log in self._in_flight for log in logs):
            self._drains.append((logs, done))
        else:
            done()

    def _drained(self) -> None:
        """Call the callbacks of the drains whose logs are free now."""
        drains, self._drains = self._drains, []
        for logs, done in drains:
            self.drain(logs, done)

    def _start(self) -> None:
        self._is_scheduled = False
        ready = [log for log in self._marked if self._may_begin(log)]
        if self._apart:
            apart = [log for log in ready if log in self._apart]
            ready = [log for log in ready if log not in self._apart]
            self._sync_apart(apart)
        self._share(ready)

    def _may_begin(self, log: Log) -> bool:
        return log not in self._in_flight and not any(log in logs for logs, _ in self._drains)

    def _share(self, ready: list[Log]) -> None:
        """Divide the logs among the idle workers."""
        while ready and self._idle:
            share = -(-len(ready) // len(self._idle))
            batch, ready = ready[:share], ready[share:]
            targets = self._targets(batch)
            if targets:
                worker = self._idle.pop()
                self._sync(targets, worker, partial(self._idle.append, worker))

    def _sync_apart(self, ready: list[Log]) -> None:
        """Fsync the logs of the separate worker, if it is idle."""
        targets = self._targets(ready) if self._is_apart_idle else []
        if targets:
            self._is_apart_idle = False
            self._sync(targets, self._apart_worker, self._free_apart)

    def _free_apart(self) -> None:
        self._is_apart_idle = True

    def _targets(self, logs: list[Log]) -> list[tuple[Log, FlushTarget]]:
        """Remove the marks of these logs. Return the data of each that must be fsynced."""
        targets = []
        for log in logs:
            del self._marked[log]
            try:
                target = log.flush_target()
            except DiskError as error:
                self._refuse(log, error)
                continue
            if target is not None:
                targets.append((log, target))
        return targets

    def _sync(
        self, targets: list[tuple[Log, FlushTarget]], worker: Jobs, free: Callable[[], None]
    ) -> None:
        """Fsync in a worker. `free` makes the worker idle again."""
        self._in_flight.update(log for log, _ in targets)

        def job() -> int:
            start_ns = self._turn_ns()
            for _log, target in targets:
                target.perform()
            return self._turn_ns() - start_ns

        def done(took_ns: int) -> None:
            self._on_timed(took_ns)
            free()
            for log, target in targets:
                self._in_flight.discard(log)
                log.flushed(target)
            if self._listener is not None:
                for log, _target in targets:
                    self._listener.flushed(log)
            self._go_on()

        def failed(error: Exception) -> None:
            if not isinstance(error, DiskError) or not error.is_short:
                self._on_failed(error)
                return
            free()
            for log, target in targets:
                self._in_flight.discard(log)
                log.flush_refused(target)
                self._refuse(log, error)
            self._go_on()

        worker.run(job, done, failed)

    def _go_on(self) -> None:
        """Call waiting drains, and fsync the logs that were marked in the meantime. A worker is
        free now."""
        if self._drains:
            self._drained()
        if self._marked:
            self._start()

    def _refuse(self, log: Log, error: DiskError) -> None:
        """Let a log wait, because no file descriptor is free. No fsync of this log has failed."""
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
        """Stop the threads. Return True if all their fsyncs have ended.

        After False, do not fsync these files. The kernel reports a failure only once, so a second
        fsync could succeed although data is lost.
        """
        self._is_stopped = True
        ended = [worker.stop(STOP_S_MAX) for worker in self._workers]
        return all(ended)
