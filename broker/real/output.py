"""Everything one connection still has to send, on the descriptor itself.

Floor: real. asyncio's transports copy what they are given and hide the socket that sendfile
needs; so nothing is ever written through them. Small pieces, and regions too small for sendfile,
are joined into one send; large regions go from the page cache to the socket. What is not in the
page cache is first read by a thread, for the loop must not wait for a disk. The work of one turn is
capped, so that a large answer does not hold up the small ones of others.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.storage.disk import FileRegion
from broker.storage.errors import DiskError

SENDFILE_BYTES_MIN = 128 << 10
JOIN_BYTES_MAX = 256 << 10
TURN_BYTES_MAX = 1 << 20


class Warm(Protocol):
    """Brings stretches of files into the page cache."""

    def is_cold(self, region: FileRegion) -> bool:
        """Whether reading the region may have to wait for the disk."""

    def warm(self, region: FileRegion, done: Callable[[], None]) -> None:
        """Read the region in a thread, then call `done` in the loop."""


_Piece = bytes | bytearray | memoryview | FileRegion


class PeerTooSlow(Exception):
    """The peer does not read its answers; they would fill the memory."""


class Output:
    """The sending half of one connection. `socket` is our own duplicate of its descriptor."""

    __slots__ = (
        "_is_closed",
        "_is_scheduled",
        "_is_waiting",
        "_loop",
        "_memory_bytes",
        "_memory_bytes_max",
        "_on_broken",
        "_on_drained",
        "_queue",
        "_socket",
        "_warm",
        "_warmed",
    )

    def __init__(
        self,
        own_socket: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_drained: Callable[[], None],
        on_broken: Callable[[Exception], None],
        warm: Warm,
        memory_bytes_max: int,
    ) -> None:
        """Beyond `memory_bytes_max` of answers that the peer does not read `push` gives up."""
        self._memory_bytes_max = memory_bytes_max
        self._socket = own_socket
        self._loop = loop
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._warm = warm
        self._warmed: FileRegion | None = None
        """The stretch a thread has read just now; it is sent, cold or not."""
        self._queue: deque[_Piece] = deque()
        self._memory_bytes = 0
        self._is_waiting = False
        self._is_scheduled = False
        self._is_closed = False

    def push(self, chunks: Sequence[object]) -> None:
        """Queue the pieces of answers; `send` sets them on their way. Raises PeerTooSlow."""
        for chunk in chunks:
            piece: _Piece = chunk  # type: ignore[assignment]  # those alone are given to links
            if not len(piece):
                continue
            self._queue.append(piece)
            if not isinstance(piece, FileRegion):
                self._memory_bytes += len(piece)
        if self._memory_bytes > self._memory_bytes_max:
            raise PeerTooSlow(
                f"connection.max.unread.bytes {self._memory_bytes_max} of answers are not read"
            )

    def send(self) -> bool:
        """Send as much as the socket takes, up to a turn's worth; the rest follows by itself.

        Whether everything has left; else `on_drained` is called when it has.
        """
        if self._is_waiting or self._is_scheduled:
            return not self._queue
        budget = TURN_BYTES_MAX
        while self._queue:
            if budget <= 0:
                self._is_scheduled = True
                self._loop.call_soon(self._next_turn)
                return False
            head = self._queue[0]
            try:
                if not isinstance(head, FileRegion):
                    budget -= self._send_joined()
                elif self._must_warm(head):
                    return False
                else:
                    budget -= self._send_region(head, budget)
            except (BlockingIOError, InterruptedError):
                self._is_waiting = True
                self._loop.add_writer(self._socket.fileno(), self._writable)
                return False
        return True

    def _must_warm(self, head: FileRegion) -> bool:
        """Whether the region at the head is cold; its first stretch is being read then."""
        if head is self._warmed:
            return False
        self._warmed = None
        if not self._warm.is_cold(head):
            return False
        if len(head) > TURN_BYTES_MAX:
            # Cut, so that what has been read is sent before it may be dropped again.
            first = FileRegion(head.file, head.position, TURN_BYTES_MAX)
            rest_position = head.position + TURN_BYTES_MAX
            self._queue[0] = FileRegion(head.file, rest_position, len(head) - TURN_BYTES_MAX)
            self._queue.appendleft(first)
            head = first
        self._warmed = head
        self._is_scheduled = True
        self._warm.warm(head, self._next_turn)
        return True

    def _send_region(self, region: FileRegion, budget: int) -> int:
        """Send of the region at the head: a small one with what follows, a large one by itself."""
        if len(region) < SENDFILE_BYTES_MIN:
            return self._send_joined()
        count = min(len(region), max(budget, SENDFILE_BYTES_MIN))
        sent = os.sendfile(self._socket.fileno(), region.fd, region.position, count)
        if sent == 0:
            raise OSError(f"{region.file.path} ends inside a region that was promised")
        self._queue.popleft()
        if sent < len(region):
            rest = FileRegion(region.file, region.position + sent, len(region) - sent)
            self._queue.appendleft(rest)
            if self._warmed is region:
                self._warmed = rest
        return sent

    def _send_joined(self) -> int:
        """One send of everything at the head that is small."""
        queue = self._queue
        pieces: list[bytes | bytearray | memoryview] = []
        size = 0
        while queue and size < JOIN_BYTES_MAX:
            piece = queue[0]
            if isinstance(piece, FileRegion):
                if len(piece) >= SENDFILE_BYTES_MIN or (pieces and self._warm.is_cold(piece)):
                    break
                data = piece.read()
                if len(data) < len(piece):
                    raise OSError(f"{piece.file.path} ends inside a region that was promised")
                self._memory_bytes += len(data)
                piece = data
            queue.popleft()
            pieces.append(piece)
            size += len(piece)
        joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        # What follows belongs to the same answer: let the kernel fill its segments.
        flags = socket.MSG_MORE if queue else 0
        try:
            sent = self._socket.send(joined, flags)
        except (BlockingIOError, InterruptedError):
            queue.appendleft(joined)
            raise
        self._memory_bytes -= sent
        if sent < size:
            queue.appendleft(memoryview(joined)[sent:])
        return sent

    def _next_turn(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self._go_on()

    def _writable(self) -> None:
        self._stop_waiting()
        self._go_on()

    def _go_on(self) -> None:
        try:
            has_left = self.send()
        except (OSError, DiskError) as error:
            self._on_broken(error)
            return
        if has_left:
            self._on_drained()

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Forget everything and close the descriptor."""
        self._is_closed = True
        self._stop_waiting()
        self._queue.clear()
        self._memory_bytes = 0
        self._socket.close()
