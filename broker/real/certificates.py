"""The certificate that a broker shows to clients: checks the files, and reads them again when they
change.

The check is a handshake in memory, in which both sides use these files. It fails for the same
reasons as a client's handshake: a wrong chain, date, name or purpose. If the files are replaced,
new connections use the new files. If the new files fail the check, the broker keeps the old files,
and the log says why (decision 0125).
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

logger = logging.getLogger(__name__)


class Certificates:
    """The certificate files for clients, as they are on the disk."""

    def __init__(self, config: BrokerConfig, files: TlsFiles) -> None:
        """Read and check the files. Raises ConfigError if they cannot be used."""
        self._pem = PemFiles(files, "tls")
        self._names = _advertised(config)
        self._stamp = self._pem.stamp()
        try:
            self._context = checked_context(self._pem.files, self._names)
        except WrongCertificate as error:
            raise ConfigError([error.fault]) from error

    def for_client(self) -> TlsEngine:
        """Return the TLS engine of a connection that a client has opened."""
        return TlsEngine(self._current())

    def _current(self) -> ssl.SSLContext:
        """Return the context for a new connection. Read the files again if they have changed."""
        stamp = self._pem.stamp()
        if stamp != self._stamp:
            # Keep the stamp even if the files are wrong, so that each version is read and reported
            # once.
            self._stamp = stamp
            try:
                self._context = checked_context(self._pem.files, self._names)
                logger.info(
                    "the certificate was replaced; new connections use the new one",
                    extra=fields(certificate=self._pem.files.certificate),
                )
            except WrongCertificate as error:
                logger.error(
                    "the new certificate is invalid; the broker keeps using the old one",
                    extra=fields(reason=error),
                )
        return self._context


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
            # Trust the certificate itself, because the CA that signed it can be known to clients
            # only.
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
