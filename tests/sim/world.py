"""A world made of a heap of events: time, turns and chance come from one seed.

Nothing happens by itself. `turn` runs what was wanted for the next turn, `run_for` lets time pass
from one event to the next. A thread's job is an event like any other: it is done, and reported,
when its time has come; `held` worlds do no job before they are told to.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NoReturn, TypeVar

from broker.config import Listener
from broker.storage.errors import CorruptionError, DiskError, FolderError
from broker.world import Jobs, Receiver
from tests.sim.clock import SimClock

T = TypeVar("T")

LOOK_NS = 1_000
"""What passes of a turn's budget between two looks at it."""


class Died(AssertionError):
    """The process would have ended; the text says why."""


class SimCall:
    """A call that is to come, unless it is cancelled."""

    __slots__ = ("call", "is_cancelled")

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimJobs:
    """One thread that does each job in the turn after the one in which it is given."""

    def __init__(self, world: SimWorld, on_final: Callable[[Exception], None] | None) -> None:
        self._world = world
        self._on_final = on_final

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        def work() -> None:
            try:
                result = job()
            except (CorruptionError, DiskError, FolderError, OSError) as error:
                is_final = isinstance(error, DiskError) and error.is_final
                self._world.soon((is_final and self._on_final) or failed, error)
            else:
                self._world.soon(done, result)

        self._world.soon(work)

    def stop(self, timeout_s: float | None = None) -> bool:
        return True


class SimListening:
    """An address at which links are made by the test: `accept` gives a receiver."""

    def __init__(self, take: Callable[[], Receiver]) -> None:
        self.accept = take
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class SimWorld:
    """Everything that a broker asks of the world."""

    def __init__(self, seed: int, now_ms: int = 0, monotonic_ms: int = 0) -> None:
        self.clock = SimClock(now_ms, monotonic_ms)
        self.chance = Random(seed)
        self.listening: dict[str, SimListening] = {}
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._later: list[tuple[int, int, SimCall]] = []
        self._number = 0
        self.ns = 0
        """What budgets are measured by; a test may let it pass, and nothing else does but looks."""
        self.look_ns = LOOK_NS

    def turn_ns(self) -> int:
        self.ns += self.look_ns
        return self.ns

    def soon(self, call: Callable[..., object], *args: object) -> None:
        self._soon.append((call, args))

    def later(self, delay_ms: int, call: Callable[[], object]) -> SimCall:
        planned = SimCall(call)
        self._number += 1
        due_ms = self.clock.monotonic_ms() + delay_ms
        heapq.heappush(self._later, (due_ms, self._number, planned))
        return planned

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Jobs:
        return SimJobs(self, on_final)

    def listen(self, name: str, address: Listener, take: Callable[[], Receiver]) -> SimListening:
        made = self.listening[name] = SimListening(take)
        return made

    def die(self, reason: str) -> NoReturn:
        raise Died(f"the broker would end: {reason}")

    # What the test does.

    def turn(self) -> None:
        """One turn of the loop: what it brings for the next one waits."""
        for _ in range(len(self._soon)):
            call, args = self._soon.popleft()
            call(*args)

    def settle(self) -> None:
        """Turns until nothing is wanted for the next one."""
        while self._soon:
            self.turn()

    def run_for(self, duration_ms: int) -> None:
        """Let time pass, from one event to the next, and a turn at each."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        self.settle()
        while self._later and self._later[0][0] <= end_ms:
            due_ms, _, planned = heapq.heappop(self._later)
            if not planned.is_cancelled:
                self.clock.advance(max(due_ms - self.clock.monotonic_ms(), 0))
                planned.call()
                self.settle()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
