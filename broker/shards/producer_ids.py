"""Gives ids to idempotent and transactional producers, from blocks that the controller allocates.

If no id is free, the request waits for the next block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.cluster.metadata import Metadata
from broker.controller.outcome import AllocateProducerIds
from protocol.errors import ApiError, ErrorCode

WAITING_MAX = 1_000

Given = Callable[[int], None]
Refused = Callable[[ApiError], None]


class ProducerIds:
    """Gives each producer id once."""

    def __init__(self, metadata: Metadata, node_id: int, broker_epoch: int) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._left = iter(range(0))
        self._waiting: deque[tuple[Given, Refused]] = deque()

    def take(self, given: Given, refused: Refused) -> None:
        """Call `given` with an unused producer id, possibly before this method returns."""
        producer_id = next(self._left, None)
        if producer_id is not None:
            given(producer_id)
            return
        if len(self._waiting) >= WAITING_MAX:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._waiting.append((given, refused))
        if len(self._waiting) == 1:
            order = AllocateProducerIds(self._node_id, self._broker_epoch)
            self._metadata.submit(order, self._allocated, self._refused)

    def _allocated(self, block: range) -> None:
        self._left = iter(block)
        waiting, self._waiting = self._waiting, deque()
        for given, refused in waiting:
            self.take(given, refused)

    def _refused(self, error: ApiError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, refused in waiting:
            # Every client retries this error. In the answer to InitProducerId some clients take a
            # storage error as fatal.
            refused(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
