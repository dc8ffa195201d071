"""Finds expired committed offsets and groups.

This module is pure. The caller first finds expired keys, and later writes their tombstones batch by
batch. A key that was used in the meantime is not deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.coordinators.ages import Ages
from broker.coordinators.group_records import CommittedOffset, encode_group_key, encode_offset_key
from broker.coordinators.group_state import GroupState
from broker.coordinators.membership import MemberGroups
from broker.coordinators.offset_table import OffsetTable
from broker.coordinators.outcome import CoordinatorRecord
from protocol.types import TopicPartition


class ExpiredKey(NamedTuple):
    """The key of an expired committed offset or, without a partition, of a group's generation."""

    group_id: str
    partition: TopicPartition | None

    @property
    def key(self) -> bytes:
        """The key of the tombstone that deletes the offset or the generation."""
        if self.partition is None:
            return encode_group_key(self.group_id)
        return encode_offset_key(self.group_id, *self.partition)


class Expiry:
    """Applies the expiry rules to the groups of one shard."""

    def __init__(
        self, offsets: OffsetTable, members: MemberGroups, retention_ms: int, ages: Ages
    ) -> None:
        self._offsets = offsets
        self._members = members
        self._retention_ms = retention_ms
        self._ages = ages

    def due(self, now_ms: int) -> list[ExpiredKey]:
        """Return the offsets and groups that have expired by this date, each group's offsets before
        the group.

        Pass the result to `tombstones`. The retention time starts with the commit. In a group that
        had members, it starts when the group became Empty, if this is later. Offsets of a topic
        that members read, or of an open transaction, never expire.
        """
        doomed: list[ExpiredKey] = []
        for group_id in sorted(self._offsets.group_ids() | self._members.groups.keys()):
            doomed += [
                ExpiredKey(group_id, partition)
                for partition, committed in self._offsets.of_group(group_id).items()
                if self._is_expired(group_id, partition, committed, now_ms)
            ]
            if self._is_over(group_id, now_ms):
                doomed.append(ExpiredKey(group_id, None))
        return doomed

    def tombstones(self, doomed: Iterable[ExpiredKey], now_ms: int) -> list[CoordinatorRecord]:
        """Return the tombstones of expired keys, without the keys that were used since they were
        found."""
        found: list[CoordinatorRecord] = []
        for one in doomed:
            group_id, partition = one
            if partition is None:
                if self._is_over(group_id, now_ms):
                    found += tombstone_of(group_id, self._members)
                continue
            committed = self._offsets.get(group_id, partition)
            if committed is not None and self._is_expired(group_id, partition, committed, now_ms):
                found.append(CoordinatorRecord(one.key, None))
        return found

    def _is_over(self, group_id: str, now_ms: int) -> bool:
        """Return True if a group has expired: no members, no joining members, and only expired
        offsets."""
        group = self._members.get(group_id)
        if group is None or group.state is not GroupState.EMPTY or group.pending:
            return False
        return not self._offsets.has_pending(group_id) and all(
            self._is_expired(group_id, partition, committed, now_ms)
            for partition, committed in self._offsets.of_group(group_id).items()
        )

    def _is_expired(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, now_ms: int
    ) -> bool:
        if self._offsets.is_unstable(group_id, partition):
            return False
        since_ms = committed.commit_ms
        group = self._members.get(group_id)
        if group is not None and group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                since_ms = max(since_ms, group.state_since_ms)
            elif (
                group.state is not GroupState.STABLE
                or group.topics is None
                or partition.topic in group.topics
            ):
                return False
        if committed.expire_ms >= 0:
            wanted_ms = committed.expire_ms - committed.commit_ms
            return self._ages.of(committed.commit_ms, now_ms) >= wanted_ms
        return self._ages.of(since_ms, now_ms) >= self._retention_ms


def tombstone_of(group_id: str, members: MemberGroups) -> list[CoordinatorRecord]:
    """Return the tombstone of a group's generation, if one was ever stored."""
    group = members.get(group_id)
    if group is None or not group.generation_id:
        return []
    return [CoordinatorRecord(encode_group_key(group_id), None)]
