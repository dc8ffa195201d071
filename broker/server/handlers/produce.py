"""Produce and InitProducerId."""

from __future__ import annotations

from broker.server.connection import Call
from broker.server.services import Services
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TRANSACTIONS = ErrorCode.UNSUPPORTED_VERSION
"""For a transactional id, here and in FindCoordinator.

Tried with the clients: aiokafka, kafka-python and Java fail at once and name it; librdkafka waits
for its time-out, as it does with every code but the one for a lacking authorisation, which would be
untrue. A retriable code would let all of them wait.
"""


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
