"""The checks of AlterPartition, in Kafka's order. Broker 1 leads, with the leader epoch and the
partition epoch of `kit`."""

from dataclasses import replace
from typing import Any

import pytest

from broker.controller.alter_partition import alter_partition
from broker.metadata.image import MetadataImage
from broker.metadata.records import RECOVERED, RECOVERING
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponsePartition,
    BrokerState,
)
from protocol.types import Uuid
from tests.unit.broker.controller.kit import (
    CONFIG,
    NODES,
    ONE,
    THREE,
    TOPIC_ID,
    TWO,
    after,
    image_of,
    one_of,
    partition,
)

LATER = 1_000
"""An epoch that no log of these tests has."""


def asked(*members: int, epochs: dict[int, int] | None = None, **changes: Any) -> Any:
    """Return a leader's proposal of these in-sync replicas for partition 0. `epochs` has the broker
    epochs that differ from those in `image_of`."""
    known = {node_id: node_id - 1 for node_id in (*NODES, 4)} | (epochs or {})
    return AlterPartitionRequestPartition(
        **{
            "partition_index": 0,
            "leader_epoch": 5,
            "partition_epoch": 7,
            "new_isr_with_epochs": [
                BrokerState(broker_id=node_id, broker_epoch=known[node_id]) for node_id in members
            ],
            **changes,
        }
    )


def request(
    *partitions: AlterPartitionRequestPartition,
    sender: int = ONE,
    broker_epoch: int = 0,
    topic_id: Uuid = TOPIC_ID,
) -> AlterPartitionRequest:
    topic = AlterPartitionRequestTopic(topic_id=topic_id, partitions=list(partitions))
    return AlterPartitionRequest(broker_id=sender, broker_epoch=broker_epoch, topics=[topic])


def answer(
    order: AlterPartitionRequest, image: MetadataImage
) -> tuple[MetadataImage, list[AlterPartitionResponsePartition]]:
    outcome = alter_partition(order, image, CONFIG)
    return after(image, outcome.records), outcome.reply.topics[0].partitions


def code(order: AlterPartitionRequest, image: MetadataImage | None = None) -> int:
    image = image or image_of(partition())
    later, (one,) = answer(order, image)
    assert one.error_code == ErrorCode.NONE or later.topics == image.topics
    return one.error_code


def test_a_shrink_is_granted_and_answered_as_it_will_be() -> None:
    later, (one,) = answer(request(asked(ONE, TWO)), image_of(partition()))
    assert one_of(later).in_sync_replicas == (ONE, TWO)
    assert one == AlterPartitionResponsePartition(
        partition_index=0, leader_id=ONE, leader_epoch=5, isr=[ONE, TWO], partition_epoch=8
    )


def test_a_proposal_that_changes_nothing_is_written_and_uses_up_the_partition_epoch() -> None:
    image = image_of(partition())
    order = request(asked(*NODES))
    later, (one,) = answer(order, image)
    assert (one.error_code, one.partition_epoch) == (ErrorCode.NONE, 8)
    assert one_of(later) == replace(one_of(image), partition_epoch=8)
    assert code(order, later) == ErrorCode.INVALID_UPDATE_VERSION


def test_a_partition_named_twice_is_changed_once() -> None:
    image = image_of(partition())
    _, answers = answer(request(asked(ONE, TWO), asked(ONE, THREE)), image)
    assert [one.error_code for one in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]


def test_each_partition_stands_for_itself() -> None:
    image = image_of(partition(), partition())
    order = request(asked(ONE, TWO, leader_epoch=4), asked(ONE, TWO, partition_index=1))
    later, answers = answer(order, image)
    assert [one.error_code for one in answers] == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]
    assert one_of(later, 0) == one_of(image, 0)
    assert one_of(later, 1).in_sync_replicas == (ONE, TWO)


@pytest.mark.parametrize(
    ("sender", "broker_epoch", "expected"),
    [
        (TWO, 0, ErrorCode.STALE_BROKER_EPOCH),
        (ONE, -1, ErrorCode.STALE_BROKER_EPOCH),
        (4, 0, ErrorCode.STALE_BROKER_EPOCH),
        (ONE, 1, ErrorCode.NOT_CONTROLLER),
        (4, LATER, ErrorCode.NOT_CONTROLLER),
    ],
)
def test_the_sender_must_be_the_registered_incarnation(
    sender: int, broker_epoch: int, expected: ErrorCode
) -> None:
    order = request(asked(ONE), sender=sender, broker_epoch=broker_epoch)
    with pytest.raises(ApiError) as refused:
        alter_partition(order, image_of(partition()), CONFIG)
    assert refused.value.code is expected


