"""Bytes in, whole frames out: the reading half of a connection, without the socket.

Floor: wire. Pure. Made for `asyncio.BufferedProtocol`: the loop reads into what `get_buffer` gives
and reports by `received`, which yields every frame that is complete, without its size, as a view of
the one buffer that is used again and again.

How long a view lives: until the next `get_buffer` or `shrink`, so whoever settles a frame at once
need do nothing, and whoever does not copies it.

How much is allocated: small frames are read greedily, many at a time. The buffer begins small, for
a thousand clients that say little, and becomes four times as large whenever a read has filled it,
up to `read_bytes`. A larger frame grows the buffer as its bytes arrive, by doubling, never from the
announced size alone; what is left of it is then read exactly to its end, so that nothing behind it
has to be moved. A size that is negative or above `frame_bytes_max` is refused when its four bytes
are there. A buffer that has grown shrinks after some small reads, or at once by `shrink`.
"""

from collections.abc import Iterator
from struct import Struct as Packed

from protocol.errors import FrameTooLarge

READ_BYTES = 256 << 10
"""The usual buffer of a busy connection, and so the most that one read of small frames brings."""

FIRST_READ_BYTES = 16 << 10
"""The buffer of a connection of which nothing is known yet, or that was silent."""

SIZE_BYTES = 4

_SIZE = Packed(">i")
_ROOM_BYTES_MIN = 16 << 10
_SMALL_READS_BEFORE_SHRINKING = 32


class FrameBuffer:
    """One connection's incoming bytes.

    `frame_bytes_max` may be changed at any time and holds for the sizes seen from then on.
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
        """How much memory the buffer takes."""
        # Here begins what is received and not yet given out.
        self._start = 0
        self.pending_bytes = 0
        """How much of that there is; between two reads it is the beginning of a frame, which is
        what a time limit for slow senders looks at."""
        # What the first unfinished frame takes, its size included; 0 while that is not known.
        self._needed = 0
        self._small_reads = 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Room for the next read, never empty. Ends the life of all views."""
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
        """Room for a frame beyond the usual buffer: to its end, or as far as its bytes justify."""
        needed = self._needed
        if self._start + needed > self.capacity_bytes:
            if needed <= self.capacity_bytes:
                self._move(pending, needed)
            elif self._start or pending == self.capacity_bytes:
                self._move(pending, min(needed, max(2 * pending, self._usual)))
        return self._view[self._start + pending : self._start + needed]

    def _move(self, pending: int, capacity: int) -> None:
        """Bring what is unfinished to the front; to a fresh buffer if this one is too small."""
        unfinished = self._view[self._start : self._start + pending]
        if capacity > self.capacity_bytes:
            self._use(bytearray(capacity))
        self._view[:pending] = unfinished
        self._start = 0

    def received(self, count: int) -> Iterator[memoryview]:
        """Note that `count` bytes were read; yields the frames that are complete.

        Stop early if you like: what is left comes with the next call, for which `count` may be 0.
        FrameTooLarge means the connection is of no more use.
        """
        self.pending_bytes += count
        is_full = self._start + self.pending_bytes == self.capacity_bytes
        if is_full and self._usual < self.read_bytes:
            # There was more to read than room: let the next read bring more at a time.
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
                    raise FrameTooLarge(
                        f"a frame of {size} bytes, at most {self.frame_bytes_max} are read"
                    )
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
        """Give the memory back if nothing is pending; for connections that fell idle."""
        if not self.pending_bytes:
            self._usual = min(FIRST_READ_BYTES, self.read_bytes)
            self._begin_anew(bytearray())

    def _maybe_shrink(self) -> None:
        """Drop a grown buffer once enough reads in a row could have done without it."""
        self._small_reads += 1
        if self._small_reads >= _SMALL_READS_BEFORE_SHRINKING:
            self._begin_anew(bytearray(self._usual))

    def _begin_anew(self, buffer: bytearray) -> None:
        """Go on in another buffer; nothing may be pending."""
        self._use(buffer)
        self._start = 0
        self._small_reads = 0

    def _use(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self.capacity_bytes = len(buffer)
