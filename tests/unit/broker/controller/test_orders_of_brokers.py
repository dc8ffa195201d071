"""Requests of brokers to the controller are decided in order, and are never delayed."""

from random import Random

import pytest

from broker.controller.active import ActiveController, OrderLimits, OrderWaiter
from broker.controller.controller import Controller
from broker.controller.liveness import DeadBroker, Heartbeat, Liveness
from broker.controller.outcome import AllocateProducerIds
from broker.controller.registration import NAMED_MAX, Registration
from broker.controller.registration_checks import RegistrationFacts
from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import MetadataImage
from broker.metadata.records import FeatureLevelRecord, NoOpRecord, decode_record
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerHeartbeatRequest,
    BrokerState,
    UnregisterBrokerRequest,
)
from protocol.messages.producer_ids import AllocateProducerIdsRequest
from protocol.wire.records import iterate_records
from tests.unit.broker.controller.kit import (
    CLUSTER,
    CONFIG,
    ONE,
    THREE,
    TOPIC_ID,
    TWO,
    after,
    image_of,
    one_of,
    partition,
    registration,
)
from tests.unit.broker.security.acls import NotedDenials

CONTROLLER = Controller(CONFIG, Random(7), NotedDenials())
LINK = 4


def heartbeat(image: MetadataImage, node_id: int, *, must_commit: bool) -> Heartbeat:
    request = BrokerHeartbeatRequest(
        broker_id=node_id,
        broker_epoch=image.brokers[node_id].broker_epoch,
        current_metadata_offset=image.end_offset - 1,
    )
    return Heartbeat(request, Liveness(ONE), LINK, 0, must_commit)


def refusal(order: object, image: MetadataImage) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        CONTROLLER.handle(order, image, 0)  # type: ignore[arg-type]  # any order
    return refused.value.code


def test_a_registration_is_judged_by_its_facts() -> None:
    image = image_of(partition())
    dead, live = (
        RegistrationFacts(CLUSTER, is_live, voter_directory=None) for is_live in (False, True)
    )
    outcome = CONTROLLER.handle(Registration(registration(TWO), dead), image, 0)
    assert outcome.reply.broker_epoch == image.end_offset
    assert refusal(Registration(registration(TWO), live), image) is (
        ErrorCode.DUPLICATE_BROKER_REGISTRATION
    )


def test_a_heartbeat_that_must_be_committed_writes_what_changes_nothing() -> None:
    image = image_of(partition())
    quiet = CONTROLLER.handle(heartbeat(image, TWO, must_commit=False), image, 0)
    assert not quiet.records
    strict = CONTROLLER.handle(heartbeat(image, TWO, must_commit=True), image, 0)
    assert strict.records == [NoOpRecord()]
    assert strict.reply == quiet.reply
    assert strict.reply.metadata_end_offset == image.end_offset


def test_a_heartbeat_that_changes_something_writes_only_that() -> None:
    image = image_of(partition(), active=(ONE, THREE))
    outcome = CONTROLLER.handle(heartbeat(image, TWO, must_commit=True), image, 0)
    assert NoOpRecord() not in outcome.records
    assert not after(image, outcome.records).brokers[TWO].is_fenced
    assert outcome.reply.metadata_end_offset == image.end_offset + len(outcome.records)


def test_the_dead_are_fenced_once_and_only_under_their_own_epoch() -> None:
    image = image_of(partition())
    dead = DeadBroker(ONE, image.brokers[ONE].broker_epoch)
    fenced = after(image, CONTROLLER.handle(dead, image, 0).records)
    assert fenced.brokers[ONE].is_fenced and one_of(fenced).leader == TWO
    assert CONTROLLER.handle(dead, fenced, 0).records == []
    assert CONTROLLER.handle(DeadBroker(ONE, 99), image, 0).records == []


