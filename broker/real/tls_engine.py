"""TLS of one connection without its socket: encrypts and decrypts bytes.

This module is pure. OpenSSL works on two memory buffers (`ssl.MemoryBIO`), and `tls_link` moves
bytes between them and the socket. asyncio's own TLS is not used, because it wraps the transport.
Answers are written to the socket without the transport (`output`), so they would be sent in plain
text (decision 0125).

Call `feed` and `handshake` until `is_established`. Then call `feed`, `read_into` and `seal`. After
every call, send the bytes that `take_sealed` returns. After a TlsError, close the connection. In
this case `take_sealed` returns an alert that tells the peer the reason.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from broker.security.broker_identity import WrongBroker

HANDSHAKE_BYTES_MAX = 64 << 10
"""The largest number of bytes that a peer may send before the handshake is complete. A chain of
certificates has a few KiB."""

HANDSHAKE_RECORD = 0x16
"""The first byte of every TLS connection, in all versions."""

ALERT_RECORD = 0x15
"""The first byte of a server that refuses the client's first message."""

PeerCheck = Callable[[dict[str, Any] | None], int]
"""A function that gets the peer's verified certificate, and returns the id of the broker to which
it belongs. Raises WrongBroker."""


class TlsError(OSError):
    """The handshake failed, or received bytes cannot be decrypted. The text is for the log.

    It is an OSError, as `ssl.SSLError` is, because a link treats it as a failure of its socket.
    """


class CertificateRefused(TlsError):
    """This side refuses the peer's certificate. `reason` is OpenSSL's message, or the text of
    WrongBroker if `is_wrong_broker`."""

    def __init__(self, reason: str, *, is_wrong_broker: bool = False) -> None:
        super().__init__(f"the certificate is refused: {reason}")
        self.reason = reason
        self.is_wrong_broker = is_wrong_broker


class RefusedByPeer(TlsError):
    """The peer has refused this side with an alert, for example because of its certificate."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the other side has refused: {reason}")
        self.reason = reason


class WithoutTls(TlsError):
    """The peer does not speak TLS."""


class TlsEngine:
    """One side of one TLS connection, from its first byte to its end."""

    __slots__ = (
        "_check_peer",
        "_handshake_bytes",
        "_incoming",
        "_is_server",
        "_outgoing",
        "_tls",
        "has_ended",
        "is_established",
        "peer_id",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_name: str | None = None,
        check_peer: PeerCheck | None = None,
    ) -> None:
        """`server_name` is the name that the server's certificate must have. It is None on the
        server's side."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_server = server_name is None
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, self._is_server, server_hostname=server_name
        )
        self._check_peer = check_peer
        self._handshake_bytes = 0
        self.is_established = False
        """True when the handshake is complete and the peer has passed the check."""
        self.peer_id: int | None = None
        """The id of the broker that the peer's certificate proves; None if no certificate is
        checked."""
        self.has_ended = False
        """True when the peer has announced that it sends no more (close_notify)."""

    @property
    def held_bytes(self) -> int:
        """The number of received bytes that were not read yet."""
        return self._incoming.pending + self._tls.pending()

    def feed(self, data: memoryview) -> None:
        """Pass received bytes to the engine. Raises TlsError if the peer does not use TLS."""
        if not self.is_established:
            if not self._handshake_bytes and not self._is_tls(data[0]):
                raise WithoutTls(_without_tls(bytes(data[:8]), is_server=self._is_server))
            self._handshake_bytes += len(data)
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise TlsError(
                    f"the peer sent a TLS handshake of more than {HANDSHAKE_BYTES_MAX} bytes"
                )
        self._incoming.write(data)

    def _is_tls(self, first: int) -> bool:
        return first == HANDSHAKE_RECORD or (first == ALERT_RECORD and not self._is_server)

    def handshake(self) -> bool:
        """Continue the handshake with the bytes that were passed to `feed`. Return True when it is
        complete. Raises TlsError if it fails."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise _tls_error(error) from error
        if self._check_peer is not None:
            try:
                self.peer_id = self._check_peer(self._tls.getpeercert())
            except WrongBroker as error:
                raise CertificateRefused(str(error), is_wrong_broker=True) from error
        self.is_established = True
        return True

    def read_into(self, room: memoryview) -> int:
        """Decrypt into `room`. Return the number of bytes; 0 if there are none. Raises TlsError.

        Call this until it returns 0, because one read of the socket can bring several records.
        """
        count = 0
        try:
            while count < len(room) and self.held_bytes:
                # With a buffer, `read` returns a number. The type stubs of SSLObject do not say
                # this.
                read = cast(int, self._tls.read(len(room) - count, room[count:]))
                if not read:
                    self.has_ended = True
                    break
                count += read
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except ssl.SSLError as error:
            raise _tls_error(error) from error
        return count

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the ciphertext of these bytes. Raises TlsError."""
        try:
            done = self._tls.write(data)
            if done < len(data):
                # OpenSSL encrypts one record at a time.
                view = memoryview(data)
                while done < len(view):
                    done += self._tls.write(view[done:])
        except ssl.SSLError as error:
            raise _tls_error(error) from error
        return self._outgoing.read()

    def say_end(self) -> None:
        """Tell the peer that this side sends nothing more (close_notify)."""
        # `unwrap` always raises, because the peer has not answered yet.
        with suppress(ssl.SSLError):
            self._tls.unwrap()

    def release(self) -> None:
        """Free OpenSSL's memory now. The engine cannot be used any more."""
        del self._tls, self._incoming, self._outgoing

    @property
    def has_sealed(self) -> bool:
        """True if bytes of the handshake, an alert or another message of TLS must be sent."""
        return self._outgoing.pending > 0

    def take_sealed(self) -> bytes:
        """Return the bytes that TLS itself must send."""
        return self._outgoing.read()


def error_text(error: Exception) -> str:
    """Return OpenSSL's reason, without its module and line number."""
    return str(_tls_error(error))


def _tls_error(error: Exception) -> TlsError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateRefused(error.verify_message)
    reason = getattr(error, "reason", None)
    if not reason:
        return TlsError(str(error))
    text = str(reason).lower().replace("_", " ")
    return RefusedByPeer(text) if " alert " in f" {text} " else TlsError(text)


def _without_tls(first: bytes, *, is_server: bool) -> str:
    if not is_server:
        return "the other side does not speak TLS; check the port and its security protocol"
    if first.split(b" ")[0] in (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS"):
        return "an HTTP request came to a listener for Kafka clients over TLS"
    return (
        "a client without TLS came to a TLS listener; set security.protocol=SSL in it,"
        " or SASL_SSL where clients must log in"
    )
