"""Produce and InitProducerId."""

from __future__ import annotations

from broker.server.connection import Call
from broker.server.services import Services
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


def produce(services: Services, call: Call, request: ProduceRequest) -> None:
    """Stage the batches; they are written at the end of this read."""
    services.produces.append(call, request)


def init_producer_id(
    services: Services, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    """A producer id for an idempotent producer; one that wants transactions is told there are none.

    A producer that comes with an id and epoch of its own gets a new id: without a transactional id
    nothing ties the old one to anything.
    """
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=NO_TRANSACTIONS, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    services.producer_ids.give(call)
    return None


NO_TRANSACTIONS = ErrorCode.UNSUPPORTED_VERSION
"""What clients turn into a clear, final error; a retriable code would only make them wait."""
