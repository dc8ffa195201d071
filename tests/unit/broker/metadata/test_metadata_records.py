"""Metadata records: the records that the first release wrote, and those that only a cluster
writes."""

import tarfile
from pathlib import Path

import pytest

from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import ImpossibleRecord, MetadataDelta, MetadataImage
from broker.metadata.records import (
    FENCED,
    IN_CONTROLLED_SHUTDOWN,
    RECOVERED,
    RECOVERING,
    UNFENCED,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownMetadataRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from protocol.types import Uuid
from protocol.wire.records import HEADER_BYTES, iterate_records, read_header

FIXTURE = Path(__file__).parents[3] / "fixtures" / "broker-1.0.0-rc1.tar.xz"
LOG = "__cluster_metadata-0/00000000000000000000.log"
TOPIC_ID, DISK, OTHER_DISK = Uuid(int=0xA), Uuid(int=0xB), Uuid(int=0xC)
VERSION_AT = 2
"""The position of the version in a value, behind the version of the frame and a type below 128."""


def values_of_the_first_release() -> list[bytes]:
    with tarfile.open(FIXTURE) as archive:
        member = archive.extractfile(LOG)
        assert member is not None
        log = member.read()
    values = []
    position = 0
    # The log file is preallocated, so zeros follow the last batch.
    while any(log[position : position + HEADER_BYTES]):
        header = read_header(log, position)
        end = position + header.size_bytes
        if not header.is_control:
            batch = log[position:end]
            values += [bytes(one.value) for one in iterate_records(batch) if one.value is not None]
        position = end
    return values


def replayed(*records: MetadataRecord) -> MetadataImage:
    return MetadataDelta(MetadataImage()).replay_all(records).image(len(records))


REGISTERED = RegisterBrokerRecord(broker_id=1, incarnation_id=Uuid(int=1), broker_epoch=5)


def test_what_the_first_release_wrote_is_written_again_to_the_byte() -> None:
    values = values_of_the_first_release()
    records = [decode_record(value) for value in values]
    assert [encode_record(record) for record in records] == values
    assert {type(record).__name__ for record in records} >= {
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ConfigRecord",
        "ProducerIdsRecord",
        "RemoveTopicRecord",
    }


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (REGISTERED, 1),
        (RegisterBrokerRecord(broker_id=1, log_dirs=[DISK]), 3),
        (PartitionRecord(topic_id=TOPIC_ID, replicas=[1], isr=[1]), 0),
        (PartitionRecord(topic_id=TOPIC_ID, replicas=[1], directories=[DISK]), 1),
        (PartitionRecord(topic_id=TOPIC_ID, eligible_leader_replicas=[]), 2),
        (PartitionChangeRecord(topic_id=TOPIC_ID, isr=[1], leader=1), 0),
        (PartitionChangeRecord(topic_id=TOPIC_ID, adding_replicas=[], removing_replicas=[3]), 0),
        (PartitionChangeRecord(topic_id=TOPIC_ID, leader_recovery_state=RECOVERED), 0),
        (PartitionChangeRecord(topic_id=TOPIC_ID, directories=[DISK]), 1),
        (PartitionChangeRecord(topic_id=TOPIC_ID, eligible_leader_replicas=[]), 2),
        (PartitionChangeRecord(topic_id=TOPIC_ID, last_known_elr=[2]), 2),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=UNFENCED), 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN), 1),
        (BrokerRegistrationChangeRecord(log_dirs=[DISK]), 2),
        (UnregisterBrokerRecord(broker_id=1, broker_epoch=5), 0),
        (FenceBrokerRecord(broker_id=1, broker_epoch=5), 0),
        (UnfenceBrokerRecord(broker_id=1, broker_epoch=5), 0),
        (FeatureLevelRecord(name="metadata.version", feature_level=1), 0),
        (NoOpRecord(), 0),
        (UserScramCredentialRecord(name="shop", mechanism=1, iterations=4_096), 0),
        (RemoveUserScramCredentialRecord(name="shop", mechanism=2), 0),
    ],
)
def test_a_record_takes_the_oldest_version_that_carries_it(
    record: MetadataRecord, version: int
) -> None:
    value = encode_record(record)
    assert value[VERSION_AT] == version
    assert decode_record(value) == record


