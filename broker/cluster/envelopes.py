"""Packs requests and their answers into envelopes (KIP-590), in which one broker forwards them.

This module is pure. A request is forwarded in a version that both brokers speak, whatever version
the client uses.
The envelope has the client's address, because the active controller applies the client's limits,
and the user, because the controller decides what the user may do.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from typing import Any

from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.api import FORWARDED, ApiKey, request_class, response_class
from protocol.messages.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from protocol.messages.membership import DefaultPrincipal, EnvelopeRequest, EnvelopeResponse
from protocol.wire.frame import SIZE_BYTES
from protocol.wire.schema import Message

USER = "User"
"""The type of every principal in an envelope."""

_VERSION = Struct(">h")


@dataclass(frozen=True, slots=True)
class OpenedEnvelope:
    """The request in an envelope.

    `host` is the client's address; None for a broker's own request. `user` is the user whose rights
    are checked; None if the client may do everything.
    """

    key: ApiKey
    version: int
    correlation_id: int
    order: Any
    host: str | None
    user: str | None = None


def packed(
    order: Message, version: int, host: str | None, user: str | None = None
) -> EnvelopeRequest:
    """Return the envelope that forwards a request in a version. `host` and `user` are as in
    `OpenedEnvelope`."""
    frame = encode_request(order, version, 0, None)
    # The envelope has a field for the size of its content, so leave out the size in front of the
    # frame.
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:],
        request_principal=None if user is None else _principal(user),
        client_host_address=_address(host),
    )


def opened(envelope: EnvelopeRequest) -> OpenedEnvelope:
    """Decode an envelope.

    Raises ApiError INVALID_REQUEST if the envelope is malformed or its request may not be
    forwarded, and UNSUPPORTED_VERSION for an unknown version of the request.
    """
    try:
        header, position = decode_request_header(envelope.request_data)
        number, version = header.request_api_key, header.request_api_version
        if number not in FORWARDED:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                (f"the envelope has a request with API key {number}, which brokers do not forward"),
            )
        key = ApiKey(number)
        if version not in FORWARDED[key]:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the envelope has {key.name} version {version}, which is not served",
            )
        order, _ = request_class(key).decode(bytes(envelope.request_data), version, position)
        user = _user(envelope.request_principal)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    host = _host(envelope.client_host_address)
    return OpenedEnvelope(key, version, header.correlation_id, order, host, user)


def packed_answer(response: Message, to: OpenedEnvelope) -> EnvelopeResponse:
    """Return the envelope with the answer to a forwarded request."""
    frame = encode_response(response, to.version, to.correlation_id, to.key)
    return EnvelopeResponse(response_data=frame[SIZE_BYTES:])


def opened_answer(envelope: EnvelopeResponse, order: Message, version: int) -> Any:
    """Return the answer to a request that was forwarded in a version; None if the envelope has only
    an error code. Raises WireError if the answer is malformed."""
    if envelope.error_code or envelope.response_data is None:
        return None
    key = ApiKey(order.api_key)
    frame = bytes(envelope.response_data)
    _, position = decode_response_header(frame, key, version)
    response, _ = response_class(key).decode(frame, version, position)
    return response


def _principal(user: str) -> bytes:
    return _VERSION.pack(0) + DefaultPrincipal(type=USER, name=user).encode(0)


def _user(principal: bytes | None) -> str | None:
    """Return the user of an envelope. Raises WireError if it cannot be read.

    Brokers of 1.0.0-rc1 send an empty principal. They have no logins, so none of their clients is a
    user.
    """
    data = bytes(principal or b"")
    if not data:
        return None
    if data[: _VERSION.size] != _VERSION.pack(0):
        raise WireError("the principal of the envelope has an unknown version")
    found, _ = DefaultPrincipal.decode(data, 0, _VERSION.size)
    if found.type != USER:
        raise WireError(f"found a principal of type {found.type!r}, expected {USER}")
    return found.name


def _address(host: str | None) -> bytes:
    if host is None:
        return b""
    try:
        return ip_address(host).packed
    except ValueError:
        # The client's address is a name, because its listener is not an IP listener.
        return host.encode()


def _host(address: bytes) -> str | None:
    if not address:
        return None
    try:
        return str(ip_address(bytes(address)))
    except ValueError:
        return bytes(address).decode(errors="replace")
