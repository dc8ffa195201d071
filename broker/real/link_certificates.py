"""The certificate that a broker shows to other brokers, and the check of their certificates.

Both sides of a connection between brokers show a certificate of the same CA, with TLS 1.3. The CAs
of the system do not count here. If the files are replaced, new connections use the new files. If
the new files cannot be used, the broker keeps the old ones, and its status says why (decision
0224).
"""

from __future__ import annotations

import logging
import ssl
import time
from typing import Any, NamedTuple

from broker.config import TlsFiles
from broker.real.tls_engine import PeerCheck, TlsEngine, TlsError
from broker.real.tls_files import PemFiles, WrongCertificate, try_handshake
from broker.security.broker_identity import broker_name, broker_of
from broker.settings import ConfigError
from protocol.log import fields
from protocol.status import Problem
from protocol.watched_files import WatchedFiles

logger = logging.getLogger(__name__)

PROBLEM = "link_certificate"


class LinkContexts(NamedTuple):
    """The TLS contexts of one version of the files."""

    accepting: ssl.SSLContext
    """The context of connections that other brokers open."""
    dialling: ssl.SSLContext
    """The context of connections to other brokers."""
    ends_at_s: float
    """The Unix time at which the certificate ends."""


class LinkCertificates:
    """The certificate files for the connections between brokers, as they are on the disk."""

    def __init__(self, files: TlsFiles, cluster_id: str, node_id: int) -> None:
        """Read and check the files. Raises ConfigError if they cannot be used."""
        pem = PemFiles(files, "link_tls")
        self.files = files
        self._cluster_id = cluster_id
        try:
            self._watched = WatchedFiles(
                pem.paths,
                lambda: checked_contexts(pem, cluster_id, node_id),
                WrongCertificate,
                self._tell,
            )
        except WrongCertificate as error:
            raise ConfigError([error.fault]) from error

    def from_broker(self) -> TlsEngine:
        """Return the TLS engine of a connection that another broker has opened."""
        return TlsEngine(
            self._watched.current().accepting, check_peer=_check(self._cluster_id, None)
        )

    def to_broker(self, node_id: int | None) -> TlsEngine:
        """Return the TLS engine of a connection to a broker. `node_id` is None if the id of the
        broker is not known."""
        return _to_broker(self._watched.current().dialling, self._cluster_id, node_id)

    def problems(self) -> list[Problem]:
        """Return the problems of the broker's own files. Read them again if they have changed."""
        contexts = self._watched.current()
        found = []
        if (fault := self._watched.fault) is not None:
            found.append(f"the new certificate of this broker is not used: {fault}")
        if contexts.ends_at_s <= time.time():
            found.append(
                f"the certificate of this broker, {self.files.certificate}, ended on "
                f"{time.strftime('%Y-%m-%d', time.gmtime(contexts.ends_at_s))}. Other brokers "
                "refuse new connections: run `./millrace cert renew`. No restart is needed"
            )
        return [Problem(PROBLEM, text) for text in found]

    def _tell(self, error: Exception | None) -> None:
        if error is None:
            logger.info(
                "the certificate for links between brokers was replaced; new connections use the "
                "new one",
                extra=fields(certificate=self.files.certificate),
            )
        else:
            logger.error(
                "the new certificate for links between brokers is invalid; the broker keeps using "
                "the old one",
                extra=fields(reason=error),
            )


def checked_contexts(pem: PemFiles, cluster_id: str, node_id: int) -> LinkContexts:
    """Read the files, and check them by a handshake of this broker with itself.

    Raises WrongCertificate.
    """
    name, own = broker_name(node_id), _OwnCertificate(cluster_id, node_id)
    try:
        accepting = _among_brokers(pem, ssl.PROTOCOL_TLS_SERVER)
        dialling = _among_brokers(pem, ssl.PROTOCOL_TLS_CLIENT)
        try:
            try_handshake(
                _to_broker(dialling, cluster_id, node_id), TlsEngine(accepting, check_peer=own)
            )
        except TlsError as error:
            raise pem.refused("another broker", error, name) from error
    except OSError as error:
        raise pem.changed_meanwhile(error) from error
    return LinkContexts(accepting, dialling, own.ends_at_s)


class _OwnCertificate:
    """Checks the broker's own certificate, and notes when it ends."""

    def __init__(self, cluster_id: str, node_id: int) -> None:
        self._check = _check(cluster_id, node_id)
        self.ends_at_s = 0.0

    def __call__(self, certificate: dict[str, Any] | None) -> int:
        node_id = self._check(certificate)
        self.ends_at_s = ssl.cert_time_to_seconds((certificate or {})["notAfter"])
        return node_id


def _to_broker(context: ssl.SSLContext, cluster_id: str, node_id: int | None) -> TlsEngine:
    name = "broker" if node_id is None else broker_name(node_id)
    return TlsEngine(context, server_name=name, check_peer=_check(cluster_id, node_id))


def _check(cluster_id: str, node_id: int | None) -> PeerCheck:
    return lambda certificate: broker_of(certificate, cluster_id, node_id)


def _among_brokers(pem: PemFiles, protocol: int) -> ssl.SSLContext:
    """Return a context with TLS 1.3 for peers with a certificate that the CA has signed."""
    context = pem.context(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # `broker_of` compares the name, because the broker that is dialled is not always known.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    pem.trust(context)
    return context
