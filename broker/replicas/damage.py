"""Reports logs that were found damaged while in service, so that other brokers lead them.

`Replicas` knows the damaged logs. It renames the folder of such a log when the metadata names
another leader. This module reports damaged logs to the controller with every heartbeat, so that the
controller elects another leader as soon as possible. It also marks the log on the disk, because the
broker can restart before that election.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from broker.replicas.replica import Replica
from broker.replicas.replica_listener import BaseReplicaListener
from broker.replicas.replicas import Replicas
from broker.world import Jobs, World
from protocol.log import fields
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)

MARK_RETRY_MS = 1_000
"""The wait in milliseconds before a rejected mark is retried."""

Report = Callable[[Iterable[TopicPartition]], None]
"""A function that gets all damaged partitions in service, whenever the set changes."""


class Damage(BaseReplicaListener):
    """Reports and marks damaged logs. Add this to `Replicas.listeners`."""

    def __init__(self, world: World, replicas: Replicas, report: Report, files: Jobs) -> None:
        """`files` is the thread that renames folders."""
        self._later = world.later
        self._replicas = replicas
        self._report = report
        self._files = files
        self._reported: frozenset[TopicPartition] = frozenset()

    def damaged(self, replica: Replica) -> None:
        """Report the partition, and mark its log so that the next start finds the mark."""
        self._say()
        self._mark(replica)

    def _mark(self, replica: Replica) -> None:
        """Mark a damaged log. Retry until the disk accepts the mark or the log is out of
        service."""
        if replica not in self._replicas.damaged:
            return
        mark = self._replicas.logs.damage_mark(replica.log, self._replicas.damaged[replica])

        def failed(error: Exception) -> None:
            logger.warning(
                "a log is damaged, but its damage mark could not be written; the broker retries",
                extra=fields(partition=replica.topic_partition, error=error),
            )
            self._later(MARK_RETRY_MS, partial(self._mark, replica))

        self._files.run(mark.perform, lambda _: None, failed)

    def gone(self, replica: Replica) -> None:
        """If this was one of the damaged partitions, report the remaining ones."""
        if replica.topic_partition in self._reported:
            self._say()

    def _say(self) -> None:
        self._reported = frozenset(one.topic_partition for one in self._replicas.damaged)
        self._report(self._reported)
