"""Orders of clients that another broker passes on, to be decided here (KIP-590).

Floor: interbroker. What comes out of the envelope is a request as its client might have sent it; it
is decided under the client's address. The answer goes back in an envelope of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

from broker.cluster.metadata import Metadata
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler, holds_refusal, refusal
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.api import ApiKey, request_class
from protocol.messages.headers import decode_request_header, encode_response
from protocol.messages.membership import EnvelopeRequest, EnvelopeResponse
from protocol.wire.schema import Message

SIZE_BYTES = 4

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


def envelope_handlers(metadata: Metadata) -> dict[ApiKey, Handler]:
    """By API, what this broker does with what is passed on to it."""
    return {ApiKey.ENVELOPE: partial(_open, metadata)}


def _open(metadata: Metadata, call: Call, envelope: EnvelopeRequest) -> None:
    order: Any
    try:
        header, position = decode_request_header(envelope.request_data)
        key = PASSED_ON.get(header.request_api_key)
        version = header.request_api_version
        if key is None or version not in key.valid_versions:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"key {header.request_api_key} is no order")
        order, _ = request_class(key).decode(bytes(envelope.request_data), version, position)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def decided(response: Message) -> None:
        frame = encode_response(response, version, header.correlation_id, key)
        call.answer(EnvelopeResponse(response_data=frame[SIZE_BYTES:]))

    def refused(error: ApiError) -> None:
        # Only an order that was never decided may be passed on once more.
        is_lost = error.code is ErrorCode.NOT_CONTROLLER
        if not is_lost and holds_refusal(key):
            # An envelope has a code and no words.
            decided(refusal(key, error))
            return
        code = ErrorCode.REQUEST_TIMED_OUT if is_lost else error.code
        call.answer(EnvelopeResponse(error_code=code))

    if not metadata.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    metadata.decide(order, decided, refused, _host(envelope.client_host_address))


def _host(packed: bytes) -> str | None:
    """Whose order it is; None for the other broker's own."""
    if not packed:
        return None
    try:
        return str(ip_address(bytes(packed)))
    except ValueError:
        return bytes(packed).decode(errors="replace")
