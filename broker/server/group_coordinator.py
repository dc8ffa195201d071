"""The group coordinator's driver: what it does beyond loading shards and committing outcomes.

Floor: server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker.controller.image import OFFSETS_TOPIC
from broker.coordinators.offsets import GroupShard
from broker.coordinators.outcome import CoordinatorRecord, Outcome
from broker.server.coordinator_driver import CoordinatorDriver
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields

if TYPE_CHECKING:
    from broker.server.services import Services

logger = logging.getLogger(__name__)

FORGET_COUNT_MAX = 1_000
"""Tombstones in one batch."""


class GroupCoordinator(CoordinatorDriver[GroupShard]):
    """All groups of this broker."""

    def __init__(self, services: Services) -> None:
        config = services.config
        super().__init__(
            services,
            OFFSETS_TOPIC,
            lambda: GroupShard(
                config.offset_metadata_max_bytes, config.offsets_retention_minutes * 60_000
            ),
            "committed offsets cannot be loaded",
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        )

    def expire(self, now_ms: int) -> None:
        """Write tombstones for the offsets whose time is over."""
        self._forget(lambda shard: shard.expired(now_ms))

    def topics_removed(self, names: Collection[str]) -> None:
        """Write tombstones for the offsets of topics that are gone."""
        self._forget(lambda shard: shard.of_topics(names))

    def _forget(self, choose: Callable[[GroupShard], list[CoordinatorRecord]]) -> None:
        for loaded, shard in self.loaded():
            records = choose(shard)
            for start in range(0, len(records), FORGET_COUNT_MAX):
                outcome = Outcome(records[start : start + FORGET_COUNT_MAX], None)
                self.submit(loaded, outcome, lambda _: None, _not_forgotten)


def _not_forgotten(error: ApiError) -> None:
    logger.warning("offsets could not be removed", extra=fields(error=error))
