"""Makes callers wait for space in a producer's buffer, or until the buffer is flushed.

While a caller waits, the core sends batches without lingering (`pressed`).
"""

import asyncio
from collections import deque
from collections.abc import Callable

from protocol.client.errors import ClientError, RequestTimedOut
from protocol.client.producer_core import ProducerCore


class ProducerRoom:
    """The callers that wait for space in one producer's buffer, and those that wait for a flush.

    `wake` makes the sender check what to send. `check_open` raises once the producer has ended.
    """

    def __init__(
        self, core: ProducerCore, wake: Callable[[], None], check_open: Callable[[], None]
    ) -> None:
        self._core = core
        self._wake = wake
        self._check_open = check_open
        self._turns: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more bytes may be queued. Callers continue in the order of their
        calls.

        The caller then queues its record without an await, or raises. In both cases it then calls
        `let_in`.
        """
        self._check_open()
        self._core.check_size(size_bytes)
        if not self._turns and self._core.has_room(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (size_bytes, turn)
        self._turns.append(waiting)
        self._press()
        try:
            await turn
        except BaseException:
            self._turns.remove(waiting)
            self.let_in()
            raise
        self._turns.remove(waiting)
        self._check_open()

    def let_in(self) -> None:
        """Wake the first waiting caller if there is room for its record.

        That caller wakes the next one.
        """
        if self._turns:
            size_bytes, turn = self._turns[0]
            if not turn.done() and self._core.has_room(size_bytes):
                turn.set_result(None)
        self._core.pressed = bool(self._turns or self._flushes)

    async def flush(self) -> None:
        """Wait until all records queued by now have a result."""
        self._check_open()
        if self._core.is_empty:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((self._core.last_number, done))
        self._press()
        await done

    async def flush_within(self, timeout_ms: int | None, clock_ms: Callable[[], int]) -> int | None:
        """Flush, and return the remaining time. Raises RequestTimedOut."""
        if timeout_ms is None:
            await self.flush()
            return None
        deadline = clock_ms() + timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            text = f"records of the transaction have no outcome after {timeout_ms} ms"
            raise RequestTimedOut(text) from None
        return max(1, deadline - clock_ms())

    def settle(self) -> None:
        """Wake the callers whose condition is met. Call this after every outcome."""
        if self._flushes:
            oldest = self._core.oldest_number()
            for number, done in self._flushes:
                if (oldest is None or oldest > number) and not done.done():
                    done.set_result(None)
            self._flushes = [flush for flush in self._flushes if not flush[1].done()]
        self.let_in()

    def end(self, error: ClientError) -> None:
        """Fail the callers that wait for room. Flushes end when all records have a result."""
        for _, turn in self._turns:
            if not turn.done():
                turn.set_exception(type(error)(*error.args))

    def _press(self) -> None:
        self._core.pressed = True
        self._wake()
