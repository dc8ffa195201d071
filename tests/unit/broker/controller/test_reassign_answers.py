"""The reasons to refuse a reassignment, and the list of partitions that are being reassigned."""

from __future__ import annotations

import pytest

from broker.controller.reassign import alter_reassignments
from broker.metadata.records import BROKER_RESOURCE, ConfigRecord, RemoveTopicRecord
from protocol.errors import ErrorCode
from tests.unit.broker.controller.kit import CONFIG, TOPIC_ID, after, partition
from tests.unit.broker.controller.moving import Mover, request_to

ON_TWO = partition((1, 2), replicas=(1, 2))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ((), "logs-0 was assigned to an empty list of replicas: name at least one broker"),
        (
            (1, 3, 3),
            "logs-0 was assigned to the brokers [3] more than once: name each broker once",
        ),
        (
            (1, 9, -1),
            "logs-0 was assigned to the brokers [-1, 9], which are not registered; the cluster has "
            "the brokers [1, 2, 3, 4, 5]",
        ),
    ],
)
def test_a_wrong_target_is_refused(target: tuple[int, ...], text: str) -> None:
    mover = Mover(ON_TWO)
    mover.move(target)
    assert mover.code() is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (mover.answer.error_message, mover.records) == (text, [])


def test_trap_35_a_cordoned_broker_gets_no_new_replica_and_keeps_what_it_has() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 1))
    for node_id in (1, 3, 4):
        record = ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name=str(node_id),
            name="cordoned.log.dirs", value="*",
        )  # fmt: skip
        mover.replay([record])
    mover.move((3, 4))
    assert mover.code() is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert mover.answer.error_message == (
        "logs-0 was assigned to the brokers [4], which are cordoned: they get no new replicas "
        "until you delete their setting cordoned.log.dirs"
    )
    # The running reassignment continues. It can also get another target that adds no cordoned
    # broker.
    mover.move((1, 3, 5))
    assert mover.code() is ErrorCode.NONE
    mover.propose(1, 2, 3, 5)
    assert mover.sets() == ((1, 3, 5), (), ())


def test_trap_21_a_partition_that_waits_for_a_broker_holds_up_no_other() -> None:
    mover = Mover(ON_TWO, ON_TWO, active=(1, 2, 3))
    request = request_to((3, 1), (4, 1))
    mover.replay(alter_reassignments(request, mover.image, CONFIG).records)
    mover.propose(1, 2, 3)
    assert mover.sets() == ((3, 1), (), ())
    assert mover.image.moving == {TOPIC_ID: (1,)}
    assert mover.look() == mover.one


def test_a_cancellation_of_nothing_is_refused() -> None:
    mover = Mover(ON_TWO)
    mover.move(None)
    assert mover.code() is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert mover.answer.error_message == (
        "logs-0 is not being reassigned: there is nothing to cancel"
    )


def test_kip_860_another_number_of_replicas_is_refused_if_the_request_forbids_it() -> None:
    mover = Mover(ON_TWO)
    mover.move((1, 2, 3), may_resize=False)
    assert mover.code() is ErrorCode.INVALID_REPLICATION_FACTOR
    assert mover.answer.error_message == (
        "logs-0 has 2 replicas, the request names 3 brokers and does not allow another number of "
        "replicas: name 2 brokers, or allow the change"
    )
    mover.move((3, 1), may_resize=False)
    assert mover.code() is ErrorCode.NONE
    # During a reassignment, the number of target replicas counts, and not the number of all
    # replicas.
    mover.move((4, 3), may_resize=False)
    assert mover.code() is ErrorCode.NONE


def test_unknown_topics_and_partitions_are_refused() -> None:
    mover = Mover(ON_TWO)
    for request, text in (
        (request_to((1,), topic="none"), "topic 'none' does not exist"),
        (request_to((2, 1), (1, 2)), "topic 'logs' has no partition 1: its partitions are 0 to 0"),
    ):
        outcome = alter_reassignments(request, mover.image, CONFIG)
        answer = outcome.reply.responses[0].partitions[-1]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.error_message == text


def test_a_refused_partition_leaves_the_others_of_its_request_alone() -> None:
    mover = Mover(ON_TWO, ON_TWO)
    outcome = alter_reassignments(request_to((9,), (3, 1)), mover.image, CONFIG)
    codes = [one.error_code for one in outcome.reply.responses[0].partitions]
    assert codes == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE]
    assert [record.partition_id for record in outcome.records] == [1]  # type: ignore[union-attr]
    assert outcome.reply.allow_replication_factor_change


def test_a_partition_that_a_request_names_twice_moves_to_the_second_target() -> None:
    mover = Mover(ON_TWO)
    request = request_to((3, 1))
    request.topics += request_to((4, 1)).topics
    mover.replay(alter_reassignments(request, mover.image, CONFIG).records)
    assert mover.sets() == ((4, 1, 2), (4,), (2,))


def test_a_deleted_topic_ends_its_reassignments() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 1))
    assert mover.image.moving == {TOPIC_ID: (0,)}
    image = after(mover.image, [RemoveTopicRecord(topic_id=TOPIC_ID)])
    assert not image.moving
    answer = alter_reassignments(request_to(None), image, CONFIG).reply
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_index_knows_the_partitions_that_move() -> None:
    mover = Mover(ON_TWO, ON_TWO, ON_TWO)
    for targets, expected in (
        (((1, 2), (3, 1), (1, 2)), (1,)),
        (((3, 1), (3, 1), (4, 1)), (0, 1, 2)),
        ((None, (3, 1), (4, 1)), (1, 2)),
    ):
        outcome = alter_reassignments(request_to(*targets), mover.image, CONFIG)
        mover.replay(outcome.records)
        assert mover.image.moving == {TOPIC_ID: expected}
