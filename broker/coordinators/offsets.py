"""One shard of the group coordinator: the groups of one partition of the offsets topic.

This module is pure. Stored state (committed offsets, generations) changes only by replay. `members`
has the members of each group and decides which commits are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple, Protocol

from broker.coordinators.ages import Ages
from broker.coordinators.expiry import Expiry, tombstone_of
from broker.coordinators.group_rebalance import CONSUMER_PROTOCOL_TYPE
from broker.coordinators.group_records import (
    CommittedOffset,
    GroupMetadataValue,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from broker.coordinators.group_state import GroupState
from broker.coordinators.group_terms import GroupLimits, Moment
from broker.coordinators.membership import MemberGroups
from broker.coordinators.offset_table import GroupPartition, OffsetTable
from broker.coordinators.outcome import CoordinatorRecord, ShardOutcome
from broker.settings import LONG_MAX
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.types import TopicPartition, Uuid
from protocol.wire.primitives import Buffer
from protocol.wire.records import BatchHeader, Marker

TopicWith = Callable[[str, int], Uuid | None]
"""A function that returns the id of the topic with a partition; None if there is no such
partition."""


class OffsetToCommit(Protocol):
    """One partition in a request OffsetCommit or TxnOffsetCommit."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class ListedState(NamedTuple):
    """One group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: GroupState


class GroupShard:
    """The groups that are stored in one partition of the offsets topic."""

    def __init__(
        self,
        limits: GroupLimits,
        metadata_units_max: int,
        retention_ms: int,
        random: Random,
        ages: Ages | None = None,
    ) -> None:
        """Create an empty shard. `metadata_units_max` limits the metadata of an offset, in UTF-16
        units as in Kafka. Without `ages`, the wall clock is assumed never to have been set."""
        self.offsets = OffsetTable()
        self.members = MemberGroups(limits, random)
        self._group_count_max = limits.group_count_max
        self._metadata_units_max = metadata_units_max
        self.expiry = Expiry(self.offsets, self.members, retention_ms, ages or Ages())
        self._stored: dict[str, GroupMetadataValue] | None = {}
        """The last generation of each group while the log is replayed; None afterwards."""
        self._voided: dict[GroupPartition, int] = {}
        """The offsets of removed topics whose tombstones are not committed yet, each with a
        position in the log. Older records of the offset, below that position, are ignored."""

    # Replaying.

    def replay_batch(self, header: BatchHeader, records: Sequence[CoordinatorRecord]) -> None:
        """Replay one batch of the partition, in the order of the log."""
        producer_id = header.producer_id if header.is_transactional else None
        for record in records:
            self.replay(record.key, record.value, header.base_offset, producer_id)

    def replay(
        self,
        key: Buffer,
        value: Buffer | None,
        log_offset: int = -1,
        producer_id: int | None = None,
    ) -> None:
        """Replay one record. With `producer_id` the record is part of this producer's
        transaction."""
        name = decode_offset_key(key)
        if name is None:
            self._replay_group(key, value)
            return
        place = GroupPartition(name.group, TopicPartition(name.topic, name.partition))
        if value is None:
            self.offsets.remove(place, log_offset)
            # The tombstone must not remove commits that were written after the removal of the
            # topic.
            if log_offset >= self._voided.get(place, log_offset):
                self._voided.pop(place, None)
        elif log_offset < self._voided.get(place, log_offset):
            # The topic was removed while this commit was being written, so ignore the commit.
            return
        elif producer_id is None:
            self.offsets.put(place, decode_offset_value(value, log_offset))
        else:
            committed = decode_offset_value(value, log_offset)
            self.offsets.put_pending(producer_id, place, committed)

    def _replay_group(self, key: Buffer, value: Buffer | None) -> None:
        group_id = decode_group_key(key)
        if group_id is None:
            return
        if self._stored is None:
            if value is None:
                self.members.forget(group_id)
        elif value is None:
            self._stored.pop(group_id, None)
        else:
            self._stored[group_id] = decode_group_value(value)

    def replay_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Apply the end of a transaction of `header.producer_id`: add its offsets to the table, or
        drop them."""
        self.offsets.resolve(header.producer_id, is_commit=marker.is_commit)

    def loaded(self, moment: Moment) -> None:
        """Restore the groups from their last generations, because the whole log has been
        replayed."""
        stored, self._stored = self._stored or {}, None
        self.members.restore(stored, moment)

    # Committing.

    def commit(
        self, request: OffsetCommitRequest, moment: Moment, topic_with: TopicWith
    ) -> ShardOutcome[OffsetCommitResponse]:
        """Handle OffsetCommit, each partition separately. Raises ApiError if the group refuses all
        of them."""
        if refusal := self._commit_refusal(request, moment):
            raise ApiError(refusal)
        records: list[CoordinatorRecord] = []
        retention_ms = request.retention_time_ms
        expire_ms = min(moment.wall_ms + retention_ms, LONG_MAX) if retention_ms >= 0 else -1
        response = OffsetCommitResponse()
        for topic in request.topics:
            answer = OffsetCommitResponseTopic(name=topic.name)
            for partition in topic.partitions:
                topic_id = topic_with(topic.name, partition.partition_index)
                code = self._refusal_of(topic_id, partition)
                answer.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if topic_id is not None and code is ErrorCode.NONE:
                    name = request.group_id, topic.name, topic_id
                    records.append(_record(*name, partition, moment.wall_ms, expire_ms))
            response.topics.append(answer)
        return ShardOutcome(records, response)

    def _commit_refusal(self, request: OffsetCommitRequest, moment: Moment) -> ErrorCode:
        group_id, generation_id = request.group_id, request.generation_id_or_member_epoch
        group = self.members.get(group_id)
        if group is not None:
            return group.check_commit(
                request.member_id, request.group_instance_id, generation_id, moment
            )
        is_known = self.offsets.has(group_id)
        if generation_id >= 0:
            # The group has no members, so the sender is not a member.
            return ErrorCode.UNKNOWN_MEMBER_ID if is_known else ErrorCode.ILLEGAL_GENERATION
        return self._room_for(group_id)

    def _room_for(self, group_id: str) -> ErrorCode:
        if not self.offsets.has(group_id) and self.offsets.is_full(self._group_count_max):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, now_ms: int, topic_with: TopicWith
    ) -> ShardOutcome[TxnOffsetCommitResponse]:
        """Handle TxnOffsetCommit by the rules of a commit. The records take effect when the
        transaction commits. `now_ms` is wall-clock time. The records must be written as part of the
        producer's transaction. Raises ApiError if the group refuses all partitions."""
        if refusal := self._transaction_refusal(request):
            raise ApiError(refusal)
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            answer = TxnOffsetCommitResponseTopic(name=topic.name)
            for partition in topic.partitions:
                topic_id = topic_with(topic.name, partition.partition_index)
                code = self._refusal_of(topic_id, partition)
                answer.partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if topic_id is not None and code is ErrorCode.NONE:
                    name = request.group_id, topic.name, topic_id
                    records.append(_record(*name, partition, now_ms, -1))
            response.topics.append(answer)
        return ShardOutcome(records, response)

    def _transaction_refusal(self, request: TxnOffsetCommitRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.members.get(request.group_id)
        if group is not None:
            return group.check_commit_in_transaction(
                request.member_id, request.group_instance_id, request.generation_id
            )
        if request.generation_id >= 0:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._room_for(request.group_id)

    def _refusal_of(self, topic_id: Uuid | None, partition: OffsetToCommit) -> ErrorCode:
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata
        # Kafka documents this limit in bytes but counts Java characters, which are UTF-16 units.
        if (
            metadata is not None
            and len(metadata.encode("utf-16-le")) > 2 * self._metadata_units_max
        ):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # Queries.

    def state(self, group_id: str) -> GroupState:
        """Return the group's state: Empty for a group that has only offsets, Dead for an unknown
        group."""
        group = self.members.get(group_id)
        if group is not None:
            return group.state
        return GroupState.EMPTY if self.offsets.has(group_id) else GroupState.DEAD

    def committed(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the group's committed offset for a partition."""
        return self.offsets.get(group_id, partition)

    def listed(self, states: Sequence[str]) -> Iterator[ListedState]:
        """Yield the groups for ListGroups.

        Empty `states` means all states; upper and lower case do not matter.
        """
        wanted = {state.lower() for state in states}
        for group_id in sorted(self.offsets.group_ids() | self.members.groups.keys()):
            state = self.state(group_id)
            if not wanted or state.lower() in wanted:
                group = self.members.get(group_id)
                protocol_type = group.protocol_type if group is not None else None
                yield ListedState(group_id, protocol_type or "", state)

    # Deleting.

    def delete_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Return tombstones for all records of a group without members, the generation's tombstone
        last. Raises ApiError if the group is unknown or has members."""
        state = self.state(group_id)
        if state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        tombstones = self._tombstones(self.offsets.places_of(group_id))
        return tombstones + tombstone_of(group_id, self.members)

    def delete_offsets(
        self, request: OffsetDeleteRequest, topic_with: TopicWith
    ) -> ShardOutcome[OffsetDeleteResponse]:
        """Handle OffsetDelete.

        Offsets of topics that the group's members read are not deleted. Raises ApiError.
        """
        group_id = request.group_id
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if self.state(group_id) is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        read = self._topics_read(group_id)
        records: list[CoordinatorRecord] = []
        response = OffsetDeleteResponse(error_code=ErrorCode.NONE)
        for topic in request.topics:
            answer = OffsetDeleteResponseTopic(name=topic.name)
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                if topic_with(topic.name, index) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif read is None or topic.name in read:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif self.offsets.get(group_id, TopicPartition(topic.name, index)) is not None:
                    place = GroupPartition(group_id, TopicPartition(topic.name, index))
                    records += self._tombstones([place])
                answer.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                )
            response.topics.append(answer)
        return ShardOutcome(records, response)

    def _topics_read(self, group_id: str) -> Collection[str] | None:
        """Return the topics that the group's members read; None if unknown."""
        group = self.members.get(group_id)
        if group is None or group.state is GroupState.EMPTY:
            return ()
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return group.topics

    def of_topics(self, topics: Collection[str]) -> list[CoordinatorRecord]:
        """Return tombstones for the offsets of deleted topics.

        Without them, a new topic with the same name would continue at the old offsets.
        """
        return self._tombstones(
            place for place in self.offsets.places() if place.partition.topic in topics
        )

    def strange(self, topic_id_of: Callable[[str], Uuid | None]) -> list[CoordinatorRecord]:
        """Return tombstones for topics that were deleted while this shard was not loaded.

        The offsets leave the table at once. If a group also has an offset of a new topic with the
        same name, there is no tombstone, because it would delete the new offset too. The next load
        finds the old offset by its topic id.
        """
        return self._tombstones(self.offsets.remove_strange(topic_id_of))

    def void(self, tombstones: Iterable[CoordinatorRecord], end_offset: int) -> None:
        """Ignore records of removed topics below `end_offset`, until their tombstones are
        committed."""
        for record in tombstones:
            name = decode_offset_key(record.key)
            if name is not None:
                place = GroupPartition(name.group, TopicPartition(name.topic, name.partition))
                self.offsets.remove(place, end_offset)
                self._voided[place] = end_offset

    def voided(self) -> list[CoordinatorRecord]:
        """Return the tombstones that are not committed yet. If a group has committed an offset for
        the partition again, there is no tombstone, because the new offset is later in the log. An
        offset in an open transaction does not prevent the tombstone, because the transaction can
        abort."""
        for place in [one for one in self._voided if self.offsets.get(*one) is not None]:
            del self._voided[place]
        return self._tombstones(one for one in self._voided if not self.offsets.is_unstable(*one))

    def _tombstones(self, places: Iterable[GroupPartition]) -> list[CoordinatorRecord]:
        return [
            CoordinatorRecord(encode_offset_key(place.group_id, *place.partition), None)
            for place in places
        ]


def _record(
    group_id: str,
    topic: str,
    topic_id: Uuid,
    partition: OffsetToCommit,
    commit_ms: int,
    expire_ms: int,
) -> CoordinatorRecord:
    committed = CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_ms=commit_ms,
        expire_ms=expire_ms,
        topic_id=topic_id,
    )
    key = encode_offset_key(group_id, topic, partition.partition_index)
    return CoordinatorRecord(key, encode_offset_value(committed))
