"""The interface between a broker and its world: time, randomness, the event loop, threads, links.

This module is pure: protocols and plain values. The real world is `broker/real`, with a loop,
sockets and threads. Tests use a simulated world with a heap of events, so that a whole broker runs
reproducibly from one seed. No other part of the broker accesses the world directly. The disk has
its own interface (`storage/disk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from random import Random
from typing import NamedTuple, NoReturn, Protocol, TypeVar

from broker.config import Listener

T = TypeVar("T")

Soon = Callable[..., object]
"""`soon(call, *args)` calls `call(*args)` in the next iteration of the event loop."""

Later = Callable[[int, Callable[[], object]], "Cancel"]
"""`later(delay_ms, call)` calls `call()` after a delay in milliseconds, and returns an object that
can cancel the call."""


class Clock(Protocol):
    """Two clocks, both in whole milliseconds."""

    def now_ms(self) -> int:
        """Return the wall time since 1970, for timestamps and retention. It can jump in both
        directions."""

    def monotonic_ms(self) -> int:
        """Return the time since some fixed moment, for deadlines. It never goes back."""


class Cancel(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call if it has not happened yet."""


class Jobs(Protocol):
    """One thread with a queue of jobs, which it does in order, outside of the event loop."""

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
        """Finish the queued jobs and accept no more. Their callbacks are possibly not called.

        Return True if the thread ended within this time and no final disk error happened.
        """


class Address(NamedTuple):
    """The address of another broker: a host name or an IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class End(Enum):
    """The reason why a link ended or could not be connected."""

    CLOSED = auto()
    """This side has closed the link, or could not even try to connect. The reason text says
    more."""
    EOF = auto()
    """The peer sends no more, but possibly it still reads."""
    RESET = auto()
    """The peer, or a device in between, has reset the connection."""
    REFUSED = auto()
    """The other machine reports that no process listens on the address."""
    TIMED_OUT = auto()
    """No answer came in time, either to the connection attempt or to sent bytes."""
    UNREACHABLE = auto()
    """The address cannot be reached at present."""
    UNRESOLVED = auto()
    """The host name cannot be resolved."""
    UNSUPPORTED = auto()
    """A request was not sent, because the peer speaks no version of it that this side speaks. The
    link is not affected."""


class Link(Protocol):
    """One socket that this side has accepted or opened, with the frames that arrive on it."""

    @property
    def peer_host(self) -> str:
        """The address of the other side, without its port."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side, for logs."""

    @property
    def held_bytes(self) -> int:
        """The number of bytes of memory for unfinished frames."""

    @property
    def is_in_frame(self) -> bool:
        """True if a frame has begun and is not complete."""

    @property
    def is_stalled(self) -> bool:
        """True if bytes cannot be sent at present, because the peer does not read."""

    @property
    def is_paused(self) -> bool:
        """True if reading is paused."""

    @property
    def peer_id(self) -> int | None:
        """The id of the broker on the other side, which its certificate proves; None on a link
        without certificates."""

    def send(self, chunks: Sequence[object]) -> None:
        """Send chunks (bytes-like objects, or regions of files) after everything sent before.

        Nothing may be sent before `linked` was called on the receiver. An error while sending is
        reported later. Bytes that the peer sent before it closed the connection are delivered
        first, and then `ended` is called.
        """

    def left(self) -> Iterator[memoryview]:
        """Return the complete frames that the last `take` did not consume."""

    def limit_frames(self, bytes_max: int) -> None:
        """Refuse larger frames from now on."""

    def pause(self) -> None:
        """Read nothing until `resume` is called."""

    def resume(self) -> None:
        """Resume reading."""

    def shrink(self) -> None:
        """Release memory that no frame needs."""

    def mute(self) -> None:
        """Send no more, and drop the bytes that wait to be sent."""

    def close(self) -> None:
        """Close the link from this side. The receiver gets no more calls."""


class Receiver(Protocol):
    """The user of a link: the session of a client, or the side that sends requests to another
    broker."""

    def linked(self, link: Link) -> None:
        """Take the connected link. The receiver may close it at once."""

    def take(self, frames: Iterator[memoryview]) -> None:
        """Take arrived frames. The views become invalid on return, except those that are left in
        the iterator.

        Raises WireError if the link can no longer be used.
        """

    def drained(self) -> None:
        """Handle that all bytes passed to `send` have left this process."""

    def ended(self, end: End, reason: str = "") -> None:
        """Handle the end of the link. This is the last call. After EOF, answers can still be
        sent."""


class Listening(Protocol):
    """A bound address of a listener."""

    def open(self) -> None:
        """Start accepting connections. Raises PortTaken if another process already listens on the
        address."""

    def close(self) -> None:
        """Accept no more connections."""


class PortTaken(Exception):
    """A listener's address cannot be bound. The message names the address, the setting and the
    process that uses it."""


class World(Protocol):
    """The whole interface to the world, for `node/broker`. Other parts get only the attributes that
    they use."""

    @property
    def clock(self) -> Clock:
        """The clocks for deadlines and timestamps."""

    @property
    def chance(self) -> Random:
        """The only source of randomness, except for secrets."""

    def secret_bytes(self, count: int) -> bytes:
        """Return random bytes that no peer can predict."""

    @property
    def turn_ns(self) -> Callable[[], int]:
        """A clock in nanoseconds that also advances within one iteration of the loop.

        It is only for time budgets and metrics, never for other decisions.
        """

    @property
    def soon(self) -> Soon:
        """Schedules a call with arguments for the next iteration of the loop."""

    def later(self, delay_ms: int, call: Callable[[], object]) -> Cancel:
        """Schedule a call after this delay in milliseconds."""

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Jobs:
        """Return a thread for blocking work. After a final disk error, `on_final` is called instead
        of the job's `failed`."""

    def listen(self, name: str, address: Listener, take: Callable[[], Receiver]) -> Listening:
        """Bind an address. Each new connection gets a receiver from `take`. Raises PortTaken."""

    def dial(
        self,
        address: Address,
        receiver: Receiver,
        *,
        node_id: int | None = None,
        asks_resolver: bool = True,
    ) -> Link:
        """Connect to another broker. After this method returns, `linked` or `ended` is called.

        `node_id` is the id of the broker, if it is known. If links have certificates, the broker
        must prove this id before it gets any bytes.

        The host name is resolved. If that fails, its last known addresses are used. With
        `asks_resolver` False only known addresses are used, and the link ends with UNRESOLVED if
        there are none. Several addresses of a name are tried one after the other.
        """

    def look_up(self, host: str) -> None:
        """Resolve a host name outside of the loop, so that later connection attempts need not wait
        for the resolver."""

    def die(self, reason: str) -> NoReturn:
        """End the process at once. The next start recovers the logs."""
