"""Logs that are found damaged while they serve: others are to lead them.

Floor: replicas. `Replicas` knows which they are, and puts them aside when the metadata say that
another leads. Here the controller is told, with every heartbeat, so that it finds that other as
soon as there is one, and the log is marked, for it may take until after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from broker.replicas.hearing import Deaf
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.world import Jobs, World
from protocol.log import fields
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)

MARK_RETRY_MS = 1_000
"""After the disk has refused to mark a log, it is tried again."""

Tell = Callable[[Iterable[TopicPartition]], None]
"""Hears of all that are damaged and in service, whenever one begins or ceases to be."""


class Damage(Deaf):
    """To be put among `Replicas.hearers`."""

    def __init__(self, world: World, replicas: Replicas, tell: Tell, files: Jobs) -> None:
        """`files` is the thread that renames folders."""
        self._later = world.later
        self._replicas = replicas
        self._tell = tell
        self._files = files
        self._told: frozenset[TopicPartition] = frozenset()

    def damaged(self, replica: Replica) -> None:
        """Have others lead it, and have a start know of it."""
        self._say()
        self._mark(replica)

    def _mark(self, replica: Replica) -> None:
        """Mark its log, as soon as the disk lets us. Out of service, it is out of the way too."""
        if replica not in self._replicas.damaged:
            return
        mark = self._replicas.logs.damage_mark(replica.log, self._replicas.damaged[replica])

        def failed(error: Exception) -> None:
            logger.warning(
                "damaged log not marked",
                extra=fields(partition=replica.topic_partition, error=error),
            )
            self._later(MARK_RETRY_MS, partial(self._mark, replica))

        self._files.run(mark.perform, lambda _: None, failed)

    def gone(self, replica: Replica) -> None:
        """It may have been a damaged one."""
        if replica.topic_partition in self._told:
            self._say()

    def _say(self) -> None:
        self._told = frozenset(one.topic_partition for one in self._replicas.damaged)
        self._tell(self._told)
