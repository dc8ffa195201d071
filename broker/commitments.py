"""Who waits for an offset of one partition: until it is reached, lost, or the time is up.

Ground floor. Pure. One object is one line: the waiters of one partition and one threshold (what the
leader alone has counted, what is committed, what all replicas have deleted). A line has no timer
for each waiter: it knows the earliest deadline since it was empty, and whoever owns it calls
`expire` then. It needs no limit of its own: a waiter belongs to a request, and requests are limited
where they come in.

Invariants: every waiter ends exactly once, by `reached` or by `lost`. Waiters are reached in the
order of their offsets, and those of one offset in the order in which they came. A waiter may call
the line from inside its own end: it may await, lose, advance and expire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from protocol.errors import ErrorCode

NO_MARK = -1
"""Nothing is known to be reached, not even offset 0."""


class Waiter(Protocol):
    """What waits. One of the two is called, once."""

    def reached(self) -> None:
        """Everything below the offset counts."""

    def lost(self, code: ErrorCode) -> None:
        """It will not be known here: the role has gone, or the time is up."""


class Commitments:
    """One line of waiters, in the order of their offsets."""

    __slots__ = ("_line", "mark", "next_deadline_ms")

    def __init__(self, mark: int = NO_MARK) -> None:
        self._line: deque[tuple[int, int | None, Waiter]] = deque()
        """Offset, deadline, waiter; offsets never fall."""
        self.mark = mark
        """Everything below it counts."""
        self.next_deadline_ms: int | None = None
        """When to call `expire`: no waiter's deadline is earlier. Whoever had it may have ended."""

    def __len__(self) -> int:
        return len(self._line)

    def await_(self, offset: int, waiter: Waiter, deadline_ms: int | None) -> None:
        """Wait until everything below `offset` counts; what does already is reached at once.

        Without a deadline only `lose` ends the wait early: that is for a replay, which must happen
        whatever its client was told meanwhile.
        """
        line = self._line
        # Whoever stands below the mark is about to be reached further up in the same call.
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
        # A duplicate asks for an offset that others have passed. It is near the end of the line:
        # producers are remembered by their last few batches.
        behind = []
        while line and line[-1][0] > offset:
            behind.append(line.pop())
        line.append((offset, deadline_ms, waiter))
        line.extend(reversed(behind))

    def advanced(self, mark: int) -> None:
        """Everything below `mark` counts. A lower mark than the last one is no news."""
        if mark > self.mark:
            self.mark = mark
        # Looked at anew each time: a waiter may have changed both from inside `reached`.
        while self._line and self._line[0][0] <= self.mark:
            self._line.popleft()[2].reached()

    def lose(self, code: ErrorCode) -> None:
        """End every wait: the partition is not led here any more, or another log begins.

        The mark is forgotten too, for it says nothing of the next leadership. Who begins to wait
        from inside `lost` stands in the next line, which knows no mark until `advanced` names one.
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
        due: list[Waiter] = []
        kept: deque[tuple[int, int | None, Waiter]] = deque()
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
    """The deadlines of all lines of a broker, for one alarm."""

    __slots__ = ("_lines", "_wake_by", "next_deadline_ms")

    def __init__(self, wake_by: Callable[[int], None]) -> None:
        """`wake_by` sees to it that `expire` is called by a time."""
        self._lines: dict[Commitments, None] = {}
        """Where somebody may wait with a deadline."""
        self._wake_by = wake_by
        self.next_deadline_ms: int | None = None
        """When to call `expire`: no line's deadline is earlier."""

    def await_(self, line: Commitments, offset: int, waiter: Waiter, deadline_ms: int) -> None:
        """Wait in a line as `Commitments.await_` has it, at most until the deadline."""
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
        # Whoever is told may wait anew, in any line.
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
