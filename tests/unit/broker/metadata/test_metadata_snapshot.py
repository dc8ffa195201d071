"""An image written as records and replayed on an empty one gives the same image."""

import pytest

from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import ImpossibleRecord, MetadataDelta, MetadataImage
from broker.metadata.quota_changes import quota_record
from broker.metadata.records import (
    BROKER_RESOURCE,
    IN_CONTROLLED_SHUTDOWN,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from broker.metadata.snapshot import between, records_of
from protocol.security.scram import Mechanism
from protocol.types import NO_NODE, Uuid
from tests.harness.seed import seeded
from tests.unit.broker.cluster.kit import Cluster

FEATURE = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL)
TOPIC_ID = Uuid(int=50)


def image_of(records: list[MetadataRecord], end_offset: int) -> MetadataImage:
    """Return the image after a round trip of the records through their encoding."""
    read = [decode_record(encode_record(one)) for one in records]
    return MetadataDelta(MetadataImage()).replay_all(read).image(end_offset)


def comes_back(image: MetadataImage) -> bool:
    return image_of(list(records_of(image)), image.end_offset) == image


def everything() -> list[MetadataRecord]:
    """Return records that set every field of an image to a value other than its default."""
    register = RegisterBrokerRecord(
        broker_id=3, incarnation_id=Uuid(int=3), broker_epoch=9, rack="b", log_dirs=[Uuid(int=7)]
    )
    stopping = BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=9, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
    )
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2, 3],
        isr=[2],
        removing_replicas=[1],
        adding_replicas=[3],
        leader=NO_NODE,
        leader_recovery_state=1,
        leader_epoch=4,
        partition_epoch=5,
        directories=[Uuid(int=11), Uuid(int=12), Uuid(int=13)],
        eligible_leader_replicas=[3],
        last_known_elr=[1],
    )
    named = ((TOPIC_RESOURCE, "one.two"), (BROKER_RESOURCE, ""), (BROKER_RESOURCE, "3"))
    return [
        FEATURE,
        register,
        FenceBrokerRecord(broker_id=3, broker_epoch=9),
        stopping,
        TopicRecord(name="one.two", topic_id=TOPIC_ID),
        partition,
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2),
        # An older log can have topics whose names collide, so a snapshot must have them too.
        TopicRecord(name="one_two", topic_id=Uuid(int=51)),
        *(
            ConfigRecord(resource_type=kind, resource_name=name, name="key", value="value")
            for kind, name in named
        ),
        ProducerIdsRecord(broker_id=3, broker_epoch=9, next_producer_id=4_000),
        credential("shop", 1),
        credential("shop", 2),
        enrolment("collector.web-7", 5_000),
        credential("gone", 1),
        RemoveUserScramCredentialRecord(name="gone", mechanism=1),
        acl(1),
        acl(2, operation=4),
        RemoveAccessControlEntryRecord(id=Uuid(int=1)),
        quota_record(SHOP, "producer_byte_rate", 1_000.0),
        quota_record(SHOP, "request_percentage", 0.5),
        quota_record((("client-id", None), ("user", "shop")), "consumer_byte_rate", 7.0),
        quota_record((("ip", "10.0.0.7"),), "connection_creation_rate", 20.0),
        quota_record((("ip", "10.0.0.7"),), "connection_creation_rate", 0.0, remove=True),
    ]


SHOP = (("user", "shop"),)


def acl(number: int, *, operation: int = 3, permission: int = 3) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(int=number),
        resource_type=2,
        resource_name="logs.",
        pattern_type=4,
        principal="User:shop",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def credential(name: str, mechanism: int, salt: bytes = b"salt") -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=b"stored",
        server_key=b"server",
        iterations=4_096,
    )


def enrolment(name: str, expires_at_ms: int) -> UserScramCredentialRecord:
    record = credential(name, 2)
    record.is_enrolment, record.expires_at_ms = True, expires_at_ms
    return record


def test_the_credentials_of_a_delta() -> None:
    """A delta names each changed credential, because the change ends the sessions of its user. The
    difference between two images, as after a snapshot, names them too."""
    base = image_of([credential("kept", 1), credential("other", 1), credential("gone", 2)], 3)
    removal = RemoveUserScramCredentialRecord(name="gone", mechanism=2)
    changes: list[MetadataRecord] = [
        credential("other", 1, b"other"),
        removal,
        credential("new", 2),
    ]
    delta = MetadataDelta(base).replay_all(changes)
    image = delta.image(6)
    assert delta.credentials == {("other", 1), ("gone", 2), ("new", 2)}
    assert between(base, image).credentials == delta.credentials
    assert between(image, image).credentials == set()
    assert ("kept", Mechanism.SHA_256) in image.credentials


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RemoveUserScramCredentialRecord(name="shop", mechanism=1), "has no credential"),
        (credential("shop", 3), "has mechanism 3, which is not known"),
    ],
)
def test_impossible_credentials(record: MetadataRecord, why: str) -> None:
    with pytest.raises(ImpossibleRecord, match=why):
        MetadataDelta(MetadataImage()).replay(record)


