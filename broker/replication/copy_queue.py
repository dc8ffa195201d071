"""The queue of large copies: a broker copies only a few partitions with many missing bytes at once.

This module is pure. Copies that run at the same time share the disk and the network, so all of them
would end late. With a queue, the first copies end early and their partitions get their new replicas
early. Small copies never wait, because a partition with few missing bytes is in sync soon.

Internal topics go first, because groups and transactions depend on them. Then the smallest copy
goes first. A running copy continues, unless a copy of an internal topic needs its slot. The
follower alone decides the order, so a reassignment does not depend on a running client.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.replication.follower_steps import PartitionId

LARGE_BYTES = 16 << 20
"""The number of missing bytes above which a copy is large."""

LARGE_COPIES_MAX = 8
"""The largest number of large copies that one broker fetches at a time, from all leaders."""


@dataclass(frozen=True, slots=True, order=True)
class LargeCopy:
    """One large copy, in the order of the queue."""

    is_client_topic: bool
    missing_bytes: int
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class QueueMove:
    """The copies that must pause, and the copies that can continue."""

    paused: tuple[PartitionId, ...] = ()
    resumed: tuple[PartitionId, ...] = ()


NOTHING = QueueMove()


class CopyQueue:
    """The large copies of one broker: the running ones and the waiting ones."""

    __slots__ = ("_running", "_waiting")

    def __init__(self) -> None:
        self._running: dict[PartitionId, LargeCopy] = {}
        self._waiting: dict[PartitionId, LargeCopy] = {}

    @property
    def running(self) -> tuple[PartitionId, ...]:
        """The large copies that are running and not waiting in the queue."""
        return tuple(self._running)

    def sized(self, partition: PartitionId, missing_bytes: int, *, is_internal: bool) -> QueueMove:
        """Set the number of bytes that a copy still lacks. A copy that is no longer large leaves
        the queue."""
        if missing_bytes <= LARGE_BYTES:
            return self.leave(partition)
        copy = LargeCopy(not is_internal, missing_bytes, partition)
        if partition in self._running:
            self._running[partition] = copy
            return NOTHING
        if partition in self._waiting:
            self._waiting[partition] = copy
            return NOTHING
        if len(self._running) < LARGE_COPIES_MAX:
            self._running[partition] = copy
            return NOTHING
        last = max(self._running.values())
        if is_internal and last.is_client_topic:
            del self._running[last.partition]
            self._waiting[last.partition] = last
            self._running[partition] = copy
            return QueueMove(paused=(last.partition,))
        self._waiting[partition] = copy
        return QueueMove(paused=(partition,))

    def leave(self, partition: PartitionId) -> QueueMove:
        """Remove a copy that has ended, or that cannot go on for now.

        A copy whose leader does not answer leaves too. Otherwise it would keep a slot that another
        copy could use.
        """
        if self._waiting.pop(partition, None) is not None:
            return QueueMove(resumed=(partition,))
        if self._running.pop(partition, None) is None or not self._waiting:
            return NOTHING
        first = min(self._waiting.values())
        del self._waiting[first.partition]
        self._running[first.partition] = first
        return QueueMove(resumed=(first.partition,))