def test_a_credential_stands_in_the_log_as_kafka_writes_it() -> None:
    """The bytes are those of Kafka's UserScramCredentialRecord and RemoveUserScramCredentialRecord,
    version 0."""
    record = UserScramCredentialRecord(
        name="shop",
        mechanism=2,
        salt=b"\x01\x02",
        stored_key=b"\x03",
        server_key=b"\x04",
        iterations=4_096,
    )
    assert encode_record(record).hex(" ") == (
        "01 0b 00 05 73 68 6f 70 02 03 01 02 02 03 02 04 00 00 10 00 00"
    )
    # Only the credential of a join file has tagged fields, which are ours.
    record.is_enrolment, record.expires_at_ms = True, 7
    assert encode_record(record).hex(" ") == (
        "01 0b 00 05 73 68 6f 70 02 03 01 02 02 03 02 04 00 00 10 00"
        " 02 90 4e 01 01 91 4e 08 00 00 00 00 00 00 00 07"
    )
    removal = RemoveUserScramCredentialRecord(name="shop", mechanism=2)
    assert encode_record(removal).hex(" ") == "01 16 00 05 73 68 6f 70 02 00"


def test_an_acl_stands_in_the_log_as_kafka_writes_it() -> None:
    """The bytes are those of Kafka's AccessControlEntryRecord and RemoveAccessControlEntryRecord,
    version 0."""
    record = AccessControlEntryRecord(
        id=Uuid(int=7),
        resource_type=2,
        resource_name="logs.",
        pattern_type=4,
        principal="User:shop",
        host="*",
        operation=3,
        permission_type=3,
    )
    uuid = " ".join(["00"] * 15 + ["07"])
    assert encode_record(record).hex(" ") == (
        f"01 12 00 {uuid} 02 06 6c 6f 67 73 2e 04 0a 55 73 65 72 3a 73 68 6f 70 02 2a 03 03 00"
    )
    removal = RemoveAccessControlEntryRecord(id=Uuid(int=7))
    assert encode_record(removal).hex(" ") == f"01 13 00 {uuid} 00"
    assert decode_record(encode_record(record)) == record


def test_a_quota_stands_in_the_log_as_kafka_writes_it() -> None:
    """Kafka's ClientQuotaRecord, version 0: a user and the default client id, 1.5."""
    record = ClientQuotaRecord(
        entity=[
            QuotaEntityData(entity_type="client-id", entity_name=None),
            QuotaEntityData(entity_type="user", entity_name="shop"),
        ],
        key="request_percentage",
        value=1.5,
    )
    kind, user = b"client-id".hex(" "), b"user".hex(" ")
    assert encode_record(record).hex(" ") == (
        f"01 0e 00 03 0a {kind} 00 00 05 {user} 05 {b'shop'.hex(' ')} 00"
        f" 13 {b'request_percentage'.hex(' ')} 3f f8 00 00 00 00 00 00 00 00"
    )
    assert decode_record(encode_record(record)) == record


def test_a_change_stands_in_the_log_as_kafka_writes_it() -> None:
    """The fields of KIP-966 have the tags 6 and 7. Directories have tag 8, although an older
    version of the record has them."""
    record = PartitionChangeRecord(
        partition_id=2,
        topic_id=TOPIC_ID,
        isr=[1],
        eligible_leader_replicas=[2, 3],
        last_known_elr=[],
        directories=[DISK],
    )
    assert encode_record(record).hex(" ") == " ".join(
        [
            "01 05 02",  # frame, type, version
            "00 00 00 02",
            "00 " * 15 + "0a",
            "04",  # tagged fields
            "00 05 02 00 00 00 01",
            "06 09 03 00 00 00 02 00 00 00 03",
            "07 01 01",
            "08 11 02 " + "00 " * 15 + "0b",
        ]
    )


def test_a_fence_goes_up_and_down_and_a_stop_has_no_way_back() -> None:
    def broker(*records: MetadataRecord) -> tuple[bool, bool, bool]:
        one = replayed(REGISTERED, *records).brokers[1]
        return one.is_fenced, one.is_stopping, one.is_active

    unfence = UnfenceBrokerRecord(broker_id=1, broker_epoch=5)
    stop = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=5, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
    )
    fence = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=FENCED)
    assert broker() == (True, False, False)
    assert broker(unfence) == (False, False, True)
    assert broker(unfence, FenceBrokerRecord(broker_id=1, broker_epoch=5)) == (True, False, False)
    assert broker(unfence, stop) == (False, True, False)
    assert broker(unfence, stop, fence) == (True, True, False)


