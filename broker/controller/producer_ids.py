"""Gives producer ids to brokers in blocks, so that a single id needs no commit.

This module is pure. When the broker's process ends, the unused ids of its block are lost. The ids
suffice for a thousand blocks a second for 290,000 years.
"""

from __future__ import annotations

from broker.controller.alter_partition import check_broker_epoch
from broker.controller.outcome import AllocateProducerIds, ControllerDecision
from broker.metadata.image import MetadataImage
from broker.metadata.records import ProducerIdsRecord
from protocol.messages.producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

PRODUCER_ID_BLOCK_SIZE = 1_000


def allocate_producer_ids(
    order: AllocateProducerIds, image: MetadataImage
) -> ControllerDecision[range]:
    """Allocate the next block of producer ids."""
    first = image.next_producer_id
    block = range(first, first + PRODUCER_ID_BLOCK_SIZE)
    record = ProducerIdsRecord(
        broker_id=order.node_id, broker_epoch=order.broker_epoch, next_producer_id=block.stop
    )
    return ControllerDecision([record], block)


def allocate_block(
    request: AllocateProducerIdsRequest, image: MetadataImage
) -> ControllerDecision[AllocateProducerIdsResponse]:
    """Decide the AllocateProducerIds request of another broker.

    Raises the errors of `check_broker_epoch`.
    """
    check_broker_epoch(request.broker_id, request.broker_epoch, image)
    order = AllocateProducerIds(request.broker_id, request.broker_epoch)
    outcome = allocate_producer_ids(order, image)
    block = outcome.reply
    response = AllocateProducerIdsResponse(
        producer_id_start=block.start, producer_id_len=len(block)
    )
    return ControllerDecision(outcome.records, response)
