"""Keys and values of `__consumer_offsets`, in Kafka's own encoding.

Floor: coordinators. Pure. Both begin with their version as int16; keys of version 0 and 1 are those
of a committed offset, key version 2 is a group with members. Only committed offsets are written so
far; kinds of keys that this version does not know are skipped when read, as Kafka does.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Packed
from struct import error as StructError

from protocol.errors import CorruptBatch, WireError
from protocol.wire.primitives import Buffer
from protocol.wire.schema import NEVER_FLEXIBLE, Message, int32, int64, string

OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 3
EXPIRING_OFFSET_VALUE_VERSION = 1
"""The only version that carries an expiry of its own; it has no leader epoch."""

_VERSION = Packed(">h")


class OffsetCommitKey(Message, api_key=1, versions=(0, 1), flexible=NEVER_FLEXIBLE):
    """Whose offset, of which partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, api_key=1, versions=(0, 3), flexible=NEVER_FLEXIBLE):
    """The offset as committed. `expire_timestamp` -1: it expires by the broker's retention."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group has read up to in one partition; `offset` is the next to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key under which a committed offset stands."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return _VERSION.pack(OFFSET_KEY_VERSION) + key.encode(OFFSET_KEY_VERSION)


def encode_offset_value(committed: CommittedOffset) -> bytes:
    """The value; a commit with an expiry of its own loses its leader epoch, as in Kafka."""
    version = OFFSET_VALUE_VERSION if committed.expire_ms < 0 else EXPIRING_OFFSET_VALUE_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
    )
    return _VERSION.pack(version) + value.encode(version)


def decode_offset_key(key: Buffer) -> OffsetCommitKey | None:
    """The key of a committed offset; None for keys of another kind."""
    try:
        (version,) = _VERSION.unpack_from(key)
        if version not in OffsetCommitKey.valid_versions:
            return None
        return OffsetCommitKey.decode(key, version, _VERSION.size)[0]
    except (StructError, WireError) as error:
        raise CorruptBatch(f"key of an offsets record: {error}") from error


def decode_offset_value(value: Buffer) -> CommittedOffset:
    """Read a committed offset in any version Kafka has written."""
    try:
        (version,) = _VERSION.unpack_from(value)
        # Version 4 is version 3 in the flexible encoding; Kafka does not write it by default.
        found, _ = OffsetCommitValue.decode(value, version, _VERSION.size)
    except (StructError, WireError) as error:
        raise CorruptBatch(f"value of an offsets record: {error}") from error
    return CommittedOffset(
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        commit_ms=found.commit_timestamp,
        expire_ms=found.expire_timestamp,
    )
