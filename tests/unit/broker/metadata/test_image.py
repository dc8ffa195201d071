"""The image contains exactly the records, and old images stay unchanged."""

import pytest

from broker.metadata.image import ImpossibleRecord, MetadataDelta, MetadataImage
from broker.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownMetadataRecord,
    decode_record,
    encode_record,
)
from protocol.types import Uuid
from tests.unit.broker.cluster.kit import Cluster, registration

TOPIC_ID = Uuid("00000000-0000-4000-8000-00000000000a")

TOPIC: list[MetadataRecord] = [
    TopicRecord(name="logs", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    ),
]


def image_of_topic() -> MetadataImage:
    return replayed(MetadataImage(), *TOPIC)


def replayed(image: MetadataImage, *records: MetadataRecord) -> MetadataImage:
    return MetadataDelta(image).replay_all(records).image(image.end_offset + len(records))


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_of_topic()
    assert image.topics["logs"].topic_id == TOPIC_ID
    assert image.topic_by_id(TOPIC_ID) is image.topics["logs"]
    assert image.topic_by_id(Uuid(int=9)) is None
    assert image.partition_count == 1
    assert image.end_offset == 2


def test_the_index_of_reassignments_has_the_partitions_that_move() -> None:
    second = PartitionRecord(
        partition_id=1, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1,
        leader_epoch=0, partition_epoch=0,
    )  # fmt: skip
    starts = [
        PartitionChangeRecord(
            partition_id=number, topic_id=TOPIC_ID, replicas=[2, 1], adding_replicas=[2],
            removing_replicas=[1],
        )
        for number in (1, 0)
    ]  # fmt: skip
    end = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[2], adding_replicas=[], removing_replicas=[]
    )
    still = replayed(image_of_topic(), second)
    both = replayed(still, *starts)
    assert (still.moving, both.moving) == ({}, {TOPIC_ID: (0, 1)})
    assert replayed(both, end).moving == {TOPIC_ID: (1,)}
    assert replayed(still, *starts, end).moving == {TOPIC_ID: (1,)}
    assert replayed(both, RemoveTopicRecord(topic_id=TOPIC_ID)).moving == {}
    assert replayed(still, *starts, RemoveTopicRecord(topic_id=TOPIC_ID)).moving == {}
    assert both.moving == {TOPIC_ID: (0, 1)}


def test_replay_leaves_the_image_it_started_from_alone() -> None:
    image = image_of_topic()
    later = replayed(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert "logs" in image.topics
    assert "logs" not in later.topics
    assert later.topic_by_id(TOPIC_ID) is None


def test_an_election_raises_the_leader_epoch_and_any_change_the_partition_epoch() -> None:
    image = image_of_topic()
    elected = replayed(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    shrunk = replayed(elected, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[]))
    assert elected.topics["logs"].partitions[0].leader_epoch == 1
    assert elected.topics["logs"].partitions[0].partition_epoch == 1
    assert shrunk.topics["logs"].partitions[0].leader_epoch == 1
    assert shrunk.topics["logs"].partitions[0].partition_epoch == 2
    assert shrunk.topics["logs"].partitions[0].in_sync_replicas == ()


def test_a_setting_is_taken_away_by_null_and_all_of_them_with_the_topic() -> None:
    def setting(key: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name="logs", name=key, value=value
        )

    image = replayed(image_of_topic(), setting("retention.ms", "5"), setting("segment.ms", "6"))
    assert image.settings(TOPIC_RESOURCE, "logs") == {"retention.ms": "5", "segment.ms": "6"}
    image = replayed(image, setting("segment.ms", None))
    assert image.settings(TOPIC_RESOURCE, "logs") == {"retention.ms": "5"}
    image = replayed(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert image.settings(TOPIC_RESOURCE, "logs") == {}


def test_a_delta_names_the_topics_it_touches_and_those_it_removes() -> None:
    delta = MetadataDelta(image_of_topic())
    delta.replay(TopicRecord(name="new", topic_id=Uuid(int=11)))
    delta.replay(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert delta.touched == {"new"}
    assert [topic.topic_id for topic in delta.removed] == [TOPIC_ID]


OTHER_ID = Uuid(int=9)


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(topic_id=OTHER_ID),
        TopicRecord(name="logs", topic_id=OTHER_ID),
        TopicRecord(name="new", topic_id=TOPIC_ID),
        PartitionRecord(partition_id=0, topic_id=OTHER_ID),
        PartitionRecord(partition_id=0, topic_id=TOPIC_ID),
        PartitionRecord(partition_id=2, topic_id=TOPIC_ID),
        PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID),
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID),
        PartitionChangeRecord(partition_id=-1, topic_id=TOPIC_ID),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="b", name="segment.ms", value="5"),
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_changes_nothing(record: MetadataRecord) -> None:
    image = image_of_topic()
    delta = MetadataDelta(image)
    with pytest.raises(ImpossibleRecord):
        delta.replay(record)
    assert delta.touched == set()
    assert delta.removed == []
    assert delta.image(image.end_offset) == image