def test_a_proposal_for_the_in_sync_replicas_is_decided() -> None:
    image = image_of(partition())
    one = AlterPartitionRequestPartition(
        partition_index=0,
        leader_epoch=5,
        partition_epoch=7,
        new_isr_with_epochs=[BrokerState(broker_id=one) for one in (ONE, TWO)],
    )
    request = AlterPartitionRequest(
        broker_id=ONE,
        broker_epoch=0,
        topics=[AlterPartitionRequestTopic(topic_id=TOPIC_ID, partitions=[one])],
    )
    outcome = CONTROLLER.handle(request, image, 0)
    assert one_of(after(image, outcome.records)).in_sync_replicas == (ONE, TWO)


def test_a_block_of_ids_is_for_a_broker_that_is_registered() -> None:
    image = image_of(partition())
    request = AllocateProducerIdsRequest(broker_id=TWO, broker_epoch=1)
    outcome = CONTROLLER.handle(request, image, 0)
    assert (outcome.reply.producer_id_start, outcome.reply.producer_id_len) == (0, 1_000)
    assert after(image, outcome.records).next_producer_id == 1_000
    request.broker_epoch = 0
    assert refusal(request, image) is ErrorCode.STALE_BROKER_EPOCH


def test_only_a_broker_out_of_service_is_forgotten() -> None:
    image = image_of(partition((ONE, TWO)), active=(ONE, TWO))
    assert refusal(UnregisterBrokerRequest(broker_id=TWO), image) is ErrorCode.INVALID_REQUEST
    assert refusal(UnregisterBrokerRequest(broker_id=9), image) is (
        ErrorCode.BROKER_ID_NOT_REGISTERED
    )
    image = image_of(partition((ONE, TWO), replicas=(ONE, TWO)), active=(ONE, TWO))
    outcome = CONTROLLER.handle(UnregisterBrokerRequest(broker_id=THREE), image, 0)
    assert sorted(after(image, outcome.records).brokers) == [ONE, TWO]


def test_a_broker_that_holds_replicas_is_not_forgotten() -> None:
    image = image_of(*[partition((ONE, TWO))] * (NAMED_MAX + 2), active=(ONE, TWO))
    with pytest.raises(ApiError) as caught:
        CONTROLLER.handle(UnregisterBrokerRequest(broker_id=THREE), image, 0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    named = ", ".join(f"logs-{number}" for number in range(NAMED_MAX))
    assert caught.value.message == (
        f"broker {THREE} still has replicas of {named} and 2 more: "
        "move these to other brokers first"
    )


def test_what_brokers_cannot_do_without_is_not_held_up_by_orders() -> None:
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL)
    image = after(image_of(partition()), [level])
    active = ActiveController(CONTROLLER, OrderLimits(1, 1), image)
    replies: list[object] = []
    refused: list[ErrorCode] = []
    waiter = OrderWaiter(replies.append, lambda error: refused.append(error.code))
    end_offset = image.end_offset
    assert active.decide(AllocateProducerIds(ONE, 0), waiter, end_offset, 0, 0)
    assert active.decide(AllocateProducerIds(ONE, 0), waiter, end_offset + 1, 0, 0) is None
    assert refused == [ErrorCode.REQUEST_TIMED_OUT]
    order = heartbeat(image, TWO, must_commit=True)
    batch = active.decide(order, waiter, end_offset + 1, 0, 0)
    assert batch is not None
    assert [decode_record(one.value) for one in iterate_records(batch)] == [NoOpRecord()]
    # The heartbeat is answered after the orders before it, so it has no reply yet.
    assert replies == []


def test_a_broker_of_many_partitions_can_be_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.controller.active.BATCH_BYTES_MAX", 1_000)
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL)
    image = after(image_of(*(partition() for _ in range(50))), [level])
    active = ActiveController(CONTROLLER, OrderLimits(9, 9), image)
    refused: list[ErrorCode] = []
    waiter = OrderWaiter(lambda _: None, lambda error: refused.append(error.code))
    dead = DeadBroker(ONE, image.brokers[ONE].broker_epoch)
    batch = active.decide(dead, waiter, image.end_offset, 0, 0)
    assert refused == []
    assert batch is not None
    assert len(batch) > 1_000
