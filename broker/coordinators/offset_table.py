"""The committed offsets of one shard, by group and partition, and by open transaction.

This module is pure. The table contains the replayed records and decides nothing. An offset that is
committed in a transaction waits in the table for the marker of its producer. When the transaction
commits, the offset takes effect as of its own position in the log. So a commit at a later position
replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.coordinators.group_records import CommittedOffset
from protocol.types import ZERO_UUID, TopicPartition, Uuid


class GroupPartition(NamedTuple):
    """A group and one partition that it reads."""

    group_id: str
    partition: TopicPartition


class OffsetTable:
    """All committed offsets of one shard."""

    __slots__ = ("_pending", "_unstable", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, dict[GroupPartition, CommittedOffset]] = {}
        """The offsets in each producer's open transaction, by producer id."""
        self._unstable: dict[str, Counter[TopicPartition]] = {}
        """The number of open transactions that contain an offset for a partition, by group and
        partition."""

    # Replaying.

    def put(self, place: GroupPartition, committed: CommittedOffset) -> None:
        """Replace a committed offset, unless the new offset is from an earlier position in the
        log."""
        offsets = self.groups.setdefault(place.group_id, {})
        known = offsets.get(place.partition)
        if known is None or known.log_offset <= committed.log_offset:
            offsets[place.partition] = committed

    def put_pending(
        self, producer_id: int, place: GroupPartition, committed: CommittedOffset
    ) -> None:
        """Add an offset of an open transaction. The offset takes effect when the transaction
        commits."""
        pending = self._pending.setdefault(producer_id, {})
        if place not in pending:
            counts = self._unstable.setdefault(place.group_id, Counter())
            counts[place.partition] += 1
        pending[place] = committed

    def remove(self, place: GroupPartition, log_offset: int) -> None:
        """Apply a tombstone: remove the committed offset, and the offsets that wait in open
        transactions.

        Pending offsets after the tombstone in the log stay. A commit in a transaction is replayed
        when it is written, but a tombstone only when it is committed.
        """
        self._remove_committed(place)
        if self.is_unstable(*place):
            for pending in self._pending.values():
                if place in pending and pending[place].log_offset <= log_offset:
                    del pending[place]
                    self._settle(place)

    def _remove_committed(self, place: GroupPartition) -> None:
        offsets = self.groups.get(place.group_id)
        if offsets is not None:
            offsets.pop(place.partition, None)
            if not offsets:
                del self.groups[place.group_id]

    def remove_strange(self, topic_id_of: Callable[[str], Uuid | None]) -> list[GroupPartition]:
        """Remove the offsets of topics that were deleted, even if a new topic has the same name.

        Returns the groups and partitions that have no offset any more.
        """
        emptied = []
        for place in list(self.places()):
            topic_id = topic_id_of(place.partition.topic)
            holders = []
            if self.is_unstable(*place):
                holders = [one for one in self._pending.values() if place in one]
            strange = [one for one in holders if _is_strange(one[place], topic_id)]
            for pending in strange:
                del pending[place]
                self._settle(place)
            committed = self.get(*place)
            if committed is not None and _is_strange(committed, topic_id):
                self._remove_committed(place)
                committed = None
            elif not strange:
                continue
            if committed is None and len(strange) == len(holders):
                emptied.append(place)
        return emptied

    def resolve(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply the end of a producer's transaction: add its offsets to the table, or drop them."""
        for place, committed in self._pending.pop(producer_id, {}).items():
            self._settle(place)
            if is_commit:
                self.put(place, committed)

    def _settle(self, place: GroupPartition) -> None:
        """Decrement the number of open transactions that contain an offset for a group's
        partition."""
        counts = self._unstable[place.group_id]
        counts[place.partition] -= 1
        if not counts[place.partition]:
            del counts[place.partition]
        if not counts:
            del self._unstable[place.group_id]

    # Queries.

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return a group's committed offset for a partition."""
        offsets = self.groups.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group. The caller must not change the result."""
        return self.groups.get(group_id, {})

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Return True if an open transaction contains an offset for this partition."""
        return partition in self._unstable.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Return True if an open transaction contains an offset of a group."""
        return group_id in self._unstable

    def has(self, group_id: str) -> bool:
        """Return True if the group has any committed or pending offset."""
        return group_id in self.groups or group_id in self._unstable

    def group_ids(self) -> set[str]:
        """Return all groups with committed or pending offsets."""
        return self.groups.keys() | self._unstable.keys()

    def is_full(self, group_count_max: int) -> bool:
        """Return True if the limit of groups is reached, including groups with only pending
        offsets."""
        if len(self.groups) + len(self._unstable) < group_count_max:
            return False
        return len(self.group_ids()) >= group_count_max

    def places(self) -> Iterator[GroupPartition]:
        """Yield every group and partition with a committed or pending offset."""
        for group_id in self.groups:
            yield from self.places_of(group_id)
        for group_id in self._unstable:
            if group_id not in self.groups:
                yield from self.places_of(group_id)

    def places_of(self, group_id: str) -> Iterator[GroupPartition]:
        """Yield the partitions of one group that have a committed or pending offset."""
        committed = self.of_group(group_id)
        for partition in committed:
            yield GroupPartition(group_id, partition)
        for partition in self._unstable.get(group_id, ()):
            if partition not in committed:
                yield GroupPartition(group_id, partition)


def _is_strange(committed: CommittedOffset, topic_id: Uuid | None) -> bool:
    """Return True if an offset was committed for another topic with the same name.

    `topic_id` is the id of the present topic; None if there is none.
    """
    return topic_id is None or committed.topic_id not in (topic_id, ZERO_UUID)
