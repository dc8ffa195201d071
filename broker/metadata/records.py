"""The records of the metadata log, in Kafka's encoding.

This module is pure. A record's value is frame version 1, the record's type and its version as
unsigned varints, then the body; keys are null. Types and fields are those of Kafka's metadata
records, so Kafka's dump tool can read this log. An unknown type, version or tagged field stops the
start, because an image with missing parts is worse than none. A record is written in the oldest
version that has its fields, so that older brokers can read it if possible.
"""

from __future__ import annotations

from typing import get_args

from protocol.errors import WireError
from protocol.messages.membership import OUR_TAGS
from protocol.types import NO_NODE, Uuid
from protocol.wire.primitives import Buffer, encode_uvarint, read_uvarint
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid_,
)

FRAME_VERSION = 1

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

LEADER_UNCHANGED = -2
"""The leader in a PartitionChangeRecord that does not change the leader.

Any broker id, even that of the present leader, starts a new epoch.
"""

RECOVERY_UNCHANGED, RECOVERED, RECOVERING = -1, 0, 1
"""The states of leader recovery.

RECOVERING: the leader came from an unclean election and has not finished its recovery, so no
replica may join the ISR.
"""

UNFENCED, FENCING_UNCHANGED, FENCED = -1, 0, 1
"""The change of the fence in a BrokerRegistrationChangeRecord."""

IN_CONTROLLED_SHUTDOWN = 1
"""The value in a BrokerRegistrationChangeRecord for a broker that is stopping. No later record
takes this back."""


class BrokerEndpoint(Struct):
    """The advertised address of a broker for one listener name."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    """A feature, and the range of its levels that a broker supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, api_key=0, versions=(1, 3), flexible=0):
    """A broker process has registered. `broker_epoch` is the offset of this record.

    `log_dirs` are the ids of the broker's directories; record versions before 3 have none.
    """

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: Uuid = uuid_()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable=0, default=None)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: list[Uuid] = array(uuid_, since=3, tag=0)


class UnregisterBrokerRecord(Message, api_key=1, versions=(0, 0), flexible=0):
    """A broker was unregistered and will not return."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, api_key=2, versions=(0, 0), flexible=0):
    """A topic was created. The records of its partitions follow in the same batch."""

    name: str = string()
    topic_id: Uuid = uuid_()


class PartitionRecord(Message, api_key=3, versions=(0, 2), flexible=0):
    """A partition was created.

    `directories` are in the order of `replicas`; empty if the record does not have them.
    """

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid_()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=NO_NODE)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = array(uuid_, since=1)
    eligible_leader_replicas: list[int] | None = array(
        int32, since=2, nullable=2, tag=1, default=None
    )
    last_known_elr: list[int] | None = array(int32, since=2, nullable=2, tag=2, default=None)


class ConfigRecord(Message, api_key=4, versions=(0, 0), flexible=0):
    """A setting of a resource was changed. The value None removes the setting."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=0)


class PartitionChangeRecord(Message, api_key=5, versions=(0, 2), flexible=0):
    """A partition was changed. Fields that are None are unchanged.

    Each record raises the partition epoch.
    """

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid_()
    isr: list[int] | None = array(int32, nullable=0, tag=0, default=None)
    leader: int = int32(tag=1, default=LEADER_UNCHANGED)
    replicas: list[int] | None = array(int32, nullable=0, tag=2, default=None)
    removing_replicas: list[int] | None = array(int32, nullable=0, tag=3, default=None)
    adding_replicas: list[int] | None = array(int32, nullable=0, tag=4, default=None)
    leader_recovery_state: int = int8(tag=5, default=RECOVERY_UNCHANGED)
    eligible_leader_replicas: list[int] | None = array(
        int32, since=2, nullable=2, tag=6, default=None
    )
    last_known_elr: list[int] | None = array(int32, since=2, nullable=2, tag=7, default=None)
    directories: list[Uuid] | None = array(uuid_, since=1, nullable=1, tag=8, default=None)


class FenceBrokerRecord(Message, api_key=7, versions=(0, 0), flexible=0):
    """A broker is fenced until it is unfenced.

    `broker_id` and `broker_epoch` identify its registration.
    """

    broker_id: int = int32()
    broker_epoch: int = int64()


class UnfenceBrokerRecord(Message, api_key=8, versions=(0, 0), flexible=0):
    """A broker has replayed its own registration and may serve.

    The fields identify the registration.
    """

    broker_id: int = int32()
    broker_epoch: int = int64()


