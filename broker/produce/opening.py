"""Produce requests whose batches have to be opened: they go on in turns of the loop.

Floor: produce. Most batches are taken by their headers. Where the records have to be looked at, a
batch of a few hundred bytes may hold twenty megabytes or 100,000 records, and a request thousands
of such batches. Such a request is worked at for a short time at once; then it stands in one line
with those of all connections, and each turn of the loop works the line off for a short time, one
batch of each request after the other. At most one batch of the whole broker is open at a time.
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
"""In one turn of the loop no step begins after this much time."""

Steps = Iterator[bool]
"""The rest of a request, to be gone through; True whenever no batch of it is open."""


class Unfinished(Protocol):
    """A request of which some batches may be appended, and others are still to come."""

    @property
    def call(self) -> Call:
        """Whom to answer."""


U = TypeVar("U", bound=Unfinished)


class Opening(Generic[U]):
    """One request that goes on in turns."""

    __slots__ = ("_steps", "call", "is_between", "is_done", "parked")

    def __init__(self, parked: U, steps: Steps) -> None:
        self.call: Call = parked.call
        self.parked = parked
        self._steps = steps
        self.is_between = True
        """Whether it stands before a batch, and not in the middle of one."""
        self.is_done = False

    def go_on(self, end_ns: int, turn_ns: Callable[[], int]) -> None:
        """Work at one batch until that is done, or the time is up."""
        for is_between in self._steps:
            self.is_between = is_between
            if is_between or turn_ns() > end_ns:
                return
        self.is_done = True


class Openings(Generic[U]):
    """All such requests under way."""

    def __init__(self, soon: Soon, turn_ns: Callable[[], int], settle: Callable[[], None]) -> None:
        self._soon = soon
        self._turn_ns = turn_ns
        self._settle = settle
        self._line: deque[Opening[U]] = deque()

    @property
    def parked(self) -> list[U]:
        """The requests of which some batches may be appended, and others are still to come."""
        return [opening.parked for opening in self._line]

    def start(self, parked: U, request: ProduceRequest, steps: Steps) -> None:
        """Go on with a request that stands before a batch to be opened."""
        opening = Opening(parked, steps)
        if not self._line:
            # Nobody waits: for something small a turn of its own would be a detour.
            end_ns = self._turn_ns() + TURN_NS_MAX
            while not opening.is_done and self._turn_ns() <= end_ns:
                opening.go_on(end_ns, self._turn_ns)
            if opening.is_done:
                return
        copy_batches(request)
        parked.call.session.hold(parked.call.slot)
        self._line.append(opening)
        if len(self._line) == 1:
            self._soon(self._turn)

    def _turn(self) -> None:
        """Work until the time is up, and write what has been appended."""
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
    """Take the batches out of the read buffer, which is used again before it is their turn."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = memoryview(bytearray(data.records or b""))
