"""TLS of our client: which servers it trusts, and which certificate it shows.

The certificate of a broker must be signed by a trusted CA and must contain the host name to which
the client connects. No setting skips these checks. asyncio's transports encrypt and decrypt. The
broker does not write through these transports, so it has its own TLS code (decision 0125).
"""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from protocol.client.errors import EntryRefused
from protocol.log import fields
from protocol.settling import Signature, signature_of

VERIFY_HOSTNAME_MISMATCH, VERIFY_ADDRESS_MISMATCH = 62, 64
VERIFY_NOT_YET_VALID, VERIFY_EXPIRED = 9, 10
VERIFY_UNKNOWN_CA = (2, 18, 19, 20, 21)
"""The numbers of OpenSSL for a certificate that is refused (X509_V_ERR_…)."""

_NAME = "connect to a name of the certificate (cluster.bootstrap_servers, advertised.listeners)"
_REMEDIES = {
    VERIFY_HOSTNAME_MISMATCH: _NAME,
    VERIFY_ADDRESS_MISMATCH: _NAME,
    VERIFY_NOT_YET_VALID: "set the clock of this machine or of the broker's machine",
    VERIFY_EXPIRED: "renew the certificate of the broker",
    **dict.fromkeys(VERIFY_UNKNOWN_CA, "put the CA of the cluster into cluster.security.ca"),
}

logger = logging.getLogger(__name__)


class TlsFileError(Exception):
    """A file of the settings cannot be used. The text names the files; `reason` says why."""

    def __init__(self, files: str, reason: str, expected: str) -> None:
        super().__init__(f"{files}: {reason}; expected {expected}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files in PEM format."""

    ca: str | None = None
    """The CAs to trust; None means those of the system."""
    certificate: str | None = None
    """The client's certificate, for brokers that ask for one."""
    key: str | None = None
    """The private key of the certificate; None means that the key is in the certificate's file."""


class ClientTls:
    """The TLS context of a client. The file of the CAs is read again after it has changed."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._seen: Signature | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection. Raises EntryRefused without usable files.

        If a changed file cannot be used, keep the earlier CAs, because the file can be half
        written.
        """
        ca = self._settings.ca
        seen = None if ca is None else signature_of(Path(ca))
        if self._context is None or seen != self._seen:
            try:
                self._context = client_context(self._settings)
            except TlsFileError as error:
                if self._context is None:
                    raise EntryRefused(str(error)) from error
                logger.warning("the earlier CAs stay in use", extra=fields(why=error))
            self._seen = seen
        return self._context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for all connections of a client. Raises TlsFileError."""
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except OSError as error:
        raise TlsFileError(
            str(settings.ca), reason_of(error), "certificates in PEM format"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.certificate is not None:
        try:
            # Pass an empty passphrase, so that OpenSSL does not ask for one on the terminal.
            context.load_cert_chain(settings.certificate, settings.key, password="")
        except OSError as error:
            files = " and ".join(filter(None, (settings.certificate, settings.key)))
            raise TlsFileError(
                files, reason_of(error), "a certificate and its key in PEM format"
            ) from error
    return context


def reason_of(error: OSError) -> str:
    """Return why a TLS handshake failed or a file could not be read, without OpenSSL's own
    notation.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _REMEDIES.get(error.verify_code)
        text = f"the broker's certificate is refused: {error.verify_message}"
        return text if remedy is None else f"{text}; {remedy}"
    if isinstance(error, ssl.SSLEOFError) or error.args == ():
        # asyncio raises an empty ConnectionResetError when the handshake is cut off.
        return "the connection ended during the TLS handshake; does this port speak TLS?"
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "the broker does not speak TLS on this port"
        return str(error.reason or error).lower().replace("_", " ")
    return str(error.strerror or error)