class RemoveTopicRecord(Message, api_key=9, versions=(0, 0), flexible=0):
    """A topic is removed with all its partitions and settings."""

    topic_id: Uuid = uuid_()


class UserScramCredentialRecord(Message, api_key=11, versions=(0, 0), flexible=0):
    """A user has this credential for one mechanism. It replaces an earlier one.

    Kafka does not have the tagged fields. They are those of `ScramCredential`.
    """

    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()
    is_enrolment: bool = boolean(tag=OUR_TAGS)
    expires_at_ms: int = int64(tag=OUR_TAGS + 1)


class FeatureLevelRecord(Message, api_key=12, versions=(0, 0), flexible=0):
    """From this record on, the cluster has this level of a feature. Level 0 removes the feature."""

    name: str = string()
    feature_level: int = int16()


class QuotaEntityData(Struct):
    """A part of a quota's entity. The name None stands for the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class ClientQuotaRecord(Message, api_key=14, versions=(0, 0), flexible=0):
    """A quota of an entity has this value, or was removed."""

    entity: list[QuotaEntityData] = array(QuotaEntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, api_key=15, versions=(0, 0), flexible=0):
    """A broker has taken a block of producer ids; the next block begins at `next_producer_id`."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, api_key=17, versions=(0, 2), flexible=0):
    """A broker's registration was changed. `log_dirs` is empty if the directories are unchanged."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0, default=FENCING_UNCHANGED)
    in_controlled_shutdown: int = int8(since=1, tag=1)
    log_dirs: list[Uuid] = array(uuid_, since=2, tag=2)


class AccessControlEntryRecord(Message, api_key=18, versions=(0, 0), flexible=0):
    """An ACL was created. The numbers are those of `protocol/security/acl`."""

    id: Uuid = uuid_()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, api_key=19, versions=(0, 0), flexible=0):
    """An ACL was deleted."""

    id: Uuid = uuid_()


class NoOpRecord(Message, api_key=20, versions=(0, 0), flexible=0):
    """A record without effect. When it is committed, the leader has shown that it can commit."""


class RemoveUserScramCredentialRecord(Message, api_key=22, versions=(0, 0), flexible=0):
    """A user has no credential for this mechanism any more."""

    name: str = string()
    mechanism: int = int8()


MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | RemoveUserScramCredentialRecord
)

_CLASSES: dict[int, type[Message]] = {cls.api_key: cls for cls in get_args(MetadataRecord)}


class ImpossibleRecord(Exception):
    """The error for a record that contradicts earlier records. The image is unchanged."""


class UnknownMetadataRecord(Exception):
    """The metadata log has a record that this version cannot read. The broker must not start."""


def encode_record(record: MetadataRecord) -> bytes:
    """Encode a record's value, in the oldest version that has its fields."""
    version = _version_of(record)
    head = (encode_uvarint(number) for number in (FRAME_VERSION, record.api_key, version))
    return b"".join(head) + record.encode(version)


def _version_of(record: Message) -> int:
    """Return the first version that has every field whose value differs from its default."""
    needed = (
        field.since
        for field in record.fields
        if field.since and getattr(record, field.name) != field.new_default()
    )
    return max(record.valid_versions[0], max(needed, default=0))


def record_type(value: Buffer | None) -> int:
    """Return the type of a record (the `api_key` of its class) without decoding it.

    It is -1 if the value has none.
    """
    if value is None:
        return -1
    try:
        _, position = read_uvarint(value, 0)
        return read_uvarint(value, position)[0]
    except (WireError, IndexError):
        return -1


def decode_record(value: Buffer | None) -> MetadataRecord:
    """Decode a record's value.

    Raises UnknownMetadataRecord unless `encode_record` can have written it.
    """
    try:
        if value is None:
            raise UnknownMetadataRecord("the metadata log has a record without a value")
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        cls = _CLASSES.get(api_key)
        if frame_version != FRAME_VERSION or cls is None or version not in cls.valid_versions:
            raise UnknownMetadataRecord(
                f"metadata record type {api_key} version {version} in frame {frame_version} is "
                "not known here: run the version that wrote it, or a later one"
            )
        record, end = cls.decode(value, version, position, is_strict=True)
    except (WireError, IndexError) as error:
        raise UnknownMetadataRecord(
            f"the metadata log has a record that cannot be decoded: {error}"
        ) from error
    if end != len(value):
        raise UnknownMetadataRecord(
            f"metadata record type {api_key} version {version} has extra bytes after its end"
        )
    return record  # type: ignore[return-value]  # one of the classes of _CLASSES
