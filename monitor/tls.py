"""The certificate of the page: reads and checks its files, and reads them again when they change.

The check is a handshake in memory under each name of the page. If new files fail it, the page keeps
the old ones, and the log says why.
"""

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path

from monitor.config.settings import PageTls
from protocol.log import fields

ROUNDS_MAX = 10

Stamp = tuple[tuple[int, int, int, int], ...]

logger = logging.getLogger(__name__)


class UnusableCertificate(Exception):
    """The error for files that cannot be used. The text says why."""


class PageCertificate:
    """The certificate and the key of the page, as they are on the disk."""

    def __init__(self, files: PageTls, names: Sequence[str]) -> None:
        """Read and check the files. Raise UnusableCertificate."""
        self._files = files
        self._names = names
        self._stamp = _stamp(files)
        self._context = checked_context(files, names)

    def context(self) -> ssl.SSLContext:
        """Return the context of a new connection. Read the files again if they have changed."""
        stamp = _stamp(self._files)
        if stamp != self._stamp:
            # Keep the stamp even if the files are wrong, so that each version is reported once.
            self._stamp = stamp
            try:
                self._context = checked_context(self._files, self._names)
                logger.info(
                    "the certificate of the page was replaced; new connections use the new one",
                    extra=fields(certificate=self._files.certificate),
                )
            except UnusableCertificate as error:
                logger.error(
                    "the new certificate is invalid; the page keeps using the old one",
                    extra=fields(why=error),
                )
        return self._context


def checked_context(files: PageTls, names: Sequence[str]) -> ssl.SSLContext:
    """Return a context with these files. Raise UnusableCertificate if a browser would refuse them
    under one of the names."""
    try:
        if files.key.stat().st_mode & 0o077:
            raise UnusableCertificate(
                f"{files.key} can be read by other users: chmod 600 {files.key}"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
        context.set_alpn_protocols(["http/1.1"])
        # Pass a function, so that OpenSSL does not ask for a passphrase on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Trust the certificate itself, because its CA can be known to browsers only.
        trusting.load_verify_locations(files.certificate)
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for name in names:
            _try_handshake(trusting, context, name)
    except (OSError, ValueError) as error:
        raise UnusableCertificate(f"{files.certificate} with {files.key}: {error}") from error
    return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, expected a key without one")


def _try_handshake(trusting: ssl.SSLContext, context: ssl.SSLContext, name: str) -> None:
    """Do a handshake in memory. Raise SSLError if the client refuses it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(ROUNDS_MAX):
        for one in list(waiting):
            try:
                one.do_handshake()
                waiting.remove(one)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return
    raise ssl.SSLError(f"the handshake under the name {name} does not end")


def _stamp(files: PageTls) -> Stamp:
    return tuple(_version(path) for path in (files.certificate, files.key))


def _version(path: Path) -> tuple[int, int, int, int]:
    try:
        one = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
