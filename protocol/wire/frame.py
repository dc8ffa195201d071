"""The reading half of a connection without its socket: bytes in, whole frames out.

This module is pure. It is made for `asyncio.BufferedProtocol`: the loop reads into the buffer from
`get_buffer` and calls `received`. That call yields every complete frame, without its size, as a
view of the buffer. The buffer is reused.

Lifetime of a view: until the next `get_buffer` or `shrink`. A caller that needs it longer must copy
it.

Allocation: many small frames are read at once. The buffer starts small, for a thousand clients that
send little. It grows fourfold whenever a read has filled it, up to `read_bytes`. For a larger frame
the buffer doubles as bytes arrive; the declared size alone never makes it grow. The rest of that
frame is read exactly to its end, so no bytes after it must be moved. A size that is negative or
above `frame_bytes_max` is refused as soon as its four bytes have arrived. A grown buffer shrinks
after some small reads, or at once by `shrink`.
"""

from collections.abc import Iterator
from struct import Struct as Packed

from protocol.errors import FrameTooLarge

READ_BYTES = 256 << 10
"""The usual buffer size of a busy connection, and so the most that one read of small frames
returns."""

FIRST_READ_BYTES = 16 << 10
"""The buffer size of a connection that is new or has sent nothing for a while."""

SIZE_BYTES = 4

_SIZE = Packed(">i")
_TLS_HELLO = 0x160301
"""The first bytes of a TLS connection: the type of a handshake record, and a version."""
_ROOM_BYTES_MIN = 16 << 10
_SMALL_READS_BEFORE_SHRINKING = 32


class FrameBuffer:
    """The incoming bytes of one connection.

    `frame_bytes_max` can be changed at any time. It applies to frames whose size is read after the
    change.
    """

    __slots__ = (
        "_buffer", "_needed", "_small_reads", "_start", "_usual", "_view", "capacity_bytes",
        "frame_bytes_max", "pending_bytes", "read_bytes",
    )  # fmt: skip

    def __init__(self, frame_bytes_max: int, read_bytes: int = READ_BYTES) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.read_bytes = read_bytes
        self._usual = min(FIRST_READ_BYTES, read_bytes)
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self.capacity_bytes = 0
        """The number of bytes that the buffer takes in memory."""
        # The start of the received bytes that are not returned yet.
        self._start = 0
        self.pending_bytes = 0
        """The number of received bytes that are not returned yet.

        Between two reads they are the start of a frame. A time limit for slow senders checks this
        value.
        """
        # The size of the first incomplete frame with its length field; 0 while the size is unknown.
        self._needed = 0
        self._small_reads = 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the free part of the buffer for the next read, never empty.

        All views become invalid.
        """
        pending = self.pending_bytes
        if not pending:
            self._start = 0
            if self.capacity_bytes > self._usual:
                self._maybe_shrink()
        if self._needed > self._usual:
            return self._room_for_large(pending)
        room_min = min(_ROOM_BYTES_MIN, self._usual // 4)
        capacity = self.capacity_bytes
        if (
            capacity - self._start - pending < room_min
            or self._start + self._needed > capacity
            or capacity < self._usual
        ):
            self._move(pending, max(self._usual, pending + room_min))
        return self._view[self._start + pending :]

    def _room_for_large(self, pending: int) -> memoryview:
        """Return room for a frame larger than the usual buffer: up to its end, or in doubling
        steps."""
        needed = self._needed
        if self._start + needed > self.capacity_bytes:
            if needed <= self.capacity_bytes:
                self._move(pending, needed)
            elif self._start or pending == self.capacity_bytes:
                self._move(pending, min(needed, max(2 * pending, self._usual)))
        return self._view[self._start + pending : self._start + needed]

    def _move(self, pending: int, capacity: int) -> None:
        """Move the bytes of an incomplete frame to the front, into a larger buffer if needed."""
        unfinished = self._view[self._start : self._start + pending]
        if capacity > self.capacity_bytes:
            self._use(bytearray(capacity))
        self._view[:pending] = unfinished
        self._start = 0

    def received(self, count: int) -> Iterator[memoryview]:
        """Add `count` bytes that were read into the buffer, and yield the complete frames.

        The caller can stop early. The remaining frames then come with the next call, whose `count`
        can be 0. After FrameTooLarge the connection must be closed.
        """
        self.pending_bytes += count
        is_full = self._start + self.pending_bytes == self.capacity_bytes
        if is_full and self._usual < self.read_bytes:
            # The read has filled the buffer, so more bytes may wait. Make the next read larger.
            self._usual = min(4 * self._usual, self.read_bytes)
        return self._frames()

    def _frames(self) -> Iterator[memoryview]:
        while True:
            pending = self.pending_bytes
            if not self._needed:
                if pending < SIZE_BYTES:
                    return
                (size,) = _SIZE.unpack_from(self._buffer, self._start)
                if not 0 <= size <= self.frame_bytes_max:
                    text = f"a frame has {size} bytes, expected at most {self.frame_bytes_max}"
                    if size >> 8 == _TLS_HELLO:
                        text = "a client speaks TLS, but this listener does not"
                    raise FrameTooLarge(text)
                self._needed = SIZE_BYTES + size
                if self._needed > self._usual:
                    self._small_reads = 0
            if pending < self._needed:
                return
            frame_start = self._start + SIZE_BYTES
            self._start += self._needed
            self.pending_bytes = pending - self._needed
            self._needed = 0
            yield self._view[frame_start : self._start]

    def shrink(self) -> None:
        """Release the memory of an idle connection, if no bytes are pending."""
        if not self.pending_bytes:
            self._usual = min(FIRST_READ_BYTES, self.read_bytes)
            self._begin_anew(bytearray())

    def _maybe_shrink(self) -> None:
        """Replace a grown buffer after enough successive reads that did not need its size."""
        self._small_reads += 1
        if self._small_reads >= _SMALL_READS_BEFORE_SHRINKING:
            self._begin_anew(bytearray(self._usual))

    def _begin_anew(self, buffer: bytearray) -> None:
        """Continue with another buffer. No bytes may be pending."""
        self._use(buffer)
        self._start = 0
        self._small_reads = 0

    def _use(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self.capacity_bytes = len(buffer)
