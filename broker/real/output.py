"""The queue of the bytes that one connection must still send.

asyncio's transports copy their data and hide the socket that sendfile needs, so nothing is ever
written through them. Small chunks, and file regions too small for sendfile, are joined into one
send. Large regions go from the page cache directly to the socket. A thread first reads the data
that is not in the page cache, because the loop must not wait for a disk. The bytes that are sent in
one iteration of the loop are limited, so that a large answer does not delay small answers of other
connections.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker.storage.disk import FileRegion
from broker.storage.errors import DiskError

SENDFILE_BYTES_MIN = 128 << 10
JOIN_BYTES_MAX = 256 << 10
TURN_BYTES_MAX = 1 << 20


class Warm(Protocol):
    """The interface to the thread that loads regions of files into the page cache (`warmer`)."""

    def is_cold(self, region: FileRegion) -> bool:
        """Return True if a read of the region might wait for the disk."""

    def warm(self, region: FileRegion, done: Callable[[], None]) -> None:
        """Read the region in a thread, then call `done` in the loop."""


_Piece = bytes | bytearray | memoryview | FileRegion


class PeerTooSlow(Exception):
    """The peer does not read its answers, which would fill the memory."""


class OutputPorts(NamedTuple):
    """The objects that the output of a connection uses and notifies.

    If the peer leaves more than `memory_bytes_max` unread, `push` raises PeerTooSlow.
    """

    loop: asyncio.AbstractEventLoop
    on_drained: Callable[[], None]
    """Called when the queue is empty, after a `send` that could not send all of it."""
    on_broken: Callable[[Exception], None]
    """Called with the error if the remaining bytes cannot be sent."""
    warm: Warm
    memory_bytes_max: int


class ConnectionOutput:
    """The sending half of one connection. `own_socket` has a duplicate of its descriptor."""

    __slots__ = (
        "_is_closed",
        "_is_scheduled",
        "_is_waiting",
        "_memory_bytes",
        "_ports",
        "_warmed",
        "loop",
        "own_socket",
        "queue",
        "warm",
    )

    def __init__(self, own_socket: socket.socket, ports: OutputPorts) -> None:
        self.own_socket = own_socket
        self._ports = ports
        self.loop = ports.loop
        self.warm = ports.warm
        self._warmed: FileRegion | None = None
        """The region that a thread has just read. It is sent even if the page cache has dropped its
        data again."""
        self.queue: deque[_Piece] = deque()
        self._memory_bytes = 0
        self._is_waiting = False
        self._is_scheduled = False
        self._is_closed = False

    def push(self, chunks: Sequence[object]) -> None:
        """Add the chunks of answers to the queue. `send` sends them.

        Raises PeerTooSlow if the peer leaves too many bytes unread.
        """
        for chunk in chunks:
            piece: _Piece = chunk  # type: ignore[assignment]  # those alone are given to links
            if not len(piece):
                continue
            self.queue.append(piece)
            if not isinstance(piece, FileRegion):
                self._memory_bytes += len(piece)
        limit = self._ports.memory_bytes_max
        if self._memory_bytes > limit:
            raise PeerTooSlow(
                "the client does not read its answers: more than "
                f"connection.max.unread.bytes={limit} "
                "bytes wait for it"
            )

    def send(self) -> bool:
        """Send as much as the socket accepts, up to the limit of one iteration of the loop.

        Return True if the queue is empty. Otherwise the remaining bytes are sent automatically
        later, and then `on_drained` is called.
        """
        if self._is_waiting or self._is_scheduled:
            return not self.queue
        budget = TURN_BYTES_MAX
        while self.queue:
            if budget <= 0:
                self._is_scheduled = True
                self.loop.call_soon(self.next_turn)
                return False
            head = self.queue[0]
            try:
                if not isinstance(head, FileRegion):
                    budget -= self._send_joined()
                elif self.must_warm(head):
                    return False
                else:
                    budget -= self._send_region(head, budget)
            except (BlockingIOError, InterruptedError):
                self._is_waiting = True
                self.loop.add_writer(self.own_socket.fileno(), self.writable)
                return False
        return True

    def must_warm(self, head: FileRegion) -> bool:
        """Return True if the first region is not in the page cache. A thread then reads its first
        part."""
        if head is self._warmed:
            return False
        self._warmed = None
        if not self.warm.is_cold(head):
            return False
        if len(head) > TURN_BYTES_MAX:
            # Split the region, so that the part that was read is sent before the cache can drop it.
            first = FileRegion(head.file, head.position, TURN_BYTES_MAX)
            rest_position = head.position + TURN_BYTES_MAX
            self.queue[0] = FileRegion(head.file, rest_position, len(head) - TURN_BYTES_MAX)
            self.queue.appendleft(first)
            head = first
        self._warmed = head
        self._is_scheduled = True
        self.warm.warm(head, self.next_turn)
        return True

    def _send_region(self, region: FileRegion, budget: int) -> int:
        """Send part of the first region, or a small region together with the next chunks. Return
        the number of sent bytes."""
        if len(region) < SENDFILE_BYTES_MIN:
            return self._send_joined()
        count = min(len(region), max(budget, SENDFILE_BYTES_MIN))
        sent = os.sendfile(self.own_socket.fileno(), region.fd, region.position, count)
        if sent == 0:
            raise OSError(f"{region.file.path} is shorter than the part that must be sent from it")
        self.queue.popleft()
        if sent < len(region):
            rest = FileRegion(region.file, region.position + sent, len(region) - sent)
            self.queue.appendleft(rest)
            if self._warmed is region:
                self._warmed = rest
        return sent

    def _send_joined(self) -> int:
        """Send all small chunks at the front of the queue with one call. Return the number of sent
        bytes."""
        queue = self.queue
        pieces: list[bytes | bytearray | memoryview] = []
        size = 0
        while queue and size < JOIN_BYTES_MAX:
            piece = queue[0]
            if isinstance(piece, FileRegion):
                if len(piece) >= SENDFILE_BYTES_MIN or (pieces and self.warm.is_cold(piece)):
                    break
                data = piece.read()
                if len(data) < len(piece):
                    raise OSError(
                        f"{piece.file.path} is shorter than the part that must be sent from it"
                    )
                self._memory_bytes += len(data)
                piece = data
            queue.popleft()
            pieces.append(piece)
            size += len(piece)
        joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        # More of the same answer follows, so the kernel can fill its TCP segments.
        flags = socket.MSG_MORE if queue else 0
        try:
            sent = self.own_socket.send(joined, flags)
        except (BlockingIOError, InterruptedError):
            queue.appendleft(joined)
            raise
        self._memory_bytes -= sent
        if sent < size:
            queue.appendleft(memoryview(joined)[sent:])
        return sent

    def next_turn(self) -> None:
        """Send more in a later iteration of the loop."""
        self._is_scheduled = False
        if not self._is_closed:
            self._go_on()

    def writable(self) -> None:
        """Send more, because the socket can accept bytes again."""
        self._stop_waiting()
        self._go_on()

    def _go_on(self) -> None:
        try:
            has_left = self.send()
        except (OSError, DiskError) as error:
            self._ports.on_broken(error)
            return
        if has_left:
            self._ports.on_drained()

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self.loop.remove_writer(self.own_socket.fileno())

    def close(self) -> None:
        """Drop the queue and close the descriptor."""
        self._is_closed = True
        self._stop_waiting()
        self.queue.clear()
        self._memory_bytes = 0
        self.own_socket.close()
