"""Works on Produce requests whose batches must be decompressed, in several iterations of the event
loop.

Most batches are validated by their headers. `log.append` raises `RecordsUnseen` if the records of a
batch must be checked (decision 0014). A batch of a few hundred bytes can contain twenty megabytes
or 100,000 records, and a request can contain thousands of such batches. So such a request gets only
`TURN_NS_MAX` at once. If it is not finished, it joins a queue that all connections share. Each
iteration of the event loop works on the queue for the same time, one batch per request in rotation.
The whole broker has at most one batch decompressed in part. Later requests on the same connection
wait until all batches of the request are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from broker.sessions.call import Call
from broker.world import Soon
from protocol.messages.produce import ProduceRequest

TURN_NS_MAX = 20_000_000
"""The time in nanoseconds after which no more step begins in one iteration of the event loop."""

Steps = Iterator[bool]
"""The remaining work of a request, in steps. A step yields True when it ends between two batches,
and False when it ends in the middle of a batch."""


class Unfinished(Protocol):
    """A request that has possibly appended only some of its batches."""

    @property
    def call(self) -> Call:
        """The call that gets the answer."""


U = TypeVar("U", bound=Unfinished)


class Opening(Generic[U]):
    """One request in the queue, with its remaining work."""

    __slots__ = ("_steps", "call", "is_between", "is_done", "pending")

    def __init__(self, pending: U, steps: Steps) -> None:
        self.call: Call = pending.call
        self.pending = pending
        self._steps = steps
        self.is_between = True
        """True if the last step ended between two batches, and not in the middle of a batch."""
        self.is_done = False

    def go_on(self, end_ns: int, turn_ns: Callable[[], int]) -> None:
        """Work on one batch, until the batch is finished or the loop's clock has passed
        `end_ns`."""
        for is_between in self._steps:
            self.is_between = is_between
            if is_between or turn_ns() > end_ns:
                return
        self.is_done = True


class Openings(Generic[U]):
    """The queue of all requests whose batches must be decompressed."""

    def __init__(self, soon: Soon, turn_ns: Callable[[], int], settle: Callable[[], None]) -> None:
        self._soon = soon
        self._turn_ns = turn_ns
        self._settle = settle
        self._queue: deque[Opening[U]] = deque()

    @property
    def pending(self) -> list[U]:
        """The requests that have possibly appended only some of their batches."""
        return [opening.pending for opening in self._queue]

    def start(self, pending: U, request: ProduceRequest, steps: Steps) -> None:
        """Continue a request with a batch that must be decompressed. Add the request to the queue
        unless it is finished within `TURN_NS_MAX`."""
        opening = Opening(pending, steps)
        if not self._queue:
            # The queue is empty, so work on the request at once. A small request is finished
            # without a further iteration of the event loop.
            end_ns = self._turn_ns() + TURN_NS_MAX
            while not opening.is_done and self._turn_ns() <= end_ns:
                opening.go_on(end_ns, self._turn_ns)
            if opening.is_done:
                return
        copy_batches(request)
        pending.call.session.hold(pending.call.slot)
        self._queue.append(opening)
        if len(self._queue) == 1:
            self._soon(self._turn)

    def _turn(self) -> None:
        """Work on the queue for `TURN_NS_MAX`, then write the appended batches."""
        queue = self._queue
        end_ns = self._turn_ns() + TURN_NS_MAX
        while queue:
            opening = queue[0]
            session = opening.call.session
            if not session.is_closed:
                session.attempt(lambda: queue[0].go_on(end_ns, self._turn_ns))
            if session.is_closed:
                queue.popleft()
            elif opening.is_done:
                queue.popleft()
                session.let_go(opening.call.slot)
            elif opening.is_between:
                queue.rotate(-1)
            if self._turn_ns() > end_ns:
                break
        if queue:
            self._soon(self._turn)
        self._settle()


def copy_batches(request: ProduceRequest) -> None:
    """Copy the batches out of the connection's read buffer, because the next read overwrites it."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = memoryview(bytearray(data.records or b""))
