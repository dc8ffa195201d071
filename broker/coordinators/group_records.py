"""Keys and values of `__consumer_offsets`, in Kafka's own encoding.

This module is pure. Key and value both start with their version as int16. Key versions 0 and 1 are
a committed offset, key version 2 is a group with members. Values are written in versions that Kafka
3.5 can read. All versions that Kafka has written can be read. Unknown kinds of keys are skipped, as
in Kafka. Subscriptions and assignments stay as clients encoded them; only the topics of a
subscription are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct as Packed
from struct import error as StructError

from broker.coordinators.group_roster import Member
from broker.coordinators.outcome import CoordinatorRecord
from protocol.errors import CorruptBatch, WireError
from protocol.types import ZERO_UUID, Uuid
from protocol.wire.primitives import Buffer
from protocol.wire.schema import (
    NEVER_FLEXIBLE,
    Message,
    Struct,
    array,
    bytes_,
    int16,
    int32,
    int64,
    string,
    uuid_,
)

OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 4
"""The version of an offset's value that Kafka 4.3.1 writes.

All Kafka versions from 3.5 on can read it, because they skip unknown tagged fields (KIP-915).
"""
PLAIN_OFFSET_VALUE_VERSION = 3
"""The version of the value for an offset whose topic id is unknown."""
EXPIRING_OFFSET_VALUE_VERSION = 1
"""The only version of the value with its own time of expiry. It has no leader epoch."""

GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3

_VERSION = Packed(">h")


class OffsetCommitKey(Message, api_key=1, versions=(0, 1), flexible=NEVER_FLEXIBLE):
    """The key of a committed offset: the group, the topic and the partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, api_key=1, versions=(0, 4), flexible=4):
    """The value of a committed offset.

    If `expire_timestamp` is -1, the broker's retention applies.
    """

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = uuid_(since=4, tag=0, ignorable=True)


class GroupMetadataKey(Message, api_key=2, versions=(2, 2), flexible=NEVER_FLEXIBLE):
    """The key of a group's generation: the name of the group."""

    group: str = string()


class GroupMetadataMember(Struct):
    """One member of a generation. `subscription` is its metadata for the chosen protocol."""

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message, api_key=2, versions=(0, 4), flexible=4):
    """The value of a group's generation. A generation without members means an empty group.

    Times are in milliseconds.
    """

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


class ConsumerSubscription(Message, api_key=0, versions=(0, 0), flexible=NEVER_FLEXIBLE):
    """The start of a consumer's subscription. All versions of the subscription have it."""

    version: int = int16()
    topics: list[str] = array(string)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in one partition: the next offset to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: Uuid = ZERO_UUID
    """The id of the topic at the time of the commit; zero if unknown."""
    log_offset: int = field(default=-1, compare=False)
    """The offset of the commit's batch in the log. It is not part of the commit."""


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return _VERSION.pack(OFFSET_KEY_VERSION) + key.encode(OFFSET_KEY_VERSION)


def encode_offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of a committed offset.

    As in Kafka, a commit with its own time of expiry is stored without its leader epoch and its
    topic id.
    """
    version = OFFSET_VALUE_VERSION
    if committed.expire_ms >= 0:
        version = EXPIRING_OFFSET_VALUE_VERSION
    elif committed.topic_id == ZERO_UUID:
        version = PLAIN_OFFSET_VALUE_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
        topic_id=committed.topic_id,
    )
    return _VERSION.pack(version) + value.encode(version)


def decode_offset_key(key: Buffer) -> OffsetCommitKey | None:
    """Return the group and partition in the key of a committed offset; None for other kinds of
    keys."""
    try:
        (version,) = _VERSION.unpack_from(key)
        if version not in OffsetCommitKey.valid_versions:
            return None
        return OffsetCommitKey.decode(key, version, _VERSION.size)[0]
    except (StructError, WireError) as error:
        raise CorruptBatch(f"cannot decode the key of a committed offset: {error}") from error


def decode_offset_value(value: Buffer, log_offset: int = -1) -> CommittedOffset:
    """Return the committed offset in a value, in any version that Kafka has written."""
    try:
        (version,) = _VERSION.unpack_from(value)
        # Version 4 is version 3 in the flexible encoding. Kafka writes it from 4.0 on.
        found, _ = OffsetCommitValue.decode(value, version, _VERSION.size)
    except (StructError, WireError) as error:
        raise CorruptBatch(f"cannot decode the value of a committed offset: {error}") from error
    return CommittedOffset(
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        commit_ms=found.commit_timestamp,
        expire_ms=found.expire_timestamp,
        topic_id=found.topic_id,
        log_offset=log_offset,
    )


def encode_group_key(group_id: str) -> bytes:
    """Return the key of a group's generation."""
    return _VERSION.pack(GROUP_KEY_VERSION) + GroupMetadataKey(group=group_id).encode(
        GROUP_KEY_VERSION
    )


def encode_group_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    """Return the record that stores a generation."""
    return CoordinatorRecord(
        encode_group_key(group_id),
        _VERSION.pack(GROUP_VALUE_VERSION) + value.encode(GROUP_VALUE_VERSION),
    )


def stored_member(member: Member, protocol: str | None, assignment: bytes) -> GroupMetadataMember:
    """Return a member as it is stored, with its metadata for the chosen protocol only."""
    return GroupMetadataMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def decode_group_key(key: Buffer) -> str | None:
    """Return the group id in the key of a group's generation; None for other kinds of keys."""
    try:
        (version,) = _VERSION.unpack_from(key)
        if version != GROUP_KEY_VERSION:
            return None
        return GroupMetadataKey.decode(key, version, _VERSION.size)[0].group
    except (StructError, WireError) as error:
        raise CorruptBatch(f"cannot decode the key of a group record: {error}") from error


def decode_group_value(value: Buffer) -> GroupMetadataValue:
    """Return the generation in a value, in any version that Kafka has written."""
    try:
        (version,) = _VERSION.unpack_from(value)
        return GroupMetadataValue.decode(value, version, _VERSION.size)[0]
    except (StructError, WireError) as error:
        raise CorruptBatch(f"cannot decode the value of a group record: {error}") from error


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None if any of them is not a consumer's
    subscription."""
    topics: set[str] = set()
    for said in subscriptions:
        try:
            topics.update(ConsumerSubscription.decode(said, 0)[0].topics)
        except WireError:
            return None
    return frozenset(topics)
