"""Producer ids for idempotent producers, out of blocks allocated through the metadata log.

Floor: server. Who asks while no block is at hand waits for the next one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.controller.outcome import AllocateProducerIds
from broker.server.connection import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.producer_ids import InitProducerIdResponse

if TYPE_CHECKING:
    from broker.server.services import Services

WAITING_MAX = 1_000


class ProducerIds:
    """Hands out each id once."""

    def __init__(self, services: Services, broker_epoch: int) -> None:
        self._services = services
        self._broker_epoch = broker_epoch
        self._left = iter(range(0))
        self._waiting: deque[Call] = deque()

    def give(self, call: Call) -> None:
        """Answer with a producer id that nobody has had, in its first epoch."""
        producer_id = next(self._left, None)
        if producer_id is not None:
            call.answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
            return
        if len(self._waiting) >= WAITING_MAX:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._waiting.append(call)
        if len(self._waiting) == 1:
            order = AllocateProducerIds(self._services.config.node_id, self._broker_epoch)
            self._services.metadata.submit(order, self._allocated, self._refused)

    def _allocated(self, block: range) -> None:
        self._left = iter(block)
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            self.give(call)

    def _refused(self, error: ApiError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            # Retriable for every client, unlike the storage error, which some take as fatal here.
            call.answer(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
