"""The certificate that a broker shows to clients: checks the files, and reads them again when they
change.

The check is a handshake in memory, in which both sides use these files. It fails for the same
reasons as a client's handshake: a wrong chain, date, name or purpose. If the files are replaced,
new connections use the new files. If the new files fail the check, the broker keeps the old files,
and the log and the status say why (decisions 0125 and 0243).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence

from broker.config import BROKER_LISTENER, BrokerConfig, TlsFiles
from broker.real.tls_engine import TlsEngine, TlsError
from broker.real.tls_files import PemFiles, WrongCertificate, try_handshake
from broker.settings import ConfigError
from protocol.log import fields
from protocol.status import Problem
from protocol.watched_files import WatchedFiles

logger = logging.getLogger(__name__)

PROBLEM = "certificate"


class Certificates:
    """The certificate files for clients, as they are on the disk."""

    def __init__(self, config: BrokerConfig, files: TlsFiles) -> None:
        """Read and check the files. Raises ConfigError if they cannot be used."""
        self._files = files
        names = _advertised(config)
        try:
            self._watched = WatchedFiles(
                PemFiles(files, "tls").paths,
                lambda: checked_context(files, names),
                WrongCertificate,
                self._tell,
            )
        except WrongCertificate as error:
            raise ConfigError([error.fault]) from error

    def for_client(self) -> TlsEngine:
        """Return the TLS engine of a connection that a client has opened."""
        return TlsEngine(self._watched.current())

    def problems(self) -> list[Problem]:
        """Return a problem if the files on the disk are not used. Read them again if they have
        changed."""
        self._watched.current()
        fault = self._watched.fault
        if fault is None:
            return []
        return [Problem(PROBLEM, f"the new certificate for clients is not used: {fault}")]

    def _tell(self, error: Exception | None) -> None:
        if error is None:
            logger.info(
                "the certificate was replaced; new connections use the new one",
                extra=fields(certificate=self._files.certificate),
            )
        else:
            logger.error(
                "the new certificate is invalid; the broker keeps using the old one",
                extra=fields(reason=error),
            )


def checked_context(files: TlsFiles, names: Sequence[str]) -> ssl.SSLContext:
    """Read the files, and check them as a client that connects to each of `names`.

    Raises WrongCertificate.
    """
    pem = PemFiles(files, "tls")
    try:
        context = pem.context(ssl.PROTOCOL_TLS_SERVER)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if pem.files.ca:
            pem.trust(trusting)
        else:
            # Trust the certificate itself, because clients can know a CA that this host does not
            # know.
            trusting.load_verify_locations(pem.files.certificate)
            trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for name in names:
            try:
                try_handshake(TlsEngine(trusting, server_name=name), TlsEngine(context))
            except TlsError as error:
                raise pem.refused(f"a client of {name}", error, name) from error
    except OSError as error:
        raise pem.changed_meanwhile(error) from error
    return context


def _advertised(config: BrokerConfig) -> tuple[str, ...]:
    """Return the names by which clients reach the listeners with TLS."""
    names = [
        one.advertised_host
        for name, one in config.listeners.items()
        if one.has_tls and name != BROKER_LISTENER
    ]
    return tuple(dict.fromkeys(names))
