"""Threads for blocking work: each worker has one thread, which does its jobs in order.

A future per job would cost more than a small fdatasync. So a job is a tuple in a queue, and its
result is reported with one call of `call_soon_threadsafe`. Jobs share only their arguments with the
loop. Disk errors are reported to `failed`, or to `on_final` if they are final. Any other exception
is a bug and ends the process (`process`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from broker.storage.errors import CorruptionError, DiskError, FolderError

T = TypeVar("T")

_Job = tuple[Callable[[], object], Callable[[object], None], Callable[[Exception], None]]


class Worker:
    """A thread with a queue. The thread starts with its first job. A running thread does not keep
    the process alive."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_final: Callable[[Exception], None] | None = None,
    ) -> None:
        self._loop = loop
        self._name = name
        self._on_final = on_final
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._has_failed = False
        """True after a final disk error."""

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Do `job` in the thread. Then `done(result)` or `failed(error)` is called in the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((job, done, failed))  # type: ignore[arg-type]  # done takes what job gives

    def stop(self, timeout_s: float | None = None) -> bool:
        """Finish the queued jobs and end the thread. Their callbacks are possibly not called.

        Return True if the thread ended within this time and no final disk error happened.
        """
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
            self._thread = None
        return not self._has_failed

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done, failed = entry
            try:
                result = job()
            except (CorruptionError, DiskError, FolderError, OSError) as error:
                is_final = isinstance(error, DiskError) and error.is_final
                self._has_failed |= is_final
                self._report((is_final and self._on_final) or failed, error)
            else:
                self._report(done, result)

    def _report(self, callback: Callable[[T], None], value: T) -> None:
        # The loop can have been closed in the meantime.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, value)
