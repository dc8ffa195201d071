"""Produce requests whose batches have to be opened: they go on in turns of the loop.

Floor: produce. Most batches are taken by their headers. Where the records have to be looked at, a
batch of a few hundred bytes may hold twenty megabytes or 100,000 records, and a request thousands
of such batches. Such a request is worked at for a short time at once; then it stands in one line
with those of all connections, and each turn of the loop works the line off for a short time, one
batch of each request after the other. At most one batch of the whole broker is open at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING

from broker.sessions.call import Call
from protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from broker.node.services import Services
    from broker.produce.produces import ParkedProduce

TURN_NS_MAX = 20_000_000
"""In one turn of the loop no step begins after this much time."""

Steps = Iterator[bool]
"""The rest of a request, to be gone through; True whenever no batch of it is open."""


class Opening:
    """One request that goes on in turns."""

    __slots__ = ("_steps", "call", "is_between", "is_done", "parked")

    def __init__(self, parked: ParkedProduce, steps: Steps) -> None:
        self.call: Call = parked.call
        self.parked = parked
        self._steps = steps
        self.is_between = True
        """Whether it stands before a batch, and not in the middle of one."""
        self.is_done = False

    def go_on(self, end_ns: int) -> None:
        """Work at one batch until that is done, or the time is up."""
        for is_between in self._steps:
            self.is_between = is_between
            if is_between or perf_counter_ns() > end_ns:
                return
        self.is_done = True


class Openings:
    """All such requests under way."""

    def __init__(self, services: Services, settle: Callable[[], None]) -> None:
        self._services = services
        self._settle = settle
        self._line: deque[Opening] = deque()

    @property
    def parked(self) -> list[ParkedProduce]:
        """The requests of which some batches may be appended, and others are still to come."""
        return [opening.parked for opening in self._line]

    def start(self, parked: ParkedProduce, request: ProduceRequest, steps: Steps) -> None:
        """Go on with a request that stands before a batch to be opened."""
        opening = Opening(parked, steps)
        if not self._line:
            # Nobody waits: for something small a turn of its own would be a detour.
            end_ns = perf_counter_ns() + TURN_NS_MAX
            while not opening.is_done and perf_counter_ns() <= end_ns:
                opening.go_on(end_ns)
            if opening.is_done:
                return
        for topic in request.topic_data:
            for data in topic.partition_data:
                # The read buffer will be used again before it is their turn.
                data.records = memoryview(bytearray(data.records or b""))
        parked.call.connection.hold(parked.call.slot)
        self._line.append(opening)
        if len(self._line) == 1:
            self._services.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Work until the time is up, and write what has been appended."""
        line = self._line
        end_ns = perf_counter_ns() + TURN_NS_MAX
        while line:
            opening = line[0]
            connection = opening.call.connection
            if not connection.is_closed:
                connection.attempt(lambda: line[0].go_on(end_ns))
            if connection.is_closed:
                line.popleft()
            elif opening.is_done:
                line.popleft()
                connection.let_go(opening.call.slot)
            elif opening.is_between:
                line.rotate(-1)
            if perf_counter_ns() > end_ns:
                break
        if line:
            self._services.loop.call_soon(self._turn)
        self._settle()