def test_names_that_differ_only_in_dots_and_underscores_are_found() -> None:
    image = replayed(image_of_topic(), TopicRecord(name="a.b_c", topic_id=Uuid(int=11)))
    image = replayed(image, TopicRecord(name="a_b.c", topic_id=Uuid(int=12)))
    assert image.colliding("a.b.c") == ("a.b_c", "a_b.c")
    assert image.colliding("a-b.c") == ()
    assert image.colliding("lo.gs") == ()
    image = replayed(image, RemoveTopicRecord(topic_id=Uuid(int=11)))
    assert image.colliding("a.b.c") == ("a_b.c",)
    image = replayed(image, RemoveTopicRecord(topic_id=Uuid(int=12)))
    assert image.colliding("a.b.c") == ()
    assert "a_b_c" not in image.normalised_names


def test_pitfall_45_a_topic_made_again_is_another_topic() -> None:
    cluster = Cluster()
    first = cluster.create("logs").topic_id
    cluster.replay([RemoveTopicRecord(topic_id=first)])
    second = cluster.create("logs").topic_id
    assert first != second
    assert cluster.image.topic_by_id(first) is None
    assert cluster.image.topic_by_id(second) is cluster.image.topics["logs"]


def test_pitfall_40_a_restarted_broker_leads_in_a_new_epoch() -> None:
    cluster = Cluster()
    cluster.create("logs", 2)
    before = cluster.image.end_offset
    assert cluster.submit(registration(1, incarnation=7)).broker_epoch == before
    assert [one.leader_epoch for one in cluster.image.topics["logs"].partitions] == [1, 1]
    assert cluster.image.brokers[1].incarnation_id == Uuid(int=7)


def test_every_record_survives_its_encoding() -> None:
    records: list[MetadataRecord] = [
        *TOPIC,
        ConfigRecord(resource_type=2, resource_name="logs", name="retention.ms", value=None),
        PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, isr=[1, 2], leader=2),
        RemoveTopicRecord(topic_id=TOPIC_ID),
        ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=2_000),
    ]
    assert [decode_record(encode_record(one)) for one in records] == records


def test_a_topic_record_is_encoded_as_kafka_does() -> None:
    # Frame version 1, record type 2, version 0; compact string; id; no tagged fields.
    assert encode_record(TOPIC[0]) == (bytes([1, 2, 0, 5]) + b"logs" + TOPIC_ID.bytes + bytes([0]))


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\x01", b"\x02\x02\x00", b"\x01\x63\x00", b"\x01\x02\x09", b"\x01\x02\x00\x05lo"],
    ids=["null", "empty", "short", "frame", "type", "version", "torn"],
)
def test_what_cannot_be_read_stops_the_start(value: bytes | None) -> None:
    with pytest.raises(UnknownMetadataRecord):
        decode_record(value)
