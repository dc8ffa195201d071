"""One connection: asyncio's protocol on one side, a receiver such as a session on the other.

Bytes are read into one reused buffer and passed on as complete frames. Answers are sent through
`output`. There is no task, coroutine or future per request. While the receiver has paused the link,
nothing is read. All further bytes, and the peer's end, wait in the kernel.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from typing import cast

from broker.real.output import ConnectionOutput, OutputPorts, PeerTooSlow
from broker.real.warmer import Warmer
from broker.storage.errors import DiskError
from broker.world import End, Receiver
from protocol.log import fields
from protocol.security.address import bracketed, normal_host
from protocol.wire.frame import FrameBuffer

logger = logging.getLogger(__name__)

ENDS = {
    errno.ECONNREFUSED: End.REFUSED,
    errno.ECONNRESET: End.RESET,
    errno.EPIPE: End.RESET,
    errno.ETIMEDOUT: End.TIMED_OUT,
    errno.EHOSTUNREACH: End.UNREACHABLE,
    errno.ENETUNREACH: End.UNREACHABLE,
    errno.EHOSTDOWN: End.UNREACHABLE,
    errno.ENETDOWN: End.UNREACHABLE,
    # Rules of a packet filter cause these errors.
    errno.EACCES: End.UNREACHABLE,
    errno.EPERM: End.UNREACHABLE,
}
"""The ends of a link, by the error number of the socket. These errors concern the peer. All other
errors concern this machine."""


class SocketLink(asyncio.BufferedProtocol):
    """One connection, from its first byte to its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receiver: Receiver,
        warmer: Warmer,
        frame_bytes_max: int,
        unread_bytes_max: int,
    ) -> None:
        self.peer_host = "?"
        self.peer = "?"
        self.is_paused = False
        self.is_stalled = False
        self.loop = loop
        self.receiver = receiver
        self._warmer = warmer
        self._unread_bytes_max = unread_bytes_max
        self.frames = FrameBuffer(frame_bytes_max)
        self.transport: asyncio.Transport | None = None
        self.output: ConnectionOutput | None = None
        self.is_closed = False
        self._has_ended = False
        """True if the receiver was notified of the peer's end."""

    @property
    def peer_id(self) -> int | None:
        return None

    # The loop calls the following methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.is_closed:
            # Use a cast instead of a type check, because uvloop's transports have the methods but
            # not the base class.
            cast(asyncio.Transport, transport).abort()
            return
        self.transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        # ACLs, quotas and limits of addresses know an IPv4 client by its IPv4 address, also when it
        # comes to a listener on `::`.
        host = self.peer_host = normal_host(str(name[0]))
        self.peer = f"{bracketed(host)}:{name[1]}"
        fd = transport.get_extra_info("socket").fileno()
        try:
            own_fd = os.dup(fd)
        except OSError as error:
            # No file descriptor is left. End the connection, which frees its own descriptor.
            self.is_closed = True
            self.transport.abort()
            self._unlinked(error)
            return
        self.output = self.new_output(socket.socket(fileno=own_fd))
        self.receiver.linked(self)

    def new_output(self, own_socket: socket.socket) -> ConnectionOutput:
        """Return the sending half of the connection."""
        return ConnectionOutput(own_socket, self.output_ports())

    def output_ports(self) -> OutputPorts:
        """Return the objects that the sending half uses and notifies."""
        return OutputPorts(
            self.loop, self.socket_drained, self.socket_broken, self._warmer, self._unread_bytes_max
        )

    def _unlinked(self, error: OSError) -> None:
        """Log a connection that was closed because of this error before its receiver knew of it."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.receiver.take(self.frames.received(nbytes))

    def eof_received(self) -> bool:
        self.report_end(End.EOF)
        return not self.is_closed

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.is_closed:
            # After a reset, serve the requests that were received before it, as after a normal end,
            # but send no answers.
            self.mute()
            code = exc.errno if isinstance(exc, OSError) and exc.errno is not None else 0
            self.report_end(ENDS.get(code, End.RESET))

    def report_end(self, end: End, reason: str = "") -> None:
        if not self.is_closed and not self._has_ended:
            self._has_ended = True
            self.is_paused = True
            self.receiver.ended(end, reason)

    # The receiver calls the following methods.

    @property
    def held_bytes(self) -> int:
        return self.frames.capacity_bytes

    @property
    def is_in_frame(self) -> bool:
        return self.frames.pending_bytes > 0

    def left(self) -> Iterator[memoryview]:
        return self.frames.received(0)

    def send(self, chunks: Sequence[object]) -> None:
        output = self.output
        if output is None:
            return
        try:
            if chunks:
                output.push(chunks)
            self.is_stalled = not output.send()
        except PeerTooSlow as error:
            self.give_up(str(error))
        except (OSError, DiskError) as error:
            self.socket_broken(error)

    def limit_frames(self, bytes_max: int) -> None:
        self.frames.frame_bytes_max = bytes_max

    def pause(self) -> None:
        if not self.is_paused and self.transport is not None:
            self.is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        self.is_paused = False
        if self.transport is not None:
            self.transport.resume_reading()

    def shrink(self) -> None:
        self.frames.shrink()

    def mute(self) -> None:
        if self.output is not None:
            self.output.close()
            self.output = None
            self.is_stalled = False

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.transport is not None:
            self.transport.abort()
        self.mute()
        # Free the read buffer now. The other memory stays until the garbage collector runs, because
        # the connection, its transport and its output refer to each other.
        self.frames = FrameBuffer(0)

    # The output calls the following methods.

    def socket_drained(self) -> None:
        """Notify the receiver that the socket has accepted all queued bytes."""
        self.is_stalled = False
        self.receiver.drained()

    def socket_broken(self, error: Exception) -> None:
        """Handle an error while sending. Either the peer has closed, or a segment cannot be
        read."""
        if isinstance(error, ConnectionError) or getattr(error, "errno", None) in ENDS:
            # The kernel still has the bytes that the peer sent before it closed the connection, and
            # its end.
            self.mute()
            self.loop.call_soon(self.receiver.drained)
            return
        logger.warning(
            "sending to a client or broker failed; the connection is closed",
            extra=fields(peer=self.peer, reason=repr(error)),
        )
        self.give_up("")

    def give_up(self, reason: str) -> None:
        """Close the connection, and report the reason to the receiver."""
        if not self.is_closed:
            self.close()
            self.receiver.ended(End.CLOSED, reason)
