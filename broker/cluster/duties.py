"""The queue of jobs for the metadata log's disk. The jobs are numbered and run in order, one at a
time.

This module is pure. A duty is one job for the disk. A message that depends on durable data waits
until all duties are done that were queued before it. Only one duty runs at a time, so no write
overtakes a vote or a truncation. A write that the disk rejects is undone before the quorum handles
any other event (`quorum_driver._undo_write`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

Duty = Callable[[Callable[[], None]], None]
"""A function that starts one job. The job calls the function's argument when it is done."""


class Duties:
    """The queue of duties.

    `on_done` is called after each duty, when the duty's own callback has returned.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.given_count = 0
        self.done_count = 0
        self._on_done = on_done
        self._queue: deque[Duty] = deque()
        self._is_under_way = False
        self._is_beginning = False

    @property
    def is_idle(self) -> bool:
        """True if all duties are done."""
        return self.done_count == self.given_count

    @property
    def waiting_count(self) -> int:
        """The number of duties that have not started."""
        return len(self._queue)

    def give(self, duty: Duty) -> int:
        """Add a duty to the end of the queue. Return the duty's number."""
        self.given_count += 1
        number = self.given_count
        self._queue.append(duty)
        self._begin()
        return number

    def _begin(self) -> None:
        # This is a loop and no recursion, because a duty can finish before the call that starts it
        # returns.
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            while self._queue and not self._is_under_way:
                self._is_under_way = True
                self._queue.popleft()(self._done)
        finally:
            self._is_beginning = False

    def _done(self) -> None:
        self._is_under_way = False
        self.done_count += 1
        self._on_done()
        self._begin()


class InlineJobs:
    """Runs each job at once in the calling thread, while a node starts and does not yet serve
    requests.

    A disk error is raised to the caller of `run`.
    """

    def run(
        self,
        job: Callable[[], R],
        done: Callable[[R], None],
        failed: Callable[[Exception], None],
    ) -> None:
        done(job())

    def stop(self, timeout_s: float | None = None) -> bool:
        return True
