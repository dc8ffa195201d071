"""A certificate, its key and its CA: reads the files and makes TLS contexts.

This module needs only `ssl`, because a broker should load no larger library. `certificates` uses it
for the listeners of clients, and `link_certificates` for the connections between brokers.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from broker.config import TlsFiles
from broker.real.tls_engine import TlsEngine, TlsError, error_text
from broker.settings import Fault

PEM_BYTES_MAX = 1 << 20

REPLACE = "a certificate that is valid now; `millrace cert renew` makes one"


class WrongCertificate(Exception):
    """A certificate, key or CA file that cannot be used."""

    def __init__(self, key: str, found: str, expected: str) -> None:
        super().__init__(f"{key}: found {found}, expected {expected}")
        self.fault: Fault = (key, found, expected)


class PemFiles:
    """The files of one section of the settings, such as `tls`."""

    def __init__(self, files: TlsFiles, section: str) -> None:
        self.files = files
        self.certificate_key = f"{section}.certificate"
        self.private_key = f"{section}.key"
        self.ca_key = f"{section}.ca"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        files = self.files
        return tuple(path for path in (files.certificate, files.key, files.ca) if path)

    def context(self, protocol: int) -> ssl.SSLContext:
        """Return a context with the certificate and its key. Raises WrongCertificate, or OSError if
        a file was replaced while it was read."""
        files = self.files
        _check_text(
            self.certificate_key, files.certificate, b"-----BEGIN CERTIFICATE-----", "certificate"
        )
        _check_text(self.private_key, files.key, b"PRIVATE KEY-----", "private key")
        mode = Path(files.key).stat().st_mode & 0o777
        if mode & 0o077:
            found = f"{files.key} with mode {mode:04o}, so other users can read it"
            raise WrongCertificate(self.private_key, found, f"mode 0600: chmod 600 {files.key}")
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            # Send no tickets, because they would cost one more send for each connection.
            context.num_tickets = 0
        try:
            # Pass a function, so that OpenSSL does not ask for a passphrase on the terminal.
            context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
        except ssl.SSLError as error:
            raise self._wrong_pair(error) from error
        except _Encrypted as error:
            found = f"{files.key}, which is encrypted"
            expected = "a private key without a passphrase"
            raise WrongCertificate(self.private_key, found, expected) from error
        return context

    def trust(self, context: ssl.SSLContext) -> None:
        """Let a context trust the certificates in the CA file. Raises WrongCertificate if it cannot
        be used."""
        ca = self.files.ca
        assert ca is not None, "checked in BrokerConfig"
        _check_text(self.ca_key, ca, b"-----BEGIN CERTIFICATE-----", "certificate")
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            found = f"{ca}: {error_text(error)}"
            raise WrongCertificate(self.ca_key, found, "certificates in PEM format") from error

    def refused(self, by: str, error: TlsError, name: str) -> WrongCertificate:
        """Return the fault for a certificate that a peer refused.

        `by` describes the peer. `name` is the host name under which it reaches the broker.
        """
        found = f"{self.files.certificate}, which {by} refuses: {error}"
        return WrongCertificate(self.certificate_key, found, self._expected(error, name))

    def changed_meanwhile(self, error: OSError) -> WrongCertificate:
        """Return the fault of a file that was removed or replaced while it was read."""
        found = f"{self.files.certificate}: {error}"
        expected = "files that do not change while they are read"
        return WrongCertificate(self.certificate_key, found, expected)

    def _wrong_pair(self, error: ssl.SSLError) -> WrongCertificate:
        files = self.files
        if "MISMATCH" in (error.reason or ""):
            found = f"{files.key}, which is not the key of {files.certificate}"
            return WrongCertificate(self.private_key, found, "the private key of the certificate")
        found = f"{files.certificate} and {files.key}: {error_text(error)}"
        expected = "a certificate and its key in PEM format"
        return WrongCertificate(self.certificate_key, found, expected)

    def _expected(self, error: TlsError, name: str) -> str:
        text = str(error)
        if "mismatch" in text:
            return f"a certificate with {name} among its names; `millrace cert renew` makes one"
        if "issuer" in text or "self-signed" in text or "self signed" in text:
            return f"a certificate that a CA of {self.ca_key} has signed, with its whole chain"
        if "purpose" in text:
            return "a certificate for servers and for clients (extended key usage)"
        return REPLACE


def try_handshake(asking: TlsEngine, answering: TlsEngine) -> None:
    """Do one handshake in memory; `asking` is the side of the client. Raises TlsError if the
    handshake fails."""
    while not (asking.is_established and answering.is_established):
        for one, other in ((asking, answering), (answering, asking)):
            if not one.is_established:
                one.handshake()
            if one.has_sealed:
                other.feed(memoryview(one.take_sealed()))


class _Encrypted(Exception):
    """The private key has a passphrase."""


def _no_passphrase() -> str:
    raise _Encrypted


def _check_text(key: str, path: str, mark: bytes, what: str) -> None:
    """Check that a file is in PEM format. Raises WrongCertificate if it is not."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(PEM_BYTES_MAX)
    except OSError as error:
        expected = "a file that this broker can read"
        raise WrongCertificate(key, f"{path}: {error.strerror}", expected) from error
    if mark not in text:
        raise WrongCertificate(key, f"{path}, which contains no {what}", f"a {what} in PEM format")