def test_unknown_topics_and_partitions() -> None:
    assert code(request(asked(ONE), topic_id=Uuid(int=9))) == ErrorCode.UNKNOWN_TOPIC_ID
    for index in (-1, 1):
        order = request(asked(ONE, partition_index=index))
        assert code(order) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


FOLLOWER: dict[str, Any] = {"sender": TWO, "broker_epoch": 1}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # A request with several faults gets the error of the check that Kafka makes first.
        (request(asked(4, leader_epoch=6), **FOLLOWER), ErrorCode.NOT_CONTROLLER),
        (request(asked(4, leader_epoch=4, partition_epoch=8)), ErrorCode.NOT_CONTROLLER),
        (
            request(asked(4, leader_epoch=4, partition_epoch=6), **FOLLOWER),
            ErrorCode.FENCED_LEADER_EPOCH,
        ),
        (request(asked(4, partition_epoch=6), **FOLLOWER), ErrorCode.INVALID_REQUEST),
        (request(asked(4, partition_epoch=6)), ErrorCode.INVALID_UPDATE_VERSION),
        (request(asked(ONE, 4)), ErrorCode.INVALID_REQUEST),
        (request(asked(ONE, TWO, TWO)), ErrorCode.INVALID_REQUEST),
        (request(asked(TWO, THREE)), ErrorCode.INVALID_REQUEST),
        (request(asked()), ErrorCode.INVALID_REQUEST),
        (request(asked(ONE, leader_recovery_state=2)), ErrorCode.INVALID_REQUEST),
        (request(asked(ONE, leader_recovery_state=RECOVERING)), ErrorCode.INVALID_REQUEST),
        (request(asked(ONE, TWO, epochs={TWO: 0})), ErrorCode.INELIGIBLE_REPLICA),
        (request(asked(ONE, TWO, epochs={TWO: LATER})), ErrorCode.NOT_CONTROLLER),
        (request(asked(ONE, TWO)), ErrorCode.NONE),
    ],
)
def test_checks_in_their_order(order: AlterPartitionRequest, expected: ErrorCode) -> None:
    assert code(order) == expected


def test_what_a_later_controller_knows_is_not_judged_here() -> None:
    """Broker 2 has a broker epoch that this log does not have yet. So this controller may be
    deposed and must not decide, although broker 3 is fenced."""
    image = image_of(partition(isr=(ONE,)), active=(ONE, TWO))
    order = request(asked(*NODES, epochs={TWO: LATER}))
    assert code(order, image) == ErrorCode.NOT_CONTROLLER


def test_only_who_is_in_service_may_be_in_sync() -> None:
    fenced = image_of(partition(isr=(ONE, TWO)), active=(ONE, TWO))
    assert code(request(asked(*NODES)), fenced) == ErrorCode.INELIGIBLE_REPLICA
    image = image_of(partition(isr=(ONE, TWO)))
    stopping = replace(image.brokers[THREE], is_stopping=True)
    image = replace(image, brokers={**image.brokers, THREE: stopping})
    assert code(request(asked(*NODES)), image) == ErrorCode.INELIGIBLE_REPLICA


def test_a_member_without_a_known_epoch_may_stay_but_not_join() -> None:
    unknown = asked(*NODES, epochs={THREE: -1})
    assert code(request(unknown), image_of(partition())) == ErrorCode.NONE
    joins = image_of(partition(isr=(ONE, TWO)))
    assert code(request(unknown), joins) == ErrorCode.INELIGIBLE_REPLICA


def test_others_join_only_a_leader_that_has_taken_over() -> None:
    image = image_of(partition(isr=(ONE,), recovery=RECOVERING))
    recovering: dict[str, Any] = {"leader_recovery_state": RECOVERING}
    assert code(request(asked(ONE, TWO, **recovering)), image) == ErrorCode.INVALID_REQUEST
    assert code(request(asked(ONE, **recovering)), image) == ErrorCode.NONE
    later, (one,) = answer(request(asked(ONE, TWO)), image)
    assert one.leader_recovery_state == one_of(later).leader_recovery_state == RECOVERED
    assert one_of(later).in_sync_replicas == (ONE, TWO)
