"""A world that consists of a heap of events. Time, turns of the loop and random numbers come from
one seed.

Nothing happens without an event. `turn` runs the calls that are scheduled for the next turn, and
`run_for` goes from one event to the next. A job in a thread is an event, too: at its time it runs
and reports its result. Several worlds can share one timeline and a network (`network`). Then each
world is one process, and its remaining events are dropped when it ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NoReturn, Protocol, TypeVar

from broker.config import Listener
from broker.storage.errors import CorruptionError, DiskError, FolderError
from broker.world import Address, Jobs, Link, Receiver
from tests.sim.clock import SimClock

T = TypeVar("T")

LOOK_NS = 1_000
"""The ns by which each reading of the time advances it."""


class Died(AssertionError):
    """Raised where a real process would end. The text is the reason."""


class Life(Protocol):
    """One process. Each event belongs to a process, and is dropped if that process has ended."""

    @property
    def is_over(self) -> bool:
        """Return True after the process has ended."""

    @property
    def held(self) -> list[Callable[[], object]] | None:
        """The events that wait until the frozen process continues. None if it is not frozen."""


class SimCall:
    """A scheduled call that can be cancelled."""

    __slots__ = ("call", "is_cancelled", "life")

    def __init__(self, life: Life, call: Callable[[], object]) -> None:
        self.life = life
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        if not self.is_cancelled:
            self.call()


class Timeline:
    """The order of all events of all worlds, and the current time."""

    def __init__(self, now_ms: int = 0, monotonic_ms: int = 0) -> None:
        self.clock = SimClock(now_ms, monotonic_ms)
        self._soon: deque[tuple[Life, Callable[..., object], tuple[object, ...]]] = deque()
        self._later: list[tuple[int, int, SimCall]] = []
        self._number = 0

    def soon(self, life: Life, call: Callable[..., object], *args: object) -> None:
        self._soon.append((life, call, args))

    def later(self, life: Life, delay_ms: int, call: Callable[[], object]) -> SimCall:
        planned = SimCall(life, call)
        self._number += 1
        due_ms = self.clock.monotonic_ms() + delay_ms
        heapq.heappush(self._later, (due_ms, self._number, planned))
        return planned

    def turn(self) -> None:
        """Run one turn of the loop. Calls that it schedules run in the next turn."""
        for _ in range(len(self._soon)):
            life, call, args = self._soon.popleft()
            if life.held is not None:
                life.held.append(partial(call, *args))
            elif not life.is_over:
                call(*args)

    def settle(self) -> None:
        """Run turns until nothing is scheduled for the next one."""
        while self._soon:
            self.turn()

    def run_for(self, duration_ms: int) -> None:
        """Let time pass from one event to the next. Run turns after each event."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        self.settle()
        while self._later and self._later[0][0] <= end_ms:
            due_ms, _, planned = heapq.heappop(self._later)
            if not (planned.is_cancelled or planned.life.is_over):
                self.clock.advance(max(due_ms - self.clock.monotonic_ms(), 0))
                if planned.life.held is not None:
                    planned.life.held.append(planned.run)
                else:
                    planned.call()
                    self.settle()
        self.clock.advance(end_ms - self.clock.monotonic_ms())


class SimJobs:
    """A thread that performs each job in the next turn. In a world with `job_ms` a job ends only
    after that many milliseconds."""

    def __init__(
        self, world: SimWorld, name: str, on_final: Callable[[Exception], None] | None
    ) -> None:
        self._world = world
        self._name = name
        self._on_final = on_final
        self._free_at_ms = 0

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

        world = self._world
        if not world.job_ms:
            world.soon(work)
            return
        now_ms = world.clock.monotonic_ms()
        job_ms = world.job_ms_by_name.get(self._name, world.job_ms)
        # Use a separate source of random numbers, so that other events do not change the durations
        # of jobs.
        self._free_at_ms = max(self._free_at_ms, now_ms) + world.jobs_chance.randint(*job_ms)
        world.later(self._free_at_ms - now_ms, work)

    def stop(self, timeout_s: float | None = None) -> bool:
        return True


class SimListening:
    """A listening address. A test creates links to it, and `accept` returns a receiver for each."""

    def __init__(self, address: Listener, take: Callable[[], Receiver]) -> None:
        self.address = address
        self.accept = take
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Dials(Protocol):
    """The network as one world uses it."""

    def dial(
        self, world: SimWorld, address: Address, receiver: Receiver, asks_resolver: bool
    ) -> Link:
        """Connect as described in `World.dial`."""


class SimWorld:
    """The simulated `World` of one broker: its clock, randomness, event loop, threads and
    network."""

    def __init__(
        self,
        seed: int | str,
        now_ms: int = 0,
        monotonic_ms: int = 0,
        timeline: Timeline | None = None,
        network: Dials | None = None,
    ) -> None:
        self.timeline = timeline or Timeline(now_ms, monotonic_ms)
        self.clock = self.timeline.clock
        self.chance = Random(seed)
        self.is_over = False
        self.held: list[Callable[[], object]] | None = None
        self.job_ms: tuple[int, int] | None = None
        """The shortest and longest duration of a job. With None a job takes no time."""
        self.job_ms_by_name: dict[str, tuple[int, int]] = {}
        """The same for jobs of the threads with these names."""
        self.jobs_chance = Random(f"jobs {seed}")
        self.listening: dict[str, SimListening] = {}
        self.known_hosts: set[str] = set()
        """The host names that have been resolved."""
        self._network = network
        self.ns = 0
        """The time by which budgets are measured. Only a reading of it, or a test, advances it."""
        self.look_ns = LOOK_NS

    def turn_ns(self) -> int:
        self.ns += self.look_ns
        return self.ns

    def secret_bytes(self, count: int) -> bytes:
        return self.chance.randbytes(count)

    def soon(self, call: Callable[..., object], *args: object) -> None:
        self.timeline.soon(self, call, *args)

    def later(self, delay_ms: int, call: Callable[[], object]) -> SimCall:
        return self.timeline.later(self, delay_ms, call)

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Jobs:
        return SimJobs(self, name, on_final)

    def listen(self, name: str, address: Listener, take: Callable[[], Receiver]) -> SimListening:
        made = self.listening[name] = SimListening(address, take)
        return made

    def dial(
        self,
        address: Address,
        receiver: Receiver,
        *,
        node_id: int | None = None,
        asks_resolver: bool = True,
    ) -> Link:
        assert self._network is not None, "a world without a network cannot dial"
        return self._network.dial(self, address, receiver, asks_resolver)

    def look_up(self, host: str) -> None:
        self.known_hosts.add(host)

    def die(self, reason: str) -> NoReturn:
        raise Died(f"the broker would end: {reason}")

    # Methods for tests.

    def freeze(self) -> None:
        """Freeze the process, as SIGSTOP does. Its kernel continues to work."""
        assert self.held is None, "it stands still already"
        self.held = []

    def thaw(self) -> None:
        """Let the process continue. Run the delayed events in order first, as a real loop runs its
        timers."""
        held, self.held = self.held or [], None
        for call in held:
            if not self.is_over:
                call()
        self.settle()

    def turn(self) -> None:
        """Run one turn of the loop. Calls that it schedules run in the next turn."""
        self.timeline.turn()

    def settle(self) -> None:
        """Run turns until nothing is scheduled for the next one."""
        self.timeline.settle()

    def run_for(self, duration_ms: int) -> None:
        """Let time pass from one event to the next. Run turns after each event."""
        self.timeline.run_for(duration_ms)
