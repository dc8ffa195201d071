"""What a broker needs of the world around it: time, chance, turns, threads, links.

Ground floor. Pure: protocols and plain values. The real world is `broker/real`, on a loop, sockets
and threads; in tests a simulated one stands on a heap of events, so that a whole broker runs from
one seed, to the byte. Nothing of the broker outside of `broker/real` knows another way to the
world. The disk is a port of its own (`storage/disk`).
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
    """Two readings, both in whole milliseconds."""

    def now_ms(self) -> int:
        """Wall time since 1970, for timestamps and retention; it may jump either way."""

    def monotonic_ms(self) -> int:
        """Time since some fixed moment, for deadlines; it never goes back."""


class Cancel(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """It does not come, if it has not yet."""


class Jobs(Protocol):
    """One thread with its queue: jobs are done in order, beside the loop."""

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Do `job` in the thread; then `done(result)` or `failed(error)` comes in the loop.

        `failed` is for what the disk refuses; any other exception of a job is a fault of ours and
        ends the process.
        """

    def stop(self, timeout_s: float | None = None) -> bool:
        """Finish what is queued and take no more; its results may not be heard any more.

        Returns whether it has ended, within this time, without the disk failing for good.
        """


class Address(NamedTuple):
    """Where another broker listens: a name or an IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class End(Enum):
    """Why a link has no more to give, or never stood."""

    CLOSED = auto()
    """Our side has closed it, or could not even try: the reason says more."""
    EOF = auto()
    """The peer sends no more, and may still read."""
    RESET = auto()
    """The peer, or something in between, has thrown it away."""
    REFUSED = auto()
    """Nobody listens at the address, and its machine says so."""
    TIMED_OUT = auto()
    """Nothing was heard in time: no answer to a dial, no acknowledgement of what was sent."""
    UNREACHABLE = auto()
    """There is no way to the address at present."""
    UNRESOLVED = auto()
    """Nobody knows what the name means."""


class Link(Protocol):
    """One socket, accepted or dialled, with the frames that arrive on it."""

    @property
    def peer_host(self) -> str:
        """The address of the other side, without its port."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side, for logs."""

    @property
    def held_bytes(self) -> int:
        """The memory that unfinished frames take."""

    @property
    def is_in_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""

    @property
    def is_stalled(self) -> bool:
        """Whether something waits to be sent that the peer does not take."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read for now."""

    def send(self, chunks: Sequence[object]) -> None:
        """Send chunks (bytes-like, or regions of files) behind all that was sent before.

        Nothing may be sent before the receiver has heard `linked`.

        What cannot be sent shows later: a peer that is gone takes back nothing of what it has
        sent, so its frames still come, and then `ended`.
        """

    def left(self) -> Iterator[memoryview]:
        """The whole frames that the last `take` has left."""

    def pause(self) -> None:
        """Read nothing until `resume`."""

    def resume(self) -> None:
        """Read on."""

    def shrink(self) -> None:
        """Give back memory that no frame needs."""

    def mute(self) -> None:
        """Send no more: what waits is forgotten, and so is what comes."""

    def close(self) -> None:
        """End it from our side; the receiver hears nothing more."""


class Receiver(Protocol):
    """Who works with a link: a session of a client, or the asking side between brokers."""

    def linked(self, link: Link) -> None:
        """The link stands; it may be closed at once."""

    def take(self, frames: Iterator[memoryview]) -> None:
        """Frames have arrived. Views die on return, but for those left in the iterator.

        Raises WireError when the link is of no more use.
        """

    def drained(self) -> None:
        """Everything sent so far has left."""

    def ended(self, end: End, reason: str = "") -> None:
        """The last that is heard of the link, once; after EOF answers may still be sent."""


class Listening(Protocol):
    """A bound address."""

    def open(self) -> None:
        """Begin to accept. Raises PortTaken when somebody else was quicker."""

    def close(self) -> None:
        """Accept no more."""


class PortTaken(Exception):
    """A listener's address cannot be had; the message names it, the setting, and the holder."""


class World(Protocol):
    """Everything at once, as `node/broker` is given it; others get what they use of it."""

    @property
    def clock(self) -> Clock:
        """Time for deadlines and dates."""

    @property
    def chance(self) -> Random:
        """The only source of chance."""

    @property
    def turn_ns(self) -> Callable[[], int]:
        """Nanoseconds that run also while the loop works: for budgets and metrics, and for nothing
        else that decides."""

    @property
    def soon(self) -> Soon:
        """Calls in the next turn, with the arguments behind the call."""

    def later(self, delay_ms: int, call: Callable[[], object]) -> Cancel:
        """Call when so much time has passed."""

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Jobs:
        """A thread for what would block; `on_final` hears, instead of whoever gave the job, when
        the disk has failed for good."""

    def listen(self, name: str, address: Listener, take: Callable[[], Receiver]) -> Listening:
        """Bind an address; each connection that comes in gets a receiver. Raises PortTaken."""

    def dial(self, address: Address, receiver: Receiver, *, asks_resolver: bool = True) -> Link:
        """Connect to another broker; the receiver hears `linked`, or else `ended`, but not before
        this call has returned.

        A name is looked up, and where that fails means what it meant before. `asks_resolver`
        False: it means what it meant before, UNRESOLVED if nobody has looked it up. Where a name
        has several addresses they are tried one after the other.
        """

    def look_up(self, host: str) -> None:
        """Find out, beside the loop, what a name means, for those who will dial it and must not
        wait for that."""

    def die(self, reason: str) -> NoReturn:
        """End the process at once, leaving everything to recovery."""