def test_a_change_of_directories_replaces_them_and_silence_keeps_them() -> None:
    first = RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=[DISK])
    other = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[OTHER_DISK])
    silent = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=UNFENCED)
    assert replayed(first, silent).brokers[1].directory_ids == (DISK,)
    assert replayed(first, other).brokers[1].directory_ids == (OTHER_DISK,)


@pytest.mark.parametrize(
    "record",
    [
        FenceBrokerRecord(broker_id=1, broker_epoch=4),
        UnfenceBrokerRecord(broker_id=2, broker_epoch=5),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
    ],
)
def test_a_change_of_another_registration_is_impossible(record: MetadataRecord) -> None:
    delta = MetadataDelta(MetadataImage()).replay_all([REGISTERED])
    with pytest.raises(ImpossibleRecord, match="but the record is for epoch"):
        delta.replay(record)


def test_a_broker_that_is_unregistered_is_forgotten() -> None:
    assert replayed(REGISTERED, UnregisterBrokerRecord(broker_id=1, broker_epoch=5)).brokers == {}


def test_features_have_levels_and_level_0_is_none() -> None:
    one = FeatureLevelRecord(name="metadata.version", feature_level=1)
    two = FeatureLevelRecord(name="metadata.version", feature_level=2)
    none = FeatureLevelRecord(name="metadata.version", feature_level=0)
    assert replayed(one, two).features == {"metadata.version": 2}
    assert replayed(one, none).features == {}


@pytest.mark.parametrize(
    ("name", "level"),
    [(METADATA_VERSION, METADATA_LEVEL + 1), (METADATA_VERSION, -1), ("later", 1)],
)
def test_a_level_of_a_later_version_is_not_read_on(name: str, level: int) -> None:
    record = FeatureLevelRecord(name=name, feature_level=level)
    with pytest.raises(UnknownMetadataRecord, match=f"is at {name} {level}, .* run the version"):
        replayed(record)


@pytest.mark.parametrize(
    "record",
    [PartitionChangeRecord(topic_id=TOPIC_ID, isr=[1]), NoOpRecord()],
    ids=["beside known tags", "without known tags"],
)
def test_a_tagged_field_of_a_later_version_is_not_overlooked(record: MetadataRecord) -> None:
    value = bytearray(encode_record(record))
    tags_at = len(value) - 1 if isinstance(record, NoOpRecord) else VERSION_AT + 1 + 4 + 16
    value[tags_at] += 1
    with pytest.raises(UnknownMetadataRecord, match="an unknown tagged field"):
        decode_record(bytes(value) + bytes([99, 1, 0]))


def test_what_stands_behind_a_record_is_not_overlooked() -> None:
    with pytest.raises(UnknownMetadataRecord, match="has extra bytes after its end"):
        decode_record(encode_record(NoOpRecord()) + b"x")


def test_a_partition_change_leaves_alone_what_it_does_not_name() -> None:
    made = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        leader_epoch=3,
        partition_epoch=7,
        leader_recovery_state=RECOVERING,
        removing_replicas=[2],
        directories=[DISK, OTHER_DISK],
        eligible_leader_replicas=[2],
        last_known_elr=[1],
    )
    start = (TopicRecord(name="logs", topic_id=TOPIC_ID), made)
    before = replayed(*start).topics["logs"].partitions[0]
    nothing = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)
    untouched = replayed(*start, nothing).topics["logs"].partitions[0]
    assert untouched.partition_epoch == 8
    assert untouched.changed(nothing).partition_epoch == 9
    kept = ("replicas", "in_sync_replicas", "leader", "leader_epoch", "directories",
            "eligible_leader_replicas", "last_known_elr", "leader_recovery_state")  # fmt: skip
    assert [getattr(untouched, name) for name in kept] == [getattr(before, name) for name in kept]
    emptied = before.changed(
        PartitionChangeRecord(
            isr=[1, 2], eligible_leader_replicas=[], last_known_elr=[],
            leader_recovery_state=RECOVERED, removing_replicas=[], adding_replicas=[3],
        )
    )  # fmt: skip
    assert emptied.in_sync_replicas == (1, 2)
    assert emptied.eligible_leader_replicas == emptied.last_known_elr == ()
    assert (emptied.leader_recovery_state, emptied.adding_replicas) == (RECOVERED, (3,))
