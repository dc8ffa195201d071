"""A connection over TLS: moves bytes between the socket, `tls_engine` and the frames.

The loop reads ciphertext into one buffer that all connections share, because each connection passes
it to its engine before the next read. The engine decrypts into the frame buffer of the connection.
While the receiver has paused the connection, neither the socket nor the decrypted bytes are read.
Decrypted bytes can wait in the engine while the socket is silent, so `resume` delivers them first.

The receiver gets the connection when it is accepted, so the limits on connections include
handshakes. The bytes that the receiver sends wait until the handshake is complete. A connection is
closed if its handshake takes longer than `HANDSHAKE_S_MAX`.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from broker.real.connection import SocketLink
from broker.real.handshakes import Handshakes
from broker.real.output import ConnectionOutput
from broker.real.tls_engine import TlsEngine, TlsError
from broker.real.tls_output import TlsOutput
from broker.world import End

HANDSHAKE_S_MAX = 10.0

READ_BYTES = 64 << 10
"""The largest number of ciphertext bytes in one read. OpenSSL's buffer of a busy connection grows
to this size."""

HANDSHAKE_READ_BYTES = 16 << 10
"""The largest number of ciphertext bytes in one read during the handshake.

The last read of a handshake can also contain frames, and all of its bytes are included in the size
limit of the handshake.
"""

_SCRATCH = memoryview(bytearray(READ_BYTES))
_SMALL_SCRATCH = _SCRATCH[:HANDSHAKE_READ_BYTES]


class TlsLink(SocketLink):
    """One TLS connection, which this side accepts or opens. Call `secure` before it is
    connected."""

    _engine: TlsEngine
    _handshakes: Handshakes | None
    _limit: asyncio.TimerHandle | None = None
    _is_handshake_paused = False
    """True while the handshake waits and nothing is read."""
    _has_received = False
    """True if the peer has sent at least one byte to the receiver."""

    def secure(self, engine: TlsEngine, handshakes: Handshakes | None = None) -> None:
        """Set the TLS engine.

        `handshakes` limits the handshakes of a listener. It is None on the side that opens the
        connection, which also begins the handshake.
        """
        self._engine = engine
        self._handshakes = handshakes

    # The loop calls the following methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.is_closed:
            return
        self._limit = self.loop.call_later(HANDSHAKE_S_MAX, self._late)
        if self._handshakes is None:
            self.continue_handshake()

    def new_output(self, own_socket: socket.socket) -> ConnectionOutput:
        return TlsOutput(own_socket, self.output_ports(), self._engine)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SCRATCH if self._engine.is_established else _SMALL_SCRATCH

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closed:
            return
        try:
            self._engine.feed(_SCRATCH[:nbytes])
        except TlsError as error:
            self._fail(error)
            return
        if self._engine.is_established:
            self._deliver()
        elif self._handshakes is None:
            self.continue_handshake()
        else:
            self._handshakes.step(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        super().connection_lost(exc)

    def pause_handshake(self) -> None:
        """Read nothing more until `continue_handshake` is called."""
        self._is_handshake_paused = True
        if self.transport is not None:
            self.transport.pause_reading()

    def continue_handshake(self) -> None:
        """Continue the handshake with the received bytes, and then read more."""
        if self.is_closed:
            return
        self._is_handshake_paused = False
        try:
            is_done = self._engine.handshake()
        except TlsError as error:
            self._fail(error)
            return
        self.send(())
        if is_done:
            self._end_handshake()
            # The peer can have sent its first frames together with the end of the handshake.
            self._deliver()
        self._read_socket()

    def _end_handshake(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
            if self._handshakes is not None:
                self._handshakes.leave(self)

    def _late(self) -> None:
        self._fail(TlsError(f"the handshake was not complete after {HANDSHAKE_S_MAX:g} s"))

    def reject_handshake(self) -> None:
        """Close the connection, because other connections wait for its slot."""
        self._fail(TlsError("the handshake was slow while others waited for its place"))

    def _fail(self, error: TlsError) -> None:
        """Close the connection. The alert that tells the peer why is sent if the socket accepts it
        at once."""
        if not self.is_closed:
            self.send(())
            self.give_up(self.note_failure(error))

    def note_failure(self, error: TlsError) -> str:
        """Return the reason for which the connection ends, as the receiver gets it. A subclass also
        records the failure."""
        return f"TLS: {error}"

    def note_first_bytes(self) -> None:
        """Take notice of the peer's first bytes, which show that the peer accepts this side."""

    def _deliver(self) -> None:
        """Pass the decrypted frames to the receiver until it pauses."""
        try:
            while not (self.is_paused or self.is_closed):
                count = self._engine.read_into(self.frames.get_buffer())
                if not count:
                    break
                if not self._has_received:
                    self._has_received = True
                    self.note_first_bytes()
                self.receiver.take(self.frames.received(count))
        except TlsError as error:
            self._fail(error)
        if self.is_closed:
            return
        if self._engine.has_sealed:
            # TLS itself answers some messages, such as an update of the keys.
            self.send(())
        if self._engine.has_ended and not self.is_paused:
            self.report_end(End.EOF)

    def _resumed(self) -> None:
        self._deliver()
        self._read_socket()

    def _read_socket(self) -> None:
        if self.transport is not None and not (self.is_paused or self.is_closed):
            self.transport.resume_reading()

    # The receiver calls the following methods.

    @property
    def peer_id(self) -> int | None:
        return self._engine.peer_id

    @property
    def is_established(self) -> bool:
        """True if the handshake is complete."""
        return self._engine.is_established

    @property
    def held_bytes(self) -> int:
        return self.frames.capacity_bytes + self._engine.held_bytes

    def resume(self) -> None:
        self.is_paused = False
        if self._engine.held_bytes or self._engine.has_ended:
            if self._engine.is_established:
                # Continue in the next iteration of the loop, because the receiver can call this
                # while it takes frames.
                self.loop.call_soon(self._resumed)
        elif not self._is_handshake_paused:
            self._read_socket()

    def close(self) -> None:
        if self.is_closed:
            return
        self._end_handshake()
        if self.output is not None and self._engine.is_established and not self.is_stalled:
            self._engine.say_end()
            with suppress(OSError):
                self.output.send()
        super().close()
        self._engine.release()
