"""Outgoing connections to other brokers, which then work like any other link.

The kernel reports the result of a connection attempt, and `End` passes it on. A link ends when the
other side's kernel has not answered for `SILENCE_MS_MAX` (`silence`).
"""

from __future__ import annotations

import asyncio
import socket

from broker.real.connection import ENDS, SocketLink
from broker.real.link_refusals import LinkRefusals
from broker.real.names import Names, ResolvedAddress
from broker.real.silence import end_when_silent
from broker.real.tls_engine import TlsError
from broker.real.tls_link import TlsLink
from broker.real.warmer import Warmer
from broker.world import Address, End, Receiver

SILENCE_MS_MAX = 2_000
"""The TCP_USER_TIMEOUT of links between brokers, in milliseconds. It also ends a link whose peer
has accepted no bytes for this time."""

CONNECT_S_MAX = 2.0
"""The largest time in seconds to connect, for all addresses of a name together."""

WEIGHT = (End.CLOSED, End.UNREACHABLE, End.REFUSED, End.RESET, End.TIMED_OUT)
"""The results of connection attempts, the least important first. If several addresses fail, the
most important result is reported.

A time-out is the most important, because the broker can still be running at an address that does
not answer. A refusal says more about the broker than an unreachable address.
"""


class DialledLink(SocketLink):
    """A connection that this side opens."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receiver: Receiver,
        warmer: Warmer,
        frame_bytes_max: int,
        unread_bytes_max: int,
        address: Address,
        node_id: int | None,
        refusals: LinkRefusals,
    ) -> None:
        """`node_id` is the id of the broker at the address, if it is known."""
        super().__init__(loop, receiver, warmer, frame_bytes_max, unread_bytes_max)
        self.peer_host, self.peer = address.host, str(address)
        self.address = address
        self.node_id = node_id
        self.refusals = refusals
        self._task: asyncio.Task[None] | None = None

    def begin(self, names: Names, *, asks_resolver: bool) -> None:
        """Resolve the host name, and connect to one of its addresses."""
        self._task = self.loop.create_task(self._dial(names, asks_resolver))
        self._task.add_done_callback(self._dialled)

    async def _dial(self, names: Names, asks_resolver: bool) -> None:
        try:
            found = await names.find(self.address.host, asks_resolver=asks_resolver)
        except OSError as error:
            self.loop.call_soon(self.report_end, *_told_by(error))
            return
        if not found:
            if asks_resolver:
                self.refusals.unresolved(self.node_id, self.address)
            self.loop.call_soon(
                self.report_end, End.UNRESOLVED, f"host name {self.peer_host} is not known"
            )
            return
        self.refusals.resolved(self.node_id, self.address)
        deadline_s = self.loop.time() + CONNECT_S_MAX
        failures: list[tuple[End, str]] = []
        for left, one in zip(range(len(found), 0, -1), found, strict=True):
            try:
                async with asyncio.timeout((deadline_s - self.loop.time()) / left):
                    await self._connect(one)
                return
            except OSError as error:
                failures.append(_told_by(error))
        self.loop.call_soon(self.report_end, *max(failures, key=lambda told: WEIGHT.index(told[0])))

    async def _connect(self, found: ResolvedAddress) -> None:
        """Connect to one address. Raises OSError if this fails or times out."""
        made = socket.socket(found.family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end_when_silent(made, SILENCE_MS_MAX)
            await self.loop.sock_connect(made, found.at(self.address.port))
            if is_own_end(made):
                raise ConnectionRefusedError(f"no process listens at {self.address}")
            await self.loop.create_connection(lambda: self, sock=made)
        except BaseException:
            made.close()
            raise

    def _unlinked(self, error: OSError) -> None:
        self.loop.call_soon(self.receiver.ended, End.CLOSED, str(error))

    def _dialled(self, task: asyncio.Task[None]) -> None:
        """Report an exception of the task now, because asyncio would report it only when the task
        object is deleted."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            context = {"message": f"dialling {self.address} failed", "exception": error}
            self.loop.call_exception_handler(context)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        super().close()


class DialledTlsLink(TlsLink, DialledLink):
    """A connection over TLS that this side opens. It records its failures in `refusals`, because
    its receiver does not log them."""

    def note_failure(self, error: TlsError) -> str:
        self.refusals.dialled(self.node_id, self.address, error)
        return super().note_failure(error)

    def note_first_bytes(self) -> None:
        self.refusals.works(self.node_id, self.address)

    def report_end(self, end: End, reason: str = "") -> None:
        if end is End.EOF and not self.is_established:
            self.refusals.dialled_without_end(self.node_id, self.address)
        super().report_end(end, reason)


def is_own_end(connected: socket.socket) -> bool:
    """Return True if a socket is connected to itself.

    If no process listens on a port, the kernel can choose the same port as the local port of the
    connecting socket. TCP then connects the socket to itself (simultaneous open).
    """
    return bool(connected.getsockname() == connected.getpeername())


def _told_by(error: OSError) -> tuple[End, str]:
    if isinstance(error, TimeoutError):
        return End.TIMED_OUT, ""
    # `_connect` also raises this error without an errno, for a socket that is connected to itself.
    if isinstance(error, ConnectionRefusedError):
        return End.REFUSED, ""
    end = ENDS.get(error.errno or 0)
    # Other errors, such as a lack of descriptors, ports or memory, say nothing about the peer.
    return (End.CLOSED, str(error)) if end is None else (end, "")
