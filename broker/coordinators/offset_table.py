"""Committed offsets as the log tells them: by group and partition, and by open transaction.

Floor: coordinators. Pure. Holds what has been replayed and decides nothing. A commit inside a
transaction waits here for its producer's marker; when that commits, the offset counts as of the
place in the log where it was written, so a plain commit written behind it stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.coordinators.group_records import CommittedOffset
from protocol.types import ZERO_UUID, TopicPartition, Uuid


class Place(NamedTuple):
    """A partition as one group reads it."""

    group_id: str
    partition: TopicPartition


class OffsetTable:
    """All committed offsets of one shard."""

    __slots__ = ("_pending", "_unstable", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, dict[Place, CommittedOffset]] = {}
        """Producer id -> what its open transaction has committed."""
        self._unstable: dict[str, Counter[TopicPartition]] = {}
        """Group -> partition -> in how many open transactions it is."""

    # Replaying.

    def put(self, place: Place, committed: CommittedOffset) -> None:
        """A committed offset in the place of the last one, unless it is older in the log."""
        offsets = self.groups.setdefault(place.group_id, {})
        known = offsets.get(place.partition)
        if known is None or known.log_offset <= committed.log_offset:
            offsets[place.partition] = committed

    def put_pending(self, producer_id: int, place: Place, committed: CommittedOffset) -> None:
        """An offset that counts when its transaction is committed."""
        pending = self._pending.setdefault(producer_id, {})
        if place not in pending:
            counts = self._unstable.setdefault(place.group_id, Counter())
            counts[place.partition] += 1
        pending[place] = committed

    def remove(self, place: Place, log_offset: int) -> None:
        """A tombstone: the offset is gone, and those that open transactions hold of it.

        What stands behind the tombstone in the log stays: a commit in a transaction is replayed
        when it is written, a tombstone not before it is committed.
        """
        self._remove_committed(place)
        if self.is_unstable(*place):
            for pending in self._pending.values():
                if place in pending and pending[place].log_offset <= log_offset:
                    del pending[place]
                    self._settle(place)

    def _remove_committed(self, place: Place) -> None:
        offsets = self.groups.get(place.group_id)
        if offsets is not None:
            offsets.pop(place.partition, None)
            if not offsets:
                del self.groups[place.group_id]

    def remove_strange(self, topic_id_of: Callable[[str], Uuid | None]) -> list[Place]:
        """Forget what was committed for topics that are gone, whether or not a namesake has come;
        returns the places of which nothing is left."""
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
        """A producer's transaction has ended in this partition."""
        for place, committed in self._pending.pop(producer_id, {}).items():
            self._settle(place)
            if is_commit:
                self.put(place, committed)

    def _settle(self, place: Place) -> None:
        """A place is in one open transaction less."""
        counts = self._unstable[place.group_id]
        counts[place.partition] -= 1
        if not counts[place.partition]:
            del counts[place.partition]
        if not counts:
            del self._unstable[place.group_id]

    # Asking.

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """What a group has committed for a partition."""
        offsets = self.groups.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Everything a group has committed; not to be changed."""
        return self.groups.get(group_id, {})

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has committed this partition, and may yet."""
        return partition in self._unstable.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has committed anything of a group."""
        return group_id in self._unstable

    def has(self, group_id: str) -> bool:
        """Whether anything is known of a group."""
        return group_id in self.groups or group_id in self._unstable

    def group_ids(self) -> set[str]:
        """Every group that anything is known of."""
        return self.groups.keys() | self._unstable.keys()

    def is_full(self, group_count_max: int) -> bool:
        """Whether so many groups are known, if only by an open transaction."""
        if len(self.groups) + len(self._unstable) < group_count_max:
            return False
        return len(self.group_ids()) >= group_count_max

    def places(self) -> Iterator[Place]:
        """Every place with an offset, committed or pending."""
        for group_id in self.groups:
            yield from self.places_of(group_id)
        for group_id in self._unstable:
            if group_id not in self.groups:
                yield from self.places_of(group_id)

    def places_of(self, group_id: str) -> Iterator[Place]:
        """The same of one group."""
        committed = self.of_group(group_id)
        for partition in committed:
            yield Place(group_id, partition)
        for partition in self._unstable.get(group_id, ()):
            if partition not in committed:
                yield Place(group_id, partition)


def _is_strange(committed: CommittedOffset, topic_id: Uuid | None) -> bool:
    """Whether an offset is of another topic than this one, None if there is none of the name."""
    return topic_id is None or committed.topic_id not in (topic_id, ZERO_UUID)
