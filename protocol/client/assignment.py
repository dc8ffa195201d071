"""Subscriptions and assignments of a group's members, as Kafka's clients encode them.

This module is pure. The leader of a group reads the members' subscriptions and writes their
assignments. Java, librdkafka and the Python clients use the same bytes, so a group can mix them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from struct import Struct as Packed
from struct import error as StructError
from typing import TypeAlias, TypeVar

from protocol.errors import UnknownVersion, WireError
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)
from protocol.types import TopicPartition
from protocol.wire.schema import Message

NO_GENERATION = -1

_VERSION = Packed(">h")
_INT32 = Packed(">i")
_WRITTEN_VERSION = 3

M = TypeVar("M", bound=Message)

Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""The partitions of each member id."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A group member as the leader knows it. It got the partitions `owned` in `generation_id`."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """The sort key of members, as in Java: static members come first, ordered by instance
        id."""
        if self.group_instance_id is not None:
            return (False, self.group_instance_id)
        return (True, self.member_id)


def encode_subscription(
    topics: Collection[str],
    owned: Collection[TopicPartition],
    generation_id: int,
    user_data: bytes | None = None,
) -> bytes:
    """Return a member's metadata for JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(owned).items()
        ],
        generation_id=generation_id,
    )
    return _VERSION.pack(_WRITTEN_VERSION) + message.encode(_WRITTEN_VERSION)


def decode_subscription(
    member_id: str,
    metadata: bytes,
    group_instance_id: str | None = None,
    *,
    trusts_user_data: bool = False,
) -> MemberSubscription:
    """Decode a member's metadata. Raises WireError for malformed bytes.

    Version 1 added a field for the owned partitions, and version 2 a field for their generation. In
    earlier versions both are in the assignor's user data. With `trusts_user_data` they are always
    read from the user data, because eager members give their partitions back before they join.
    """
    message, version = _decode(ConsumerProtocolSubscription, metadata)
    owned = [
        TopicPartition(held.topic, index)
        for held in message.owned_partitions
        for index in held.partitions
    ]
    generation_id = message.generation_id
    if trusts_user_data:
        owned, generation_id = decode_sticky_data(message.user_data or b"")
    elif version < 2 and message.user_data:
        previous, generation_id = decode_sticky_data(message.user_data)
        owned = owned or previous
    return MemberSubscription(
        member_id,
        tuple(dict.fromkeys(message.topics)),
        tuple(dict.fromkeys(owned)),
        generation_id,
        group_instance_id,
    )


def encode_assignment(tps: Iterable[TopicPartition]) -> bytes:
    """Return one member's partitions for SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(tps).items()
        ]
    )
    return _VERSION.pack(_WRITTEN_VERSION) + message.encode(_WRITTEN_VERSION)


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """Decode the assignment from SyncGroup.

    It is empty if the leader assigned nothing to the member.
    """
    if not assignment:
        return frozenset()
    message, _ = _decode(ConsumerProtocolAssignment, assignment)
    return frozenset(
        TopicPartition(given.topic, index)
        for given in message.assigned_partitions
        for index in given.partitions
    )


def encode_sticky_data(owned: Collection[TopicPartition], generation_id: int) -> bytes:
    """Return the user data of the assignor `sticky` of Java and librdkafka."""
    by_topic = _by_topic(owned)
    parts = [_INT32.pack(len(by_topic))]
    for topic, partitions in by_topic.items():
        raw = topic.encode()
        parts += [_VERSION.pack(len(raw)), raw, _INT32.pack(len(partitions))]
        parts += map(_INT32.pack, partitions)
    return b"".join([*parts, _INT32.pack(generation_id)])


def encode_generation(generation_id: int) -> bytes:
    """Return the user data of Java's assignor `cooperative-sticky`."""
    return _INT32.pack(generation_id)


def decode_sticky_data(data: bytes) -> tuple[list[TopicPartition], int]:
    """Decode the user data of `sticky` or `cooperative-sticky`.

    Other bytes count as empty, as in Java.
    """
    if len(data) == _INT32.size:
        return [], _INT32.unpack(data)[0]
    held: list[TopicPartition] = []
    try:
        topic_count = _count(_INT32, data, 0)
        position = _INT32.size
        for _ in range(topic_count):
            size = _count(_VERSION, data, position)
            position += _VERSION.size
            topic = data[position : position + size].decode()
            position += size
            count = _count(_INT32, data, position)
            position += _INT32.size
            for _ in range(count):
                held.append(TopicPartition(topic, _INT32.unpack_from(data, position)[0]))
                position += _INT32.size
        # The first version of this format had no generation.
        generation_id = (
            _INT32.unpack_from(data, position)[0] if position < len(data) else NO_GENERATION
        )
    except (StructError, ValueError):
        return [], NO_GENERATION
    return held, generation_id


def _count(packed: Packed, data: bytes, position: int) -> int:
    """Read a size or count.

    Raises ValueError for a negative number, because it would move the read position backwards.
    """
    (count,) = packed.unpack_from(data, position)
    if count < 0:
        raise ValueError(f"found count {count}, expected 0 or more")
    return int(count)


def _decode(cls: type[M], data: bytes) -> tuple[M, int]:
    """Decode the version at the start of the bytes, and return the message and the version."""
    try:
        (version,) = _VERSION.unpack_from(data)
    except StructError:
        raise WireError(
            f"{cls.__name__} ends inside its version, after {len(data)} bytes"
        ) from None
    if version < 0:
        raise UnknownVersion(f"{cls.__name__} has version {version}, expected 0 or more")
    known = min(version, cls.valid_versions[-1])
    message, _ = cls.decode(data, known, _VERSION.size)
    return message, version


def _by_topic(tps: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(tps):
        by_topic[topic].append(partition)
    return by_topic
