"""The real world: asyncio's or uvloop's loop, the machine's clocks, randomness and threads.

`broker/world` defines the interface.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from random import Random
from time import perf_counter_ns
from typing import NoReturn

from broker.config import BROKER_LISTENER, Listener
from broker.metrics.warnings import Warnings
from broker.real.certificates import Certificates
from broker.real.dialling import SILENCE_MS_MAX, DialledLink, DialledTlsLink
from broker.real.link_certificates import LinkCertificates
from broker.real.link_refusals import LinkRefusals
from broker.real.listening import BrokerLinks, SocketListening
from broker.real.names import Names
from broker.real.warmer import Warmer
from broker.real.workers import Worker
from broker.world import Address, Cancel, Receiver, Soon
from protocol.status import Problem


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class LoopWorld:
    """The world that one process gives to its broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        die: Callable[[str], NoReturn],
        frame_bytes_max: int,
        unread_bytes_max: int,
        certificates: Certificates | None = None,
        links: LinkCertificates | None = None,
    ) -> None:
        """`frame_bytes_max` is the largest size of a request. `unread_bytes_max` limits the answers
        that a peer leaves unread. `certificates` are needed if clients use TLS, and `links` if
        brokers use TLS among themselves."""
        self._certificates = certificates
        self._links = links
        self.clock = SystemClock()
        self.chance = Random(os.urandom(32))
        self.turn_ns = perf_counter_ns
        self.soon: Soon = loop.call_soon
        self.die = die
        self._loop = loop
        self._frame_bytes_max = frame_bytes_max
        self._unread_bytes_max = unread_bytes_max
        self._warmer = Warmer(loop)
        self._warnings = Warnings(self.clock)
        self._names = Names(loop)
        own = "" if links is None else links.files.certificate
        self._refusals = LinkRefusals(self.clock, self._warnings, own)

    def secret_bytes(self, count: int) -> bytes:
        """Return random bytes of the system."""
        return os.urandom(count)

    def later(self, delay_ms: int, call: Callable[[], object]) -> Cancel:
        """Call `call` after a delay in milliseconds."""
        return self._loop.call_later(delay_ms / 1000, call)

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Worker:
        """Return a worker. Its thread starts with its first job."""
        return Worker(self._loop, name, on_final)

    def listen(self, name: str, address: Listener, take: Callable[[], Receiver]) -> SocketListening:
        """Bind a listener's socket."""
        return SocketListening(
            self._loop,
            name,
            address,
            take,
            self._warmer,
            self._frame_bytes_max,
            self._unread_bytes_max,
            self._warnings,
            # The machine of a client can be unreachable for longer than the machine of another
            # broker.
            SILENCE_MS_MAX if name == BROKER_LISTENER else 0,
            self._certificates,
            BrokerLinks(self._links, self._refusals) if self._links is not None else None,
        )

    def dial(
        self,
        address: Address,
        receiver: Receiver,
        *,
        node_id: int | None = None,
        asks_resolver: bool = True,
    ) -> DialledLink:
        """Connect to another broker."""
        engine = None if self._links is None else self._links.to_broker(node_id)
        link = (DialledLink if engine is None else DialledTlsLink)(
            self._loop,
            receiver,
            self._warmer,
            self._frame_bytes_max,
            self._unread_bytes_max,
            address,
            node_id,
            self._refusals,
        )
        if engine is not None and isinstance(link, DialledTlsLink):
            link.secure(engine)
        link.begin(self._names, asks_resolver=asks_resolver)
        return link

    def connection_problems(self) -> list[Problem]:
        """Return the problems of the two certificates of this broker, and those of connections to
        other brokers: refused ones, and host names that cannot be resolved."""
        shown = [] if self._certificates is None else self._certificates.problems()
        own = [] if self._links is None else self._links.problems()
        return [*shown, *own, *self._refusals.problems()]

    def look_up(self, host: str) -> None:
        """Resolve a name and cache the answer."""
        self._names.look_up(host)

    def stop(self) -> None:
        """End the threads that this object has started for itself."""
        self._warmer.stop()
