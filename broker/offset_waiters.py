"""Requests that wait for an offset of one partition, until it is reached, lost, or time is up.

Ground floor. Pure. One object is one queue: the waiters of one partition for one kind of offset
(durable at the leader, committed, or deleted by all replicas). A queue has no timer per waiter. It
knows the earliest deadline since it was empty, and its owner calls `expire` then. It needs no size
limit, because each waiter belongs to a request, and requests are limited when they arrive.

Invariants: every waiter ends exactly once, by `reached` or by `lost`. Waiters are reached in the
order of their offsets, and for equal offsets in the order in which they came. A waiter may call the
queue from inside its own end: it may await, lose, advance and expire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from protocol.errors import ErrorCode

NO_MARK = -1
"""No offset is known to be reached, not even offset 0."""


class OffsetWaiter(Protocol):
    """A waiting object. Exactly one of its two methods is called, once."""

    def reached(self) -> None:
        """Called when everything below the offset is reached."""

    def lost(self, code: ErrorCode) -> None:
        """Called when the wait ends in vain: the role has ended, or the time is up."""


class OffsetWaiters:
    """One queue of waiters, in the order of their offsets."""

    __slots__ = ("_line", "mark", "next_deadline_ms")

    def __init__(self, mark: int = NO_MARK) -> None:
        self._line: deque[tuple[int, int | None, OffsetWaiter]] = deque()
        """Offset, deadline, waiter. Offsets never fall."""
        self.mark = mark
        """Everything below this offset is reached."""
        self.next_deadline_ms: int | None = None
        """When to call `expire`: at or before every waiter's deadline, as the earliest may have
        ended.
        """

    def __len__(self) -> int:
        return len(self._line)

    def await_(self, offset: int, waiter: OffsetWaiter, deadline_ms: int | None) -> None:
        """Wait until everything below `offset` is reached. If it already is, call `reached` at
        once.

        Without a deadline only `lose` ends the wait early. A replay uses this, because it must
        happen even if its client has already been answered.
        """
        line = self._line
        # Waiters below the mark are still in the queue while an outer call is ending them.
        if offset <= self.mark and (not line or line[0][0] > offset):
            waiter.reached()
            return
        if not line:
            self.next_deadline_ms = deadline_ms
        elif deadline_ms is not None:
            earliest = self.next_deadline_ms
            if earliest is None or deadline_ms < earliest:
                self.next_deadline_ms = deadline_ms
        if not line or line[-1][0] <= offset:
            line.append((offset, deadline_ms, waiter))
            return
        # A duplicate waits for a lower offset than the last waiters. Its place is near the end,
        # because only the last few batches of a producer are remembered.
        behind = []
        while line and line[-1][0] > offset:
            behind.append(line.pop())
        line.append((offset, deadline_ms, waiter))
        line.extend(reversed(behind))

    def advanced(self, mark: int) -> None:
        """Mark everything below `mark` as reached. A lower mark than the last one has no effect."""
        if mark > self.mark:
            self.mark = mark
        # Read both again each time, because a waiter can change them from inside `reached`.
        while self._line and self._line[0][0] <= self.mark:
            self._line.popleft()[2].reached()

    def lose(self, code: ErrorCode) -> None:
        """End every wait, because the partition is no longer led here or another log begins.

        The mark is forgotten too, because it says nothing about the next leadership. If `lost`
        begins another wait, it joins a new queue without a mark until `advanced` sets one.
        """
        line, self._line = self._line, deque()
        self.mark = NO_MARK
        self.next_deadline_ms = None
        for _, _, waiter in line:
            waiter.lost(code)

    def expire(self, now_ms: int) -> None:
        """End the waits whose deadline has come, with REQUEST_TIMED_OUT."""
        if self.next_deadline_ms is None or now_ms < self.next_deadline_ms:
            return
        due: list[OffsetWaiter] = []
        kept: deque[tuple[int, int | None, OffsetWaiter]] = deque()
        earliest: int | None = None
        for entry in self._line:
            deadline_ms = entry[1]
            if deadline_ms is not None and deadline_ms <= now_ms:
                due.append(entry[2])
                continue
            kept.append(entry)
            if deadline_ms is not None and (earliest is None or deadline_ms < earliest):
                earliest = deadline_ms
        self._line = kept
        self.next_deadline_ms = earliest
        for waiter in due:
            waiter.lost(ErrorCode.REQUEST_TIMED_OUT)


class Waits:
    """The deadlines of all queues of a broker, for one alarm."""

    __slots__ = ("_lines", "_wake_by", "next_deadline_ms")

    def __init__(self, wake_by: Callable[[int], None]) -> None:
        """`wake_by` makes sure that `expire` is called by a given time."""
        self._lines: dict[OffsetWaiters, None] = {}
        """Queues that may have waiters with a deadline."""
        self._wake_by = wake_by
        self.next_deadline_ms: int | None = None
        """When to call `expire`: no queue's deadline is earlier."""

    def await_(
        self, line: OffsetWaiters, offset: int, waiter: OffsetWaiter, deadline_ms: int
    ) -> None:
        """Wait in a queue, as in `OffsetWaiters.await_`, at most until the deadline."""
        line.await_(offset, waiter, deadline_ms)
        if not line:
            return
        self._lines[line] = None
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms
            self._wake_by(deadline_ms)

    def expire(self, now_ms: int) -> None:
        """End the waits whose deadline has come."""
        if self.next_deadline_ms is None or now_ms < self.next_deadline_ms:
            return
        # A waiter that ends can begin another wait in any queue.
        lines, self._lines = self._lines, {}
        self.next_deadline_ms = None
        for line in lines:
            line.expire(now_ms)
            deadline_ms = line.next_deadline_ms
            if not line or deadline_ms is None:
                continue
            self._lines[line] = None
            if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
                self.next_deadline_ms = deadline_ms