def test_the_acls_of_a_delta() -> None:
    """A delta that changes ACLs makes the broker authorise parked requests again. So does the
    difference between two images, as after a snapshot."""
    base = image_of([acl(1), acl(2, operation=4)], 2)
    removal = RemoveAccessControlEntryRecord(id=Uuid(int=1))
    delta = MetadataDelta(base).replay_all([removal, acl(3), acl(4, permission=2)])
    image = delta.image(5)
    assert delta.changes_acls and between(base, image).changes_acls
    assert not between(image, image).changes_acls
    assert list(image.acls.entries) == [Uuid(int=number) for number in (2, 3, 4)]
    other = MetadataDelta(image).replay_all([credential("shop", 1)])
    assert not other.changes_acls and other.image(6).acls is image.acls


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RemoveAccessControlEntryRecord(id=Uuid(int=9)), "there is no ACL"),
        (acl(1, operation=4), "already exists"),
        # An ACL with two ids would survive the removal of one of them.
        (acl(2), "already exists"),
        (acl(3, operation=99), "99 is not a valid AclOperation"),
    ],
)
def test_impossible_acls(record: MetadataRecord, why: str) -> None:
    delta = MetadataDelta(image_of([acl(1)], 1))
    with pytest.raises(ImpossibleRecord, match=why):
        delta.replay(record)
    delta.replay_all([RemoveAccessControlEntryRecord(id=Uuid(int=1)), acl(2)])
    with pytest.raises(ImpossibleRecord, match="already exists"):
        delta.replay(acl(3))


def test_the_quotas_of_a_delta() -> None:
    base = image_of([quota_record(SHOP, "producer_byte_rate", 1.0)], 1)
    delta = MetadataDelta(base).replay_all([quota_record(SHOP, "consumer_byte_rate", 2.0)])
    image = delta.image(2)
    assert delta.changes_quotas and between(base, image).changes_quotas
    assert base.quotas == {SHOP: {"producer_byte_rate": 1.0}}
    assert image.quotas == {SHOP: {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}}
    other = MetadataDelta(image).replay_all([credential("shop", 1)])
    assert not other.changes_quotas and other.image(3).quotas is image.quotas
    with pytest.raises(ImpossibleRecord, match="there is no quota request_percentage"):
        delta.replay(quota_record(SHOP, "request_percentage", 0.0, remove=True))


def test_every_field_of_an_image_comes_back() -> None:
    image = image_of(everything(), 60)
    assert image.features and image.configs and len(image.credentials) == 3
    assert list(image.acls.entries) == [Uuid(int=2)]
    assert image.quotas == {
        SHOP: {"producer_byte_rate": 1_000.0, "request_percentage": 0.5},
        (("client-id", None), ("user", "shop")): {"consumer_byte_rate": 7.0},
    }
    assert image.next_producer_id == 4_000
    assert image.brokers[3].is_stopping and image.brokers[3].is_fenced
    assert comes_back(image)
    assert comes_back(MetadataImage())


def test_what_a_cluster_comes_to_comes_back() -> None:
    chance = seeded("metadata snapshots")
    cluster = Cluster((1, 2, 3))
    for number in range(60):
        if cluster.image.topics and chance.random() < 0.3:
            name = chance.choice(sorted(cluster.image.topics))
            topic_id = cluster.image.topics[name].topic_id
            index = chance.randrange(len(cluster.image.topics[name].partitions))
            cluster.replay(
                [
                    PartitionChangeRecord(
                        partition_id=index,
                        topic_id=topic_id,
                        leader=chance.choice([NO_NODE, 1, 2]),
                        isr=chance.sample([1, 2, 3], 2),
                    )
                ]
            )
        else:
            cluster.create(f"t{number}", chance.randint(1, 4), retention_ms=str(number + 1))
        assert comes_back(cluster.image)


def test_from_one_image_to_another_all_that_differs_is_named() -> None:
    cluster = Cluster()
    for name in ("same", "gone", "again", "changed", "set"):
        cluster.create(name)
    base = cluster.image
    topics = {name: topic.topic_id for name, topic in base.topics.items()}
    kept = [
        one
        for one in records_of(base)
        if getattr(one, "topic_id", None) not in (topics["gone"], topics["again"])
    ]
    change = PartitionChangeRecord(partition_id=0, topic_id=topics["changed"], leader=1)
    setting = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="set", name="retention.ms", value="7"
    )
    image = image_of([*kept, TopicRecord(name="again", topic_id=TOPIC_ID), change, setting], 99)
    delta = between(base, image)
    assert {one.topic_id for one in delta.removed} == {topics["gone"], topics["again"]}
    assert delta.touched == {"again", "changed", "set"}
    assert not delta.changes_nodes
    assert between(base, base).touched == set()
    of_nodes = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="k", value="v")
    assert between(base, MetadataDelta(base).replay_all([of_nodes]).image(99)).changes_nodes
