"""Produce requests whose batches must be decompressed, processed over several turns of the loop.

Room: produce. Most batches are validated by their headers. If the records must be checked, a batch
of a few hundred bytes can contain twenty megabytes or 100,000 records, and a request can contain
thousands of such batches. Such a request gets a short time at once. Then it joins one queue for all
connections. Each turn of the loop works on the queue for a short time, one batch per request in
rotation. The whole broker has at most one batch open at a time.
`log.append` asks for this by raising `RecordsUnseen` (decision 0014). Later requests on the same
connection wait until all batches of the request are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from broker.sessions.call import Call
from broker.world import Soon
from protocol.messages.produce import ProduceRequest

TURN_NS_MAX = 20_000_000
"""In one turn of the loop, no step begins after this much time."""

Steps = Iterator[bool]
"""The rest of a request, in steps. A step yields True when no batch of the request is open."""


class Unfinished(Protocol):
    """A request of which some batches can have been appended and others not yet."""

    @property
    def call(self) -> Call:
        """The call to answer."""


U = TypeVar("U", bound=Unfinished)


class Opening(Generic[U]):
    """One request that is processed over several turns."""

    __slots__ = ("_steps", "call", "is_between", "is_done", "pending")

    def __init__(self, pending: U, steps: Steps) -> None:
        self.call: Call = pending.call
        self.pending = pending
        self._steps = steps
        self.is_between = True
        """True if the request is between two batches, not in the middle of one."""
        self.is_done = False

    def go_on(self, end_ns: int, turn_ns: Callable[[], int]) -> None:
        """Work on one batch until it is done or the time is up."""
        for is_between in self._steps:
            self.is_between = is_between
            if is_between or turn_ns() > end_ns:
                return
        self.is_done = True


class Openings(Generic[U]):
    """All such requests in progress."""

    def __init__(self, soon: Soon, turn_ns: Callable[[], int], settle: Callable[[], None]) -> None:
        self._soon = soon
        self._turn_ns = turn_ns
        self._settle = settle
        self._line: deque[Opening[U]] = deque()

    @property
    def pending(self) -> list[U]:
        """The requests of which some batches can have been appended and others not yet."""
        return [opening.pending for opening in self._line]

    def start(self, pending: U, request: ProduceRequest, steps: Steps) -> None:
        """Continue a request whose next batch must be opened."""
        opening = Opening(pending, steps)
        if not self._line:
            # The queue is empty, so a small request is finished at once, without an extra turn.
            end_ns = self._turn_ns() + TURN_NS_MAX
            while not opening.is_done and self._turn_ns() <= end_ns:
                opening.go_on(end_ns, self._turn_ns)
            if opening.is_done:
                return
        copy_batches(request)
        pending.call.session.hold(pending.call.slot)
        self._line.append(opening)
        if len(self._line) == 1:
            self._soon(self._turn)

    def _turn(self) -> None:
        """Work on the queue until the time is up, then write what has been appended."""
        line = self._line
        end_ns = self._turn_ns() + TURN_NS_MAX
        while line:
            opening = line[0]
            session = opening.call.session
            if not session.is_closed:
                session.attempt(lambda: line[0].go_on(end_ns, self._turn_ns))
            if session.is_closed:
                line.popleft()
            elif opening.is_done:
                line.popleft()
                session.let_go(opening.call.slot)
            elif opening.is_between:
                line.rotate(-1)
            if self._turn_ns() > end_ns:
                break
        if line:
            self._soon(self._turn)
        self._settle()


def copy_batches(request: ProduceRequest) -> None:
    """Copy the batches out of the read buffer, which will be overwritten."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = memoryview(bytearray(data.records or b""))
