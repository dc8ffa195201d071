"""TLS to MySQL and Redis: the context of a connection, and the reasons why a handshake fails.

Chain and host name of the server's certificate are always checked. No setting skips these checks.
"""

import ssl

VERIFY_HOSTNAME_MISMATCH, VERIFY_ADDRESS_MISMATCH = 62, 64
VERIFY_NOT_YET_VALID, VERIFY_EXPIRED = 9, 10
VERIFY_UNKNOWN_CA = (2, 18, 19, 20, 21)
"""The numbers of OpenSSL for a certificate that is refused (X509_V_ERR_…)."""


class TlsRefused(Exception):
    """The error when no TLS connection can be made. The text names the keys of the file."""


def client_context(ca: str | None, key: str) -> ssl.SSLContext:
    """Return the context for one connection. The file is read again each time.

    `ca` is a file of CAs; None means those of the system. `key` is the section of the configuration
    file, such as `sinks.redis`. Raises TlsRefused.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError) else None
        raise TlsRefused(
            f"{key}.tls.ca: {ca}: {reason or 'no certificate in PEM format'}; expected a file of"
            " CAs in PEM format"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def no_tls(key: str) -> str:
    """Return the text for a server that does not speak TLS."""
    return (
        f"the server of {key} does not speak TLS on this port; write its port with TLS into"
        f" {key}.port, or switch TLS on at the server"
    )


def handshake_fault(error: OSError, key: str) -> str:
    """Return why a handshake failed, and the key of the file that can mend it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedies = {
            VERIFY_HOSTNAME_MISMATCH: f"write a name of the certificate into {key}.host",
            VERIFY_ADDRESS_MISMATCH: f"write a name of the certificate into {key}.host",
            VERIFY_NOT_YET_VALID: "set the clock of this machine or of the server's machine",
            VERIFY_EXPIRED: "renew the certificate of the server",
            **dict.fromkeys(VERIFY_UNKNOWN_CA, f"put the server's CA into {key}.tls.ca"),
        }
        text = f"the certificate of the server of {key} is refused: {error.verify_message}"
        remedy = remedies.get(error.verify_code)
        return text if remedy is None else f"{text}; {remedy}"
    has_reason = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
    reason = getattr(error, "reason", None) if has_reason else None
    if reason in (None, "WRONG_VERSION_NUMBER"):
        return no_tls(key)
    words = str(reason).lower().replace("_", " ")
    return f"TLS with the server of {key} failed ({key}.tls): {words}"
