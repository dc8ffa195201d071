"""A broker's certificate, key and CA: reads and checks the files, and reads them again when they
change.

The check is a handshake in memory, in which both sides use these files. It fails for the same
reasons as a client's handshake: a wrong chain, date, name or purpose. The check needs only the
module `ssl`, because a broker should load no larger library. If the files are replaced, new
connections use the new files. If the new files fail the check, the broker keeps the old files, and
the log says why (decision 0125).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.config import BROKER_LISTENER, BrokerConfig, TlsFiles
from broker.real.tls_engine import PeerCheck, TlsEngine, TlsError, error_text
from broker.settings import ConfigError, Fault
from protocol.log import fields

logger = logging.getLogger(__name__)

CERTIFICATE_KEY, PRIVATE_KEY, CA_KEY = "tls.certificate", "tls.key", "tls.ca"

PEM_BYTES_MAX = 1 << 20

REPLACE = "a certificate that is valid now; `millrace cert renew` makes one"

Stamp = tuple[tuple[int, ...], ...]
"""The device, inode, size and times of each file, by which versions of the files are distinguished.

A missing file has an empty tuple.
"""


class WrongCertificate(Exception):
    """A certificate, key or CA file that cannot be used."""

    def __init__(self, key: str, found: str, expected: str) -> None:
        super().__init__(f"{key}: found {found}, expected {expected}")
        self.fault: Fault = (key, found, expected)


class Contexts:
    """The TLS contexts of one version of the files."""

    def __init__(self, files: TlsFiles, *, among_brokers: bool) -> None:
        """Read the files. Raises WrongCertificate if one of them cannot be used."""
        self.clients = _context(files, ssl.PROTOCOL_TLS_SERVER)
        """The context of the listeners of clients."""
        self.accepting: ssl.SSLContext | None = None
        """The context of the listener of other brokers; None if it has no TLS."""
        self.dialling: ssl.SSLContext | None = None
        """The context of connections to other brokers; None if they have no TLS."""
        if among_brokers:
            self.accepting = _among_brokers(_context(files, ssl.PROTOCOL_TLS_SERVER), files)
            self.dialling = _among_brokers(_context(files, ssl.PROTOCOL_TLS_CLIENT), files)


class Certificates:
    """The certificate files of one broker, as they are on the disk."""

    def __init__(self, config: BrokerConfig, files: TlsFiles) -> None:
        """Read and check the files. Raises ConfigError if they cannot be used."""
        self._files = files
        secured = [name for name, one in config.listeners.items() if one.has_tls]
        self._among_brokers = BROKER_LISTENER in secured
        self._names = _advertised(config, secured)
        self._check_broker: PeerCheck = BrokerIdentity(config.cluster_id, config.configured_ids)
        self._stamp = _stamp(files)
        try:
            self._contexts = self._load()
        except WrongCertificate as error:
            raise ConfigError([error.fault]) from error

    def for_client(self) -> TlsEngine:
        """Return the TLS engine of a connection that a client has opened."""
        return TlsEngine(self._current().clients)

    def for_broker(self) -> TlsEngine:
        """Return the TLS engine of a connection that another broker has opened."""
        accepting = self._current().accepting
        assert accepting is not None, "the listener of other brokers has TLS"
        return TlsEngine(accepting, check_peer=self._check_broker)

    def to_broker(self, host: str) -> TlsEngine | None:
        """Return the TLS engine of a connection to another broker; None if brokers use no TLS."""
        dialling = self._current().dialling
        if dialling is None:
            return None
        return TlsEngine(dialling, server_name=host, check_peer=self._check_broker)

    def _current(self) -> Contexts:
        """Return the contexts for a new connection. Read the files again if they have changed."""
        stamp = _stamp(self._files)
        if stamp != self._stamp:
            # Keep the stamp even if the files are wrong, so that each version is read and reported
            # once.
            self._stamp = stamp
            path = self._files.certificate
            try:
                self._contexts = self._load()
                logger.info(
                    "the certificate was replaced; new connections use the new one",
                    extra=fields(certificate=path),
                )
            except WrongCertificate as error:
                logger.error(
                    "the new certificate is invalid; the broker keeps using the old one",
                    extra=fields(reason=error),
                )
        return self._contexts

    def _load(self) -> Contexts:
        """Read and check the files. Raises WrongCertificate."""
        return checked_contexts(
            self._files, self._names, self._check_broker if self._among_brokers else None
        )


def checked_contexts(
    files: TlsFiles, names: Sequence[str], check_broker: PeerCheck | None = None
) -> Contexts:
    """Read the files, and check them as a client that connects to each of `names`.

    Raises WrongCertificate.

    `check_broker` is given if brokers use the files among themselves.
    """
    try:
        contexts = Contexts(files, among_brokers=check_broker is not None)
        _check(contexts, files, names, check_broker)
    except OSError as error:
        # A file was removed or replaced while it was read.
        found = f"{files.certificate}: {error}"
        raise WrongCertificate(
            CERTIFICATE_KEY, found, "files that do not change while they are read"
        ) from error
    return contexts


class BrokerIdentity:
    """Checks that a certificate belongs to a broker of this cluster.

    The subject must be exactly `CN=broker-N, O=<cluster id>`. TLS has verified the chain before.
    """

    def __init__(self, cluster_id: str, node_ids: Sequence[int]) -> None:
        self._cluster_id = cluster_id
        self._names = {f"broker-{node_id}" for node_id in node_ids}

    def __call__(self, certificate: Mapping[str, Any] | None) -> str:
        """Return the reason to refuse the certificate, or an empty string."""
        if not certificate:
            return "the other broker showed no certificate"
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for key, value in subject if key == "commonName"]
        clusters = [value for key, value in subject if key == "organizationName"]
        if clusters != [self._cluster_id]:
            return f"a certificate of cluster {clusters}, expected {self._cluster_id}"
        if len(names) != 1 or names[0] not in self._names:
            return f"a certificate of {names}, expected one of {sorted(self._names)}"
        return ""


def _advertised(config: BrokerConfig, secured: Sequence[str]) -> tuple[str, ...]:
    """Return the names by which clients and other brokers reach the secured listeners."""
    names = [config.listeners[name].advertised_host for name in secured]
    return tuple(dict.fromkeys(names))


def _stamp(files: TlsFiles) -> Stamp:
    return tuple(_version(path) for path in (files.certificate, files.key, files.ca) if path)


def _version(path: str) -> tuple[int, ...]:
    try:
        one = Path(path).stat()
    except OSError:
        return ()
    # The time of the last change also rises when the mode or the owner changes.
    return (one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)


def _context(files: TlsFiles, protocol: int) -> ssl.SSLContext:
    """Return a context with the certificate and its key. Raises WrongCertificate."""
    _check_text(CERTIFICATE_KEY, files.certificate, b"-----BEGIN CERTIFICATE-----", "certificate")
    _check_text(PRIVATE_KEY, files.key, b"PRIVATE KEY-----", "private key")
    mode = Path(files.key).stat().st_mode & 0o777
    if mode & 0o077:
        found = f"{files.key} with mode {mode:04o}, so other users can read it"
        raise WrongCertificate(PRIVATE_KEY, found, f"mode 0600: chmod 600 {files.key}")
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
        raise _wrong_pair(files, error) from error
    except _Encrypted as error:
        expected = "a private key without a passphrase"
        raise WrongCertificate(PRIVATE_KEY, f"{files.key}, which is encrypted", expected) from error
    return context


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


def _wrong_pair(files: TlsFiles, error: ssl.SSLError) -> WrongCertificate:
    if "MISMATCH" in (error.reason or ""):
        found = f"{files.key}, which is not the key of {files.certificate}"
        return WrongCertificate(PRIVATE_KEY, found, "the private key of the certificate")
    found = f"{files.certificate} and {files.key}: {error_text(error)}"
    return WrongCertificate(CERTIFICATE_KEY, found, "a certificate and its key in PEM format")


def _among_brokers(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    """Restrict a context to TLS 1.3, and to peers with a certificate that the CA has signed."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    _trust(context, files.ca)
    return context


