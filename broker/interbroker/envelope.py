"""Requests of clients that another broker forwards to this controller (KIP-590).

An envelope contains a client's request. The controller handles the request with the client's
address and user, and sends the answer back in an envelope.
"""

from __future__ import annotations

from functools import partial

from broker.cluster.envelopes import opened, packed_answer
from broker.cluster.metadata import Metadata
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler, holds_refusal, refusal
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.membership import EnvelopeRequest, EnvelopeResponse
from protocol.wire.schema import Message


def envelope_handlers(metadata: Metadata) -> dict[ApiKey, Handler]:
    """Return the handler for requests that other brokers forward."""
    return {ApiKey.ENVELOPE: partial(_open, metadata)}


def _open(metadata: Metadata, call: Call, envelope: EnvelopeRequest) -> None:
    found = opened(envelope)

    def decided(response: Message) -> None:
        call.answer(packed_answer(response, found))

    def refused(error: ApiError) -> None:
        # The request was queued when another controller took over, so its result is unknown.
        # NOT_CONTROLLER would tell the forwarding broker that the request was never handled.
        is_lost = error.code is ErrorCode.NOT_CONTROLLER
        if not is_lost and holds_refusal(found.key):
            # An envelope has an error code but no error message, so put the error into the answer
            # inside the envelope.
            decided(refusal(found.key, error))
            return
        code = ErrorCode.NETWORK_EXCEPTION if is_lost else error.code
        call.answer(EnvelopeResponse(error_code=code))

    if not metadata.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    metadata.decide(found.order, decided, refused, found.host, found.user)
