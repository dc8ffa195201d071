"""The replicas that the controller and the status count while a reassignment adds replicas."""

from __future__ import annotations

from dataclasses import replace

from broker.controller.leadership import WantedChange, change
from broker.controller.topic_changes import create_partitions
from broker.controller.topics import new_partitions
from broker.metadata.broker_image import directories_for
from broker.metadata.image import MetadataImage
from broker.metadata.records import PartitionRecord, decode_record, encode_record
from broker.metadata.snapshot import records_of
from broker.node.cluster_status import copies_details
from protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from tests.unit.broker.controller.kit import (
    CONFIG,
    NODES,
    ONE,
    THREE,
    TOPIC_ID,
    TWO,
    after,
    broker,
    brokers,
    disk,
    image_of,
    one_of,
    partition,
)

GROWING = partition((ONE,), adding=(TWO, THREE))


def test_guard_48_no_replica_is_eligible_while_the_original_ones_suffice() -> None:
    """The only original replica is in sync, so the leader commits without the added replicas. They
    can lack records and must not be eligible."""
    joined = replace(GROWING, in_sync_replicas=(ONE, TWO))
    record = change(TOPIC_ID, 0, joined, WantedChange((ONE,)), brokers(ONE, TWO), 2)
    assert joined.changed(record).eligible_leader_replicas == ()
    former = replace(joined, adding_replicas=())
    record = change(TOPIC_ID, 0, former, WantedChange((ONE,)), brokers(ONE, TWO), 2)
    assert former.changed(record).eligible_leader_replicas == (TWO,)


def test_a_topic_that_grows_during_a_reassignment_keeps_its_replication_factor() -> None:
    image = image_of(GROWING)
    wanted = CreatePartitionsTopic(name="logs", count=3, assignments=None)
    outcome = create_partitions(CreatePartitionsRequest(topics=[wanted]), image, CONFIG)
    assert outcome.reply.results[0].error_code == 0
    grown = after(image, outcome.records)
    assert [len(one_of(grown, number).replicas) for number in (1, 2)] == [1, 1]


def test_a_new_partition_names_the_directory_of_each_replica() -> None:
    image = image_of(partition())
    (record,) = new_partitions(TOPIC_ID, 1, [(TWO, THREE, ONE)], image)
    assert record.directories == [disk(TWO), disk(THREE), disk(ONE)]
    assert decode_record(encode_record(record)) == record


def test_a_new_partition_names_no_directory_if_one_is_unknown() -> None:
    image = image_of(partition())
    old = replace(broker(TWO), directory_ids=())
    before = replace(image, brokers={**image.brokers, TWO: old})
    (unknown,) = new_partitions(TOPIC_ID, 1, [(TWO, ONE)], before)
    assert unknown.directories == []


def test_known_directories_stay_and_those_of_added_replicas_come_from_their_brokers() -> None:
    one = replace(partition(replicas=(TWO,)), directories=(disk(9),))
    known = one.directory_by_node
    assert directories_for((ONE, TWO), brokers(*NODES), known) == (disk(ONE), disk(9))
    assert directories_for((TWO,), {}, known) == (disk(9),)
    assert directories_for((4, TWO), brokers(*NODES), known) == ()


def test_a_snapshot_without_directories_is_read_as_before() -> None:
    """Version 1.0.0-rc1 wrote partitions without directories, in version 0 of the record."""
    plain = replace(partition(), directories=())
    records = list(records_of(image_of(plain)))
    values = [encode_record(one) for one in records]
    (old,) = [one for one in values if one[1] == PartitionRecord.api_key]
    assert old[2] == 0
    read = after(MetadataImage(), [decode_record(one) for one in values])
    assert one_of(read) == plain


def test_an_added_replica_is_not_out_of_sync() -> None:
    assert copies_details(image_of(GROWING), CONFIG) == {"not_in_sync": 0, "needed": {}}
    told = copies_details(image_of(partition((ONE, TWO))), CONFIG)
    assert told["not_in_sync"] == 1


def test_a_broker_is_needed_by_the_minimum_of_the_original_replicas() -> None:
    """The partition always needs both original replicas, so the status names no broker as needed
    (`copies_details`)."""
    two = partition((ONE,), adding=(THREE,))
    told = copies_details(image_of(two), CONFIG)
    assert told == {"not_in_sync": 1, "needed": {}}