def _trust(context: ssl.SSLContext, ca: str | None) -> None:
    """Trust the certificates in a CA file. Raises WrongCertificate if it cannot be used."""
    assert ca is not None, "checked in BrokerConfig"
    _check_text(CA_KEY, ca, b"-----BEGIN CERTIFICATE-----", "certificate")
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        found = f"{ca}: {error_text(error)}"
        raise WrongCertificate(CA_KEY, found, "certificates in PEM format") from error


def _check(
    contexts: Contexts, files: TlsFiles, names: Sequence[str], check_broker: PeerCheck | None
) -> None:
    """Do a handshake in memory for each name. Raises WrongCertificate if one fails."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca:
        _trust(trusting, files.ca)
    else:
        # Trust the certificate itself, because the CA that signed it can be known to clients only.
        trusting.load_verify_locations(files.certificate)
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for name in names:
        _try_handshake(trusting, contexts.clients, files, name, None)
        if contexts.dialling is not None and contexts.accepting is not None:
            _try_handshake(contexts.dialling, contexts.accepting, files, name, check_broker)


def _try_handshake(
    client: ssl.SSLContext,
    server: ssl.SSLContext,
    files: TlsFiles,
    name: str,
    check_peer: PeerCheck | None,
) -> None:
    """Do one handshake in memory. Raises WrongCertificate if it fails."""
    asking = TlsEngine(client, server_name=name, check_peer=check_peer)
    answering = TlsEngine(server, check_peer=check_peer)
    found = f"{files.certificate}, which a client of {name} refuses: "
    try:
        while not (asking.is_established and answering.is_established):
            for one, other in ((asking, answering), (answering, asking)):
                if not one.is_established:
                    one.handshake()
                if one.has_sealed:
                    other.feed(memoryview(one.take_sealed()))
    except TlsError as error:
        raise WrongCertificate(
            CERTIFICATE_KEY, f"{found}{error}", _expected(name, error)
        ) from error


def _expected(name: str, error: TlsError) -> str:
    text = str(error)
    if "mismatch" in text:
        return f"a certificate with {name} among its names; `millrace cert renew` makes one"
    if "issuer" in text or "self-signed" in text or "self signed" in text:
        return f"a certificate that a CA of {CA_KEY} has signed, with its whole chain"
    if "purpose" in text:
        return "a certificate for servers and for clients (extended key usage)"
    return REPLACE
