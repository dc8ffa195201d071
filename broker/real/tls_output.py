"""The queue of one TLS connection, which encrypts bytes only when the socket can accept them.

At most `SEAL_BYTES_MAX` are encrypted ahead, so `connection.max.unread.bytes` limits the same bytes
as without TLS. sendfile cannot be used: regions of files are read in parts, after a thread has read
the data that is not in the page cache. Nothing is sent before the handshake is complete.
"""

from __future__ import annotations

import socket

from broker.real.output import TURN_BYTES_MAX, ConnectionOutput, OutputPorts
from broker.real.tls_engine import TlsEngine
from broker.storage.disk import FileRegion

SEAL_BYTES_MAX = 64 << 10
"""The largest number of plain bytes that are encrypted at once.

The memory buffers of OpenSSL never shrink. So each connection that has once sent this many bytes
keeps this memory.
"""


class TlsOutput(ConnectionOutput):
    """The sending half of one TLS connection."""

    __slots__ = ("_engine", "_plain_bytes", "_sealed")

    def __init__(self, own_socket: socket.socket, ports: OutputPorts, engine: TlsEngine) -> None:
        super().__init__(own_socket, ports)
        self._engine = engine
        self._sealed = memoryview(b"")
        """The ciphertext that the socket has not accepted yet."""
        self._plain_bytes = 0
        """The number of plain bytes in `_sealed`."""

    def send(self) -> bool:
        """Encrypt and send bytes, as `ConnectionOutput.send` does. Raises TlsError."""
        if self._is_waiting or self._is_scheduled:
            return self._is_empty
        budget = TURN_BYTES_MAX
        while not self._is_empty:
            if budget <= 0:
                self._is_scheduled = True
                self.loop.call_soon(self.next_turn)
                return False
            if not self._sealed:
                if self._engine.has_sealed:
                    self._sealed = memoryview(self._engine.take_sealed())
                elif not self._engine.is_established or not self._seal_next():
                    return False
            try:
                sent = self.own_socket.send(self._sealed)
            except (BlockingIOError, InterruptedError):
                self._is_waiting = True
                self.loop.add_writer(self.own_socket.fileno(), self.writable)
                return False
            budget -= sent
            self._sealed = self._sealed[sent:]
            if not self._sealed:
                self._memory_bytes -= self._plain_bytes
                self._plain_bytes = 0
        return True

    @property
    def _is_empty(self) -> bool:
        return not (self.queue or self._sealed or self._engine.has_sealed)

    def _seal_next(self) -> bool:
        """Encrypt the first chunks of the queue. Return False if a thread must read the first one
        from the disk before."""
        queue = self.queue
        pieces: list[bytes | bytearray | memoryview] = []
        size = 0
        while queue and size < SEAL_BYTES_MAX:
            piece = queue[0]
            if isinstance(piece, FileRegion):
                if pieces and piece is not self._warmed and self.warm.is_cold(piece):
                    break
                if not pieces and self.must_warm(piece):
                    return False
                piece = self._read_part(piece, SEAL_BYTES_MAX - size)
            else:
                queue.popleft()
                if size + len(piece) > SEAL_BYTES_MAX:
                    view = memoryview(piece)
                    queue.appendleft(view[SEAL_BYTES_MAX - size :])
                    piece = view[: SEAL_BYTES_MAX - size]
            pieces.append(piece)
            size += len(piece)
        self._plain_bytes = size
        joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._sealed = memoryview(self._engine.seal(joined))
        return True

    def _read_part(self, region: FileRegion, count_max: int) -> bytes:
        """Return the first bytes of the first region, and leave the remaining region in the
        queue."""
        count = min(len(region), count_max)
        data = region.file.read(count, region.position)
        if len(data) < count:
            raise OSError(f"{region.file.path} is shorter than the part that must be sent from it")
        self._memory_bytes += count
        self.queue.popleft()
        if count < len(region):
            rest = FileRegion(region.file, region.position + count, len(region) - count)
            self.queue.appendleft(rest)
            if self._warmed is region:
                self._warmed = rest
        return data
