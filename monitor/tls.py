"""The certificate of the page: reads and checks its files, and reads them again when they change.

The check is a handshake in memory under each name of the page. If new files fail it, the page keeps
the old ones, and the log and the status say why.
"""

import logging
import math
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from monitor.config.settings import PageTls
from protocol.log import fields
from protocol.units import format_moment_ms
from protocol.watched_files import WatchedFiles

ROUNDS_MAX = 10

logger = logging.getLogger(__name__)


class UnusableCertificate(Exception):
    """The error for files that cannot be used. The text says why."""


class PageContext(NamedTuple):
    """The TLS context of one version of the files."""

    context: ssl.SSLContext
    ends_at_s: float
    """The Unix time at which the certificate ends."""


class PageCertificate:
    """The certificate and the key of the page, as they are on the disk."""

    def __init__(self, files: PageTls, names: Sequence[str]) -> None:
        """Read and check the files. Raise UnusableCertificate."""
        self._files = files
        self._watched = WatchedFiles(
            (files.certificate, files.key),
            lambda: checked_context(files, names),
            UnusableCertificate,
            self._tell,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context of a new connection. Read the files again if they have changed."""
        return self._watched.current().context

    def problem(self, now_ms: int) -> str | None:
        """Return what is wrong with the files on the disk; None if browsers can use them. Read them
        again if they have changed."""
        ends_at_ms = self._watched.current().ends_at_s * 1000
        if self._watched.fault is not None:
            return f"the new certificate of the page is not used: {self._watched.fault}"
        if ends_at_ms > now_ms:
            return None
        return (
            f"the certificate of the page, {self._files.certificate}, ended at"
            f" {format_moment_ms(round(ends_at_ms))}, so browsers refuse the page: write a new one"
            " to this file; no restart is needed"
        )

    def _tell(self, error: Exception | None) -> None:
        if error is None:
            logger.info(
                "the certificate of the page was replaced; new connections use the new one",
                extra=fields(certificate=self._files.certificate),
            )
        else:
            logger.error(
                "the new certificate is invalid; the page keeps using the old one",
                extra=fields(why=error),
            )


def checked_context(files: PageTls, names: Sequence[str]) -> PageContext:
    """Return a context with these files. Raise UnusableCertificate if a browser would refuse them
    under one of the names."""
    ends_at_s = math.inf
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
        # Pass a function, so that OpenSSL does not ask for a passphrase on the terminal. Every
        # certificate of the file is sent, so the file can have the whole chain.
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Trust the certificate itself, because browsers can know a CA that this host does not know.
        trusting.load_verify_locations(files.certificate)
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for name in names:
            ends_at_s = _try_handshake(trusting, context, name)
    except (OSError, ValueError) as error:
        raise UnusableCertificate(f"{files.certificate} with {files.key}: {error}") from error
    return PageContext(context, ends_at_s)


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, expected a key without one")


def _try_handshake(trusting: ssl.SSLContext, context: ssl.SSLContext, name: str) -> float:
    """Do a handshake in memory. Return the Unix time at which the certificate ends. Raise SSLError
    if the client refuses it."""
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
            shown = client.getpeercert() or {}
            return ssl.cert_time_to_seconds(str(shown["notAfter"]))
    raise ssl.SSLError(f"the handshake under the name {name} does not end")
