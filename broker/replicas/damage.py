"""Logs that are found damaged while they serve: others are to lead them.

Floor: replicas. `Replicas` knows which they are, and puts them aside when the metadata say that
another leads. Here the controller is told, with every heartbeat, so that it finds that other as
soon as there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.replicas.hearing import Deaf
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from protocol.types import TopicPartition

Tell = Callable[[Iterable[TopicPartition]], None]
"""Hears of all that are damaged and in service, whenever one begins or ceases to be."""


class Damage(Deaf):
    """To be put among `Replicas.hearers`."""

    def __init__(self, replicas: Replicas, tell: Tell) -> None:
        self._replicas = replicas
        self._tell = tell
        self._told: frozenset[TopicPartition] = frozenset()

    def damaged(self, replica: Replica) -> None:
        """Have others lead it."""
        self._say()

    def gone(self, replica: Replica) -> None:
        """It may have been a damaged one."""
        if replica.topic_partition in self._told:
            self._say()

    def _say(self) -> None:
        self._told = frozenset(one.topic_partition for one in self._replicas.damaged)
        self._tell(self._told)
