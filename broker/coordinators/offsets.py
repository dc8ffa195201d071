"""Committed offsets of groups without members: one shard of the group coordinator.

Floor: coordinators. Pure. A group exists as long as it has a committed offset; it is Empty then,
else Dead. Requests are judged against what has been replayed; a commit becomes visible when its
records are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum

from broker.coordinators.group_records import (
    CommittedOffset,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from broker.coordinators.outcome import CoordinatorRecord, Outcome
from protocol.errors import ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.types import TopicPartition
from protocol.wire.primitives import Buffer
from protocol.wire.records import BatchHeader, Marker

GROUP_COUNT_MAX = 10_000
"""Groups of one shard; a commit that would make one more is refused."""


class GroupState(StrEnum):
    """Kafka's words for the states that groups without members can be in."""

    EMPTY = "Empty"
    DEAD = "Dead"


def shard_of(group_id: str, shard_count: int) -> int:
    """The partition of the offsets topic that holds a group: Java's hash of the name."""
    value = 0
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        unit = encoded[position] << 8 | encoded[position + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # Java cannot negate its smallest number; Kafka takes 0 for it.
    return 0 if signed == -(1 << 31) else abs(signed) % shard_count


class GroupShard:
    """The groups whose facts lie in one partition of the offsets topic."""

    def __init__(self, metadata_bytes_max: int, retention_ms: int) -> None:
        self.groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._metadata_bytes_max = metadata_bytes_max
        self._retention_ms = retention_ms

    def replay_batch(self, header: BatchHeader, records: Sequence[CoordinatorRecord]) -> None:
        """Take in one batch of the partition, in the order of the log."""
        for record in records:
            self.replay(record.key, record.value)

    def replay_marker(self, header: BatchHeader, marker: Marker) -> None:
        """No transactional commit is ever taken, so there is none to end."""

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        """Take in one record of the partition, in the order of the log."""
        name = decode_offset_key(key)
        if name is None:
            return
        partition = TopicPartition(name.topic, name.partition)
        if value is not None:
            self.groups.setdefault(name.group, {})[partition] = decode_offset_value(value)
            return
        offsets = self.groups.get(name.group)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self.groups[name.group]

    def state(self, group_id: str) -> GroupState:
        """Whether the group exists."""
        return GroupState.EMPTY if group_id in self.groups else GroupState.DEAD

    def committed(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """What the group has committed for a partition."""
        offsets = self.groups.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def commit(
        self,
        request: OffsetCommitRequest,
        now_ms: int,
        has_partition: Callable[[str, int], bool],
    ) -> Outcome[OffsetCommitResponse]:
        """OffsetCommit: every partition for itself, after the group's own refusals."""
        refusal = self._refusal(request)
        records: list[CoordinatorRecord] = []
        expire_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
        topics = []
        for topic in request.topics:
            answer = OffsetCommitResponseTopic(name=topic.name)
            for partition in topic.partitions:
                code = refusal or self._partition_refusal(topic.name, partition, has_partition)
                answer.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if code is ErrorCode.NONE:
                    committed = CommittedOffset(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata or "",
                        commit_ms=now_ms,
                        expire_ms=expire_ms,
                    )
                    key = encode_offset_key(request.group_id, topic.name, partition.partition_index)
                    records.append(CoordinatorRecord(key, encode_offset_value(committed)))
            topics.append(answer)
        return Outcome(records, OffsetCommitResponse(topics=topics))

    def _refusal(self, request: OffsetCommitRequest) -> ErrorCode:
        is_known = request.group_id in self.groups
        if request.generation_id_or_member_epoch >= 0:
            # No group has members, so nobody can be one of them.
            return ErrorCode.UNKNOWN_MEMBER_ID if is_known else ErrorCode.ILLEGAL_GENERATION
        if not is_known and len(self.groups) >= GROUP_COUNT_MAX:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _partition_refusal(
        self,
        topic: str,
        partition: OffsetCommitRequestPartition,
        has_partition: Callable[[str, int], bool],
    ) -> ErrorCode:
        if not has_partition(topic, partition.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata
        if metadata is not None and len(metadata.encode()) > self._metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def expired(self, now_ms: int) -> list[CoordinatorRecord]:
        """Tombstones for the offsets whose time is over."""
        return self._tombstones(
            (group_id, partition)
            for group_id, offsets in self.groups.items()
            for partition, committed in offsets.items()
            if now_ms >= self._expire_ms(committed)
        )

    def _expire_ms(self, committed: CommittedOffset) -> int:
        if committed.expire_ms >= 0:
            return committed.expire_ms
        return committed.commit_ms + self._retention_ms

    def of_topics(self, topics: Collection[str]) -> list[CoordinatorRecord]:
        """Tombstones for the offsets of topics that are gone; a new one of the name is another."""
        return self._tombstones(
            (group_id, partition)
            for group_id, offsets in self.groups.items()
            for partition in offsets
            if partition.topic in topics
        )

    def _tombstones(self, which: Iterable[tuple[str, TopicPartition]]) -> list[CoordinatorRecord]:
        return [
            CoordinatorRecord(encode_offset_key(group_id, *partition), None)
            for group_id, partition in which
        ]

    def listed(self, states: Sequence[str]) -> list[str]:
        """The groups to list; `states` empty means all, else case does not matter."""
        wanted = {state.lower() for state in states}
        if wanted and GroupState.EMPTY.lower() not in wanted:
            return []
        return sorted(self.groups)
