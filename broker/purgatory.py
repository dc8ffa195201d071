"""The purgatory: operations wait for offsets, until one is reached or lost, or time is up.

This module is pure, without a coroutine, task or future per operation. A key is one kind of offset
of one partition: durable on the leader, committed, readable, or deleted by all replicas. The key
has the queue of the operations that wait for it. `Purgatory` has their deadlines and needs one
alarm. No size limit is necessary, because each operation belongs to a request, and requests are
limited when they arrive.

Most operations, such as a Produce, wait for one key and end long before their deadline. So they
have no timer. The key only knows the earliest deadline of the operations since its queue was empty.
A Fetch waits for the first of many keys and often ends at its deadline, so it has a timer.

Invariants: every operation ends exactly once, by `reached` or by `lost`. The operations of a key
are reached in the order of their offsets, and for equal offsets in the order in which they came.
While an operation is being ended, it may call the methods of its key again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from broker.timers import Timer, Timers
from protocol.errors import ErrorCode

NO_MARK = -1
"""The mark of a key whose offset is unknown. It is below offset 0, so no operation is reached."""

WITHDRAWN_KEPT = 8
"""The number of ended operations in a queue up to which the queue is not rebuilt."""


class WaitingOperation(Protocol):
    """A waiting operation. Exactly one of its two methods is called, once."""

    def reached(self) -> None:
        """Continue, because everything below the offset is reached."""

    def lost(self, code: ErrorCode) -> None:
        """Fail, because the role has ended or the time is up."""


class OffsetKey:
    """One kind of offset of one partition, with the operations that wait for it."""

    __slots__ = ("_line", "_withdrawn_count", "mark", "next_deadline_ms")

    def __init__(self, mark: int = NO_MARK) -> None:
        self._line: deque[tuple[int, int | None, WaitingOperation]] = deque()
        """The offset, the deadline and the operation of each wait, in the order of offsets."""
        self._withdrawn_count = 0
        """An upper bound of the number of operations that are in the queue although they have
        ended."""
        self.mark = mark
        """The offset below which everything is reached."""
        self.next_deadline_ms: int | None = None
        """The time to call `expire`. It can be before the earliest deadline, because that operation
        can have ended."""

    def __len__(self) -> int:
        return len(self._line)

    def await_(self, offset: int, waiter: WaitingOperation, deadline_ms: int | None) -> None:
        """Wait until everything below `offset` is reached. If it is reached already, call `reached`
        at once.

        Without a deadline only `lost` ends the wait early. A replay uses this, because it must
        happen even if its client has already been answered.
        """
        line = self._line
        # While an outer call is ending operations below the mark, some of them are still in the
        # queue. This operation must end after them.
        if offset <= self.mark and (not line or line[0][0] > offset):
            waiter.reached()
            return
        self.park(offset, waiter, deadline_ms)

    def park(self, offset: int, waiter: WaitingOperation, deadline_ms: int | None) -> None:
        """Wait until `reached` is called with this offset or a higher one."""
        line = self._line
        if not line:
            self.next_deadline_ms = deadline_ms
        elif deadline_ms is not None:
            earliest = self.next_deadline_ms
            if earliest is None or deadline_ms < earliest:
                self.next_deadline_ms = deadline_ms
        if not line or line[-1][0] <= offset:
            line.append((offset, deadline_ms, waiter))
            return
        # A duplicate batch waits for a lower offset than the last waiters. Its position is near the
        # end of the queue, because only the last few batches of a producer are remembered.
        behind = []
        while line and line[-1][0] > offset:
            behind.append(line.pop())
        line.append((offset, deadline_ms, waiter))
        line.extend(reversed(behind))

    def reached(self, mark: int) -> None:
        """Record that everything below `mark` is reached, and end the waits for it. A mark that is
        lower than the last one has no effect."""
        if mark > self.mark:
            self.mark = mark
        # Read the queue and the mark again each time, because a waiter can change them inside
        # `reached`.
        while self._line and self._line[0][0] <= self.mark:
            self._line.popleft()[2].reached()

    def lost(self, code: ErrorCode) -> None:
        """End every wait with an error, because the partition is no longer led by this broker or
        another log begins.

        The mark is forgotten too, because it says nothing about the next leadership. If a waiter
        begins another wait inside `lost`, that wait joins a new queue without a mark until
        `reached` sets one.
        """
        line, self._line = self._line, deque()
        self.mark = NO_MARK
        self.next_deadline_ms = None
        for _, _, waiter in line:
            waiter.lost(code)

    def withdrawn(self) -> None:
        """Record that another key has ended the wait of an operation that is still in this
        queue."""
        self._withdrawn_count += 1
        if self._withdrawn_count > max(WITHDRAWN_KEPT, len(self._line) // 2):
            kept = (one for one in self._line if not _is_over(one[2]))
            self._line = deque(kept)
            self._withdrawn_count = 0

    def expire(self, now_ms: int) -> None:
        """End the waits whose deadline has come, with REQUEST_TIMED_OUT."""
        if self.next_deadline_ms is None or now_ms < self.next_deadline_ms:
            return
        due: list[WaitingOperation] = []
        kept: deque[tuple[int, int | None, WaitingOperation]] = deque()
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


class FirstReached:
    """The wait of one operation for the first of several keys."""

    __slots__ = ("_purgatory", "keys", "timer", "waiter")

    timer: Timer[FirstReached]

    def __init__(
        self, purgatory: Purgatory, waiter: WaitingOperation, keys: Collection[OffsetKey]
    ) -> None:
        self._purgatory = purgatory
        self.waiter: WaitingOperation | None = waiter
        """The operation; None after the wait has ended. Other keys can still have this wait in
        their queues."""
        self.keys = keys

    def reached(self) -> None:
        waiter = self.waiter
        if waiter is not None:
            self._purgatory.withdraw(self)
            waiter.reached()

    def lost(self, code: ErrorCode) -> None:
        waiter = self.waiter
        if waiter is not None:
            self._purgatory.withdraw(self)
            waiter.lost(code)


def _is_over(waiter: WaitingOperation) -> bool:
    return isinstance(waiter, FirstReached) and waiter.waiter is None


class Purgatory:
    """The deadlines of all waits of a broker, for one alarm."""

    __slots__ = ("_keys", "_keys_deadline_ms", "_timers", "_wake_by")

    def __init__(self, wake_by: Callable[[int], None]) -> None:
        """`wake_by` makes sure that `expire` is called at a given time or before."""
        self._keys: dict[OffsetKey, None] = {}
        """The keys that possibly have operations with a deadline."""
        self._keys_deadline_ms: int | None = None
        """A lower bound of the deadlines of these keys."""
        self._timers: Timers[FirstReached] = Timers()
        self._wake_by = wake_by

    @property
    def next_deadline_ms(self) -> int | None:
        """The time to call `expire`. No operation has an earlier deadline."""
        deadlines = (self._keys_deadline_ms, self._timers.next_deadline_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def await_(
        self, key: OffsetKey, offset: int, waiter: WaitingOperation, deadline_ms: int
    ) -> None:
        """Wait for a key, as in `OffsetKey.await_`, at most until the deadline."""
        key.await_(offset, waiter, deadline_ms)
        if not key:
            return
        self._keys[key] = None
        if self._keys_deadline_ms is None or deadline_ms < self._keys_deadline_ms:
            self._keys_deadline_ms = deadline_ms
            self._wake_by(deadline_ms)

    def await_first(
        self, offsets: Mapping[OffsetKey, int], waiter: WaitingOperation, deadline_ms: int
    ) -> FirstReached:
        """Wait until the first of several keys reaches its offset, or until the deadline.

        Without keys the operation waits for its deadline. The caller has checked that it must wait,
        because this method does not consider offsets that are reached already.
        """
        first = FirstReached(self, waiter, offsets.keys())
        for key, offset in offsets.items():
            key.park(offset, first, None)
        first.timer = self._timers.add(deadline_ms, first)
        self._wake_by(deadline_ms)
        return first

    def withdraw(self, first: FirstReached) -> None:
        """End a wait without calling its operation. This has no effect if the wait has already
        ended."""
        if first.waiter is not None:
            first.waiter = None
            self._timers.cancel(first.timer)
            for key in first.keys:
                key.withdrawn()

    def expire(self, now_ms: int) -> None:
        """End the waits whose deadline has come. The waits for one key come first, then the others
        by deadline."""
        self._expire_keys(now_ms)
        for first in self._timers.due(now_ms):
            first.lost(ErrorCode.REQUEST_TIMED_OUT)

    def _expire_keys(self, now_ms: int) -> None:
        if self._keys_deadline_ms is None or now_ms < self._keys_deadline_ms:
            return
        # An operation that ends can begin another wait for any key.
        keys, self._keys = self._keys, {}
        self._keys_deadline_ms = None
        for key in keys:
            key.expire(now_ms)
            deadline_ms = key.next_deadline_ms
            if not key or deadline_ms is None:
                continue
            self._keys[key] = None
            if self._keys_deadline_ms is None or deadline_ms < self._keys_deadline_ms:
                self._keys_deadline_ms = deadline_ms
