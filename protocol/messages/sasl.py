"""Logins: the choice of a mechanism, and the mechanism's own messages.

This module has only data classes. SaslHandshake is never flexible, because clients send it before
they know the versions of the server.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import (
    NEVER_FLEXIBLE,
    Message,
    array,
    bytes_,
    int16,
    int64,
    string,
)


class SaslHandshakeRequest(
    Message, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=NEVER_FLEXIBLE
):
    """Choose a mechanism. After a request of version 0, the mechanism's messages follow without
    headers.
    """

    mechanism: str = string()


class SaslHandshakeResponse(
    Message, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=NEVER_FLEXIBLE
):
    """The mechanisms that the server offers."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


class SaslAuthenticateRequest(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2
):
    """One message of the chosen mechanism. With version 1, the answer has the session lifetime."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2
):
    """The server's message. `session_lifetime_ms` is 0 for a session without an end."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64(since=1, ignorable=True)
