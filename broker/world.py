"""The interface between a broker and its world: time, randomness, loop turns, threads, links.

Ground floor. Pure: protocols and plain values. The real world is `broker/real`, with a loop,
sockets and threads. Tests use a simulated world based on a heap of events, so that a whole broker
runs reproducibly from one seed. No other part of the broker accesses the world directly. The disk
has its own interface (`storage/disk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from random import Random
from typing import NamedTuple, NoReturn, Protocol, TypeVar

from broker.config import Listener

T = TypeVar("T")

Soon = Callable[..., object]
"""`soon(call, *args)`: call in the next turn of the loop."""


class Clock(Protocol):
    """Two clocks, both in whole milliseconds."""

    def now_ms(self) -> int:
        """Wall time since 1970, for timestamps and retention. It can jump either way."""

    def monotonic_ms(self) -> int:
        """Time since some fixed moment, for deadlines. It never goes back."""


class Cancel(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call if it has not happened yet."""


class Jobs(Protocol):
    """One thread with its queue: jobs are done in order, outside of the loop."""

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Do `job` in the thread, then call `done(result)` or `failed(error)` in the loop.

        `failed` is for disk errors. Any other exception of a job is a bug and ends the process.
        """

    def stop(self, timeout_s: float | None = None) -> bool:
        """Finish the queued jobs and accept no more. Their callbacks are not certain to be called.

        Returns True if it ended within this time and the disk did not fail for good.
        """


class Address(NamedTuple):
    """Where another broker listens: a name or an IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class End(Enum):
    """Why a link ended, or could not be connected."""

    CLOSED = auto()
    """This side has closed it, or could not even try; the reason says more."""
    EOF = auto()
    """The peer sends no more but may still read."""
    RESET = auto()
    """The peer, or something in between, has reset the connection."""
    REFUSED = auto()
    """No process listens at the address, as the machine reports."""
    TIMED_OUT = auto()
    """No answer in time, either to a connection attempt or to sent bytes."""
    UNREACHABLE = auto()
    """The address cannot be reached at present."""
    UNRESOLVED = auto()
    """The host name cannot be resolved."""


class Link(Protocol):
    """One socket, accepted or opened by this side, with the frames that arrive on it."""

    @property
    def peer_host(self) -> str:
        """The address of the other side, without its port."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side, for logs."""

    @property
    def held_bytes(self) -> int:
        """The memory used by unfinished frames."""

    @property
    def is_in_frame(self) -> bool:
        """True if a frame has begun and is not complete."""

    @property
    def is_stalled(self) -> bool:
        """True if bytes wait to be sent because the peer does not read."""

    @property
    def is_paused(self) -> bool:
        """True if reading is paused."""

    def send(self, chunks: Sequence[object]) -> None:
        """Send chunks (bytes-like, or regions of files) after everything sent before.

        Nothing may be sent before `linked` was called on the receiver. An error while sending shows
        later: bytes that the peer sent before it closed are still delivered, and then `ended` is
        called.
        """

    def left(self) -> Iterator[memoryview]:
        """Return the complete frames that the last `take` did not consume."""

    def limit_frames(self, bytes_max: int) -> None:
        """Refuse larger frames from now on."""

    def pause(self) -> None:
        """Read nothing until `resume`."""

    def resume(self) -> None:
        """Resume reading."""

    def shrink(self) -> None:
        """Release memory that no frame needs."""

    def mute(self) -> None:
        """Send no more, and drop what waits to be sent."""

    def close(self) -> None:
        """Close it from this side. The receiver gets no more calls."""


class Receiver(Protocol):
    """The user of a link: a client session, or the requesting side between brokers."""

    def linked(self, link: Link) -> None:
        """The link is connected. The receiver may close it at once."""

    def take(self, frames: Iterator[memoryview]) -> None:
        """Frames have arrived. Views become invalid on return, except those left in the iterator.

        Raises WireError if the link can no longer be used.
        """

    def drained(self) -> None:
        """Everything sent so far has left this process."""

    def ended(self, end: End, reason: str = "") -> None:
        """The link has ended; this is the last call. After EOF, answers can still be sent."""


class Listening(Protocol):
    """A bound address."""

    def open(self) -> None:
        """Begin to accept. Raises PortTaken if another process already listens there."""

    def close(self) -> None:
        """Accept no more connections."""


class PortTaken(Exception):
    """A listener's address is in use. The message names it, the setting, and the process."""


class World(Protocol):
    """The whole interface, for `node/broker`. Other parts get only what they use of it."""

    @property
    def clock(self) -> Clock:
        """Time for deadlines and timestamps."""

    @property
    def chance(self) -> Random:
        """The only source of randomness, except for secrets."""

    def secret_bytes(self, count: int) -> bytes:
        """Return random bytes that no peer can predict."""

    @property
    def turn_ns(self) -> Callable[[], int]:
        """Nanoseconds that also advance within a turn. Only for time budgets and metrics, never for
        other decisions.
        """

    @property
    def soon(self) -> Soon:
        """Schedules a call, with arguments, for the next turn."""

    def later(self, delay_ms: int, call: Callable[[], object]) -> Cancel:
        """Schedule a call after this delay."""

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Jobs:
        """Return a thread for blocking work. If the disk fails for good, `on_final` is called
        instead of the job's `failed`.
        """

    def listen(self, name: str, address: Listener, take: Callable[[], Receiver]) -> Listening:
        """Bind an address; each new connection gets a receiver from `take`. Raises PortTaken."""

    def dial(self, address: Address, receiver: Receiver, *, asks_resolver: bool = True) -> Link:
        """Connect to another broker. After this call returns, `linked` or `ended` is called.

        The name is resolved; if that fails, its last known addresses are used. With `asks_resolver`
        False only known addresses are used, and the link ends with UNRESOLVED if there are none. If
        a name has several addresses, they are tried one after the other.
        """

    def look_up(self, host: str) -> None:
        """Resolve a name outside of the loop, for later connection attempts that must not wait for
        the resolver.
        """

    def die(self, reason: str) -> NoReturn:
        """End the process at once. The next start recovers."""
