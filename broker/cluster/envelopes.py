"""Packs requests and their answers into envelopes (KIP-590), in which one broker forwards them.

This module is pure. A request is forwarded in its latest version, whatever version the client uses.
The envelope has the client's address, because the active controller applies the client's limits,
and the user, because the controller decides what the user may do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from types import MappingProxyType
from typing import Any

from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.api import ApiKey, request_class, response_class
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

FORWARDED: Mapping[int, ApiKey] = MappingProxyType(
    {
        int(key): key
        for key in (
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.UPDATE_FEATURES,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
        )
    }
)
"""The requests that an envelope may contain. Only the active controller can answer them."""


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


def packed(order: Message, host: str | None, user: str | None = None) -> EnvelopeRequest:
    """Return the envelope that forwards a request. `host` and `user` are as in
    `OpenedEnvelope`."""
    version = ApiKey(order.api_key).valid_versions[-1]
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
    forwarded.
    """
    try:
        header, position = decode_request_header(envelope.request_data)
        key = FORWARDED.get(header.request_api_key)
        version = header.request_api_version
        if key is None or version not in key.valid_versions:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                (
                    f"the envelope has a request with API key {header.request_api_key}, which "
                    "brokers do not forward"
                ),
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


def opened_answer(envelope: EnvelopeResponse, order: Message) -> Any:
    """Return the answer to a forwarded request; None if the envelope has only an error code."""
    if envelope.error_code or envelope.response_data is None:
        return None
    key = ApiKey(order.api_key)
    version = key.valid_versions[-1]
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
