"""Orders and answers to them in envelopes (KIP-590): how one broker passes on what it was asked.

Floor: cluster. Pure. An order goes on in the latest version of its request, whatever version its
client speaks, with the client's address: limits count where it is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
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
from protocol.messages.membership import EnvelopeRequest, EnvelopeResponse
from protocol.wire.frame import SIZE_BYTES
from protocol.wire.schema import Message

PASSED_ON: Mapping[int, ApiKey] = MappingProxyType(
    {
        int(key): key
        for key in (
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ELECT_LEADERS,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.UPDATE_FEATURES,
        )
    }
)
"""What may come in an envelope: what the active controller alone can answer."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What was in an envelope, and whose it is; `host` is None for the other broker's own."""

    key: ApiKey
    version: int
    correlation_id: int
    order: Any
    host: str | None


def packed(order: Message, host: str | None) -> EnvelopeRequest:
    """An order of a client at `host`, None for this broker's own wishes, to be passed on."""
    version = ApiKey(order.api_key).valid_versions[-1]
    frame = encode_request(order, version, 0, None)
    # The size that stands before each frame an envelope says itself.
    return EnvelopeRequest(request_data=frame[SIZE_BYTES:], client_host_address=_address(host))


def opened(envelope: EnvelopeRequest) -> Opened:
    """Raises INVALID_REQUEST for what cannot be read, or is nothing to be passed on."""
    try:
        header, position = decode_request_header(envelope.request_data)
        key = PASSED_ON.get(header.request_api_key)
        version = header.request_api_version
        if key is None or version not in key.valid_versions:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"key {header.request_api_key} is no order")
        order, _ = request_class(key).decode(bytes(envelope.request_data), version, position)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    host = _host(envelope.client_host_address)
    return Opened(key, version, header.correlation_id, order, host)


def packed_answer(response: Message, to: Opened) -> EnvelopeResponse:
    """The answer to what was in an envelope."""
    frame = encode_response(response, to.version, to.correlation_id, to.key)
    return EnvelopeResponse(response_data=frame[SIZE_BYTES:])


def opened_answer(envelope: EnvelopeResponse, order: Message) -> Any:
    """The answer to an order that was `packed`; None where the envelope has a code alone."""
    if envelope.error_code or envelope.response_data is None:
        return None
    key = ApiKey(order.api_key)
    version = key.valid_versions[-1]
    frame = bytes(envelope.response_data)
    _, position = decode_response_header(frame, key, version)
    response, _ = response_class(key).decode(frame, version, position)
    return response


def _address(host: str | None) -> bytes:
    if host is None:
        return b""
    try:
        return ip_address(host).packed
    except ValueError:
        # A name, of a listener on which no IP addresses are seen.
        return host.encode()


def _host(address: bytes) -> str | None:
    if not address:
        return None
    try:
        return str(ip_address(bytes(address)))
    except ValueError:
        return bytes(address).decode(errors="replace")
