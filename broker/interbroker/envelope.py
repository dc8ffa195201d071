"""Orders of clients that another broker passes on, to be decided here (KIP-590).

Floor: interbroker. What comes out of the envelope is a request as its client might have sent it; it
is decided under the client's address. The answer goes back in an envelope of its own.
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
    """By API, what this broker does with what is passed on to it."""
    return {ApiKey.ENVELOPE: partial(_open, metadata)}


def _open(metadata: Metadata, call: Call, envelope: EnvelopeRequest) -> None:
    found = opened(envelope)

    def decided(response: Message) -> None:
        call.answer(packed_answer(response, found))

    def refused(error: ApiError) -> None:
        # It was in line when another controller took over. Whoever has passed it on must not take
        # that for an order that was never decided, which is what NOT_CONTROLLER says.
        is_lost = error.code is ErrorCode.NOT_CONTROLLER
        if not is_lost and holds_refusal(found.key):
            # An envelope has a code and no words.
            decided(refusal(found.key, error))
            return
        code = ErrorCode.NETWORK_EXCEPTION if is_lost else error.code
        call.answer(EnvelopeResponse(error_code=code))

    if not metadata.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    metadata.decide(found.order, decided, refused, found.host)
