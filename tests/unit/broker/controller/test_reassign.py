"""Every row of the table of reassignments: start, replacement, completion and cancellation."""

from __future__ import annotations

from dataclasses import replace

from broker.controller.elections import elect_leaders, electable_preferred
from broker.controller.leadership import lowered_min_isr
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import (
    RECOVERED,
    RECOVERING,
    TOPIC_RESOURCE,
    ConfigRecord,
)
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest
from protocol.types import NO_NODE
from tests.unit.broker.controller.kit import CONFIG, disk, partition
from tests.unit.broker.controller.moving import FIVE, Mover

ON_TWO = partition((1, 2), replicas=(1, 2))
STUCK = partition((1, 4), replicas=(4, 3, 1), adding=(4,), removing=(1,))
"""With a minimum of 2, the reassignment waits for broker 3. With a minimum of 1, it does not
wait."""


def epochs(one: PartitionImage) -> tuple[int, int]:
    """Return the leader epoch and the partition epoch. Every test starts with 5 and 7."""
    return one.leader_epoch, one.partition_epoch


# Start.


def test_a_start_adds_replicas_and_keeps_the_leader() -> None:
    mover = Mover(ON_TWO)
    one = mover.move((3, 1))
    assert mover.code() is ErrorCode.NONE
    assert mover.sets() == ((3, 1, 2), (3,), (2,))
    assert (one.leader, one.in_sync_replicas) == (1, (1, 2))
    # The leader epoch stays 5, because the leader keeps its state (KAFKA-13790).
    assert epochs(one) == (5, 8)
    assert one.directories == (disk(3), disk(1), disk(2))
    assert (one.original_replicas, one.target_replicas) == ((1, 2), (3, 1))


def test_a_permutation_is_complete_at_once() -> None:
    mover = Mover(ON_TWO)
    one = mover.move((2, 1))
    assert mover.sets() == ((2, 1), (), ())
    assert (one.leader, epochs(one)) == (1, (5, 8))
    assert one.directories == (disk(2), disk(1))
    assert not mover.image.moving


def test_the_present_assignment_is_no_change() -> None:
    mover = Mover(ON_TWO)
    mover.move((1, 2))
    assert (mover.code(), mover.records) == (ErrorCode.NONE, [])


def test_the_target_of_a_running_reassignment_is_no_change() -> None:
    """A client can repeat the request at the next controller, so the same target must be
    accepted."""
    mover = Mover(ON_TWO)
    mover.move((3, 1))
    mover.move((3, 1))
    assert (mover.code(), mover.records) == (ErrorCode.NONE, [])


def test_a_smaller_target_is_complete_at_once_if_it_is_in_sync() -> None:
    mover = Mover(partition())
    one = mover.move((2, 3))
    assert mover.sets() == ((2, 3), (), ())
    assert (one.in_sync_replicas, one.leader) == ((2, 3), 2)
    assert epochs(one) == (6, 8)


def test_a_broker_out_of_service_is_accepted_and_waited_for() -> None:
    mover = Mover(ON_TWO, active=(1, 2))
    mover.move((4, 1))
    assert (mover.code(), mover.sets()) == (ErrorCode.NONE, ((4, 1, 2), (4,), (2,)))


def test_directories_stay_unknown_if_an_older_record_did_not_name_them() -> None:
    """Otherwise the directory of a replica would be a guess, for example if its broker is gone."""
    mover = Mover(replace(partition((1,), replicas=(1, 9)), directories=()))
    one = mover.move((1, 3))
    assert (mover.sets(), one.directories) == (((1, 3, 9), (3,), (9,)), ())
    mover.propose(1, 3)
    assert (mover.sets(), mover.one.directories) == (((1, 3), (), ()), ())


# Completion.


def test_completion_takes_the_removed_replicas_away() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 1))
    assert mover.propose(1, 2, 3) is ErrorCode.NONE
    one = mover.one
    assert mover.sets() == ((3, 1), (), ())
    assert (one.in_sync_replicas, one.leader) == ((1, 3), 1)
    # The start and the completion each raised the partition epoch. The removal of a replica also
    # raised the leader epoch.
    assert epochs(one) == (6, 9)
    assert one.directories == (disk(3), disk(1))
    assert not mover.image.moving


def test_a_larger_replication_factor_keeps_the_leader_epoch() -> None:
    mover = Mover(partition((1,), replicas=(1,)))
    mover.move((1, 2, 3))
    assert mover.propose(1, 2) is ErrorCode.NONE
    assert mover.sets() == ((1, 2, 3), (2, 3), ())
    mover.propose(1, 2, 3)
    assert mover.sets() == ((1, 2, 3), (), ())
    assert epochs(mover.one) == (5, 10)


def test_completion_waits_for_all_added_replicas() -> None:
    """Guard 49: a reassignment that completed earlier would leave an incomplete replica."""
    mover = Mover(ON_TWO)
    mover.move((3, 4))
    mover.propose(1, 2, 3)
    assert mover.sets() == ((3, 4, 1, 2), (3, 4), (1, 2))
    mover.propose(1, 2, 3, 4)
    assert mover.sets() == ((3, 4), (), ())


def test_completion_waits_for_the_minimum_without_the_removed_replicas() -> None:
    """Guard 50: two replicas are in sync, but only one of them stays in the assignment, and the
    minimum is two."""
    mover = Mover(partition((1, 2), replicas=(1, 2, 3)), min_isr=2)
    mover.move((4, 3, 5))
    mover.fence(5)
    mover.propose(1, 2, 4)
    assert mover.one.is_moving
    mover.unfence(5)
    mover.propose(1, 2, 4, 5)
    assert (mover.sets(), mover.one.in_sync_replicas) == (((4, 3, 5), (), ()), (4, 5))


def test_completion_waits_for_a_leader_that_was_elected_uncleanly() -> None:
    """KIP-704: the leader must first recover, because it can lack records that other replicas
    have."""
    mover = Mover(partition((1,), replicas=(1, 2), recovery=RECOVERING), min_isr=1)
    mover.move((1,))
    assert mover.one.is_moving
    mover.propose(1)
    assert (mover.one.leader_recovery_state, mover.sets()) == (RECOVERED, ((1,), (), ()))


def test_completion_clears_the_eligible_replicas() -> None:
    one = partition((1,), elr=(2,), known=(3,), replicas=(1, 2, 3))
    mover = Mover(one, min_isr=2)
    mover.move((1, 4, 2))
    mover.propose(1, 4)
    done = mover.one
    assert (mover.sets(), done.in_sync_replicas) == (((1, 4, 2), (), ()), (1, 4))
    assert (done.eligible_leader_replicas, done.last_known_elr) == ((), ())


def test_an_eligible_replica_is_not_in_sync_and_completes_nothing() -> None:
    mover = Mover(
        partition((1,), elr=(3,), replicas=(1, 2, 3), adding=(3,), removing=(2,)), min_isr=2
    )
    mover.look()
    assert mover.one.is_moving


def test_a_leader_that_is_removed_is_followed_by_the_first_of_the_target() -> None:
    """Trap 7, KAFKA-12803: the former leader learns from the response that its proposal completed
    the reassignment."""
    mover = Mover(ON_TWO)
    mover.move((3, 2))
    assert mover.propose(1, 2, 3) is ErrorCode.NEW_LEADER_ELECTED
    assert (mover.one.leader, epochs(mover.one)) == (3, (6, 9))
    assert mover.sets() == ((3, 2), (), ())


def test_trap_01_a_target_below_the_minimum_completes() -> None:
    """KAFKA-15665: otherwise such a reassignment could never complete."""
    mover = Mover(partition(), min_isr=3)
    mover.move((1, 2))
    assert (mover.code(), mover.sets()) == (ErrorCode.NONE, ((1, 2), (), ()))


def test_trap_02_a_shrink_waits_for_all_that_stay() -> None:
    """KAFKA-16218: an in-sync replica is not removed while a replica that stays is lagging."""
    mover = Mover(partition((1, 2), replicas=(1, 2, 3)), min_isr=1)
    mover.move((3, 1))
    assert mover.sets() == ((3, 1, 2), (), (2,))
    mover.propose(1, 2, 3)
    assert mover.sets() == ((3, 1), (), ())


def test_trap_02_a_shrink_to_the_lagging_replica_waits() -> None:
    mover = Mover(partition((1, 2), replicas=(1, 2, 3)), min_isr=1)
    mover.move((3,))
    assert mover.one.is_moving
    # The user can still choose a target that is in sync.
    mover.move((2,))
    assert (mover.sets(), mover.one.leader) == (((2,), (), ()), 2)


def test_trap_06_a_new_controller_completes_what_no_record_completed() -> None:
    """KAFKA-4214: the minimum was lowered in the brokers' files. No record shows this, so a new
    controller must look for such partitions."""
    mover = Mover(STUCK, min_isr=2)
    mover.look()
    assert mover.one.is_moving
    lower = Mover(STUCK, min_isr=1)
    assert lower.look().replicas == (4, 3)
    assert (lower.one.leader, lower.one.in_sync_replicas) == (4, (4,))
    assert lower.look() == lower.one, "nothing is left to do"


def test_a_lowered_minimum_completes_in_the_same_batch() -> None:
    mover = Mover(STUCK, min_isr=2)
    (record,) = lowered_min_isr(mover.image, mover.image.topics["logs"], 1)
    assert mover.replay([record]).replicas == (4, 3)


def test_a_broker_that_returns_completes_what_waited() -> None:
    mover = Mover(STUCK, min_isr=2, active=(1, 2, 4, 5))
    mover.replay(
        [
            ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name="logs",
                name="min.insync.replicas", value="1",
            )
        ]
    )  # fmt: skip
    assert mover.one.is_moving
    assert mover.unfence(3).replicas == (4, 3)


# Another target, and cancellation.


def test_another_target_keeps_the_original_replicas_and_drops_what_it_lacks() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 4))
    mover.propose(1, 2, 3)
    mover.move((4, 5))
    one = mover.one
    assert mover.sets() == ((4, 5, 1, 2), (4, 5), (1, 2))
    # Replica 3 left the assignment, so the leader epoch rises and its fetches are refused.
    assert (one.in_sync_replicas, one.leader) == ((1, 2), 1)
    assert epochs(one) == (6, 10)


def test_another_target_that_drops_no_replica_keeps_the_leader_epoch() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 1))
    mover.move((3, 4))
    assert (mover.sets(), epochs(mover.one)) == (((3, 4, 1, 2), (3, 4), (1, 2)), (5, 9))


def test_a_half_copied_replica_stays_an_added_one() -> None:
    """Kafka would treat replica 3, which an earlier reassignment added, as an original one. Here it
    stays an added one, because its copy can be incomplete."""
    mover = Mover(ON_TWO)
    mover.move((3, 1))
    mover.move((3, 2))
    assert mover.sets() == ((3, 2, 1), (3,), (1,))


def test_another_target_can_complete_at_once() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 4))
    mover.propose(1, 2, 3)
    mover.move((3, 1))
    assert (mover.sets(), mover.one.in_sync_replicas) == (((3, 1), (), ()), (1, 3))


def test_the_original_replicas_as_target_end_the_reassignment_in_the_order_that_is_asked() -> None:
    mover = Mover(ON_TWO)
    mover.move((3, 4))
    mover.move((2, 1))
    assert (mover.sets(), mover.one.leader, mover.one.leader_epoch) == (((2, 1), (), ()), 1, 6)


def test_a_cancellation_takes_the_added_replicas_away() -> None:
    """Trap 3, KAFKA-13972: the added replicas also leave the ISR, and the leader epoch rises."""
    mover = Mover(ON_TWO)
    mover.move((3, 4))
    mover.propose(1, 2, 3)
    one = mover.move(None)
    assert (mover.code(), mover.sets()) == (ErrorCode.NONE, ((1, 2), (), ()))
    assert (one.in_sync_replicas, one.leader, epochs(one)) == ((1, 2), 1, (6, 10))
    assert one.directories == (disk(1), disk(2))


def test_trap_05_a_cancellation_keeps_the_order_that_the_reassignment_made() -> None:
    """As in Kafka: a move from [1,2,3] to [4,2,1] and its cancellation give [2,1,3], with another
    preferred leader."""
    mover = Mover(partition())
    mover.move((4, 2, 1))
    mover.move(None)
    assert mover.sets() == ((2, 1, 3), (), ())
    mover.move((1, 2, 3))
    assert mover.one.replicas == (1, 2, 3)


def test_a_cancellation_elects_an_original_replica_if_an_added_one_leads() -> None:
    mover = Mover(
        partition((1, 3), replicas=(3, 1, 2), adding=(3,), removing=(2,), leader=3), min_isr=3
    )
    one = mover.move(None)
    assert (mover.sets(), one.leader, one.in_sync_replicas) == (((1, 2), (), ()), 1, (1,))


def test_a_cancellation_keeps_eligible_replicas_only_among_the_original_ones() -> None:
    one = partition(
        (1,), elr=(2, 3), known=(4,), replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2)
    )
    mover = Mover(one, min_isr=2)
    after_it = mover.move(None)
    assert (after_it.eligible_leader_replicas, after_it.last_known_elr) == ((2,), ())


def test_a_cancellation_of_a_shrink_raises_the_leader_epoch_too() -> None:
    mover = Mover(partition((1, 2), replicas=(1, 2, 3)), min_isr=1)
    mover.move((3,))
    one = mover.move(None)
    assert (mover.sets(), one.leader, epochs(one)) == (((3, 1, 2), (), ()), 1, (6, 9))


def test_trap_04_a_cancellation_never_empties_the_in_sync_replicas() -> None:
    """KAFKA-14424, guard 53: an empty ISR would need an unclean election, for which no user has
    asked."""
    mover = Mover(ON_TWO, min_isr=1)
    mover.move((3, 4))
    mover.propose(1, 2, 3)
    mover.fence(1)
    mover.fence(2)
    assert (mover.one.leader, mover.one.in_sync_replicas) == (3, (3,))
    mover.move(None)
    assert mover.code() is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert mover.answer.error_message == (
        "none of the replicas [1, 2] of logs-0 is in sync, so acknowledged records could be lost: "
        "start their brokers and wait until one of them is in sync, or keep one of the replicas [3]"
    )
    assert mover.records == []
    mover.move((4, 5))
    assert mover.code() is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "another target drops 3 as well"


# Leaders.


def test_added_replicas_lead_last_and_removed_ones_before_them() -> None:
    mover = Mover(
        partition((1, 2, 3, 4), replicas=(4, 5, 3, 1, 2), adding=(4, 5), removing=(1, 2), leader=2)
    )
    leaders = [mover.one.leader]
    for node_id in (2, 3, 1):
        leaders.append(mover.fence(node_id).leader)
    # Replica 3 stays in the assignment, so it leads next. Then follow 1, which is removed, and 4,
    # which was added.
    assert leaders == [2, 3, 1, 4]


def test_leadership_does_not_return_to_an_added_replica_by_itself() -> None:
    """KAFKA-10149: the automatic election of preferred leaders skips partition 0, whose first
    replica was added, but not the others."""
    mover = Mover(
        partition((1, 2, 3), replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2)),
        partition((1, 2), replicas=(2, 1)),
    )
    found = [number for _, number in electable_preferred(mover.image, frozenset(FIVE))]
    assert found == [1]


def test_by_order_an_added_replica_in_sync_is_elected() -> None:
    mover = Mover(partition((1, 2, 3), replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2)))
    request = ElectLeadersRequest(election_type=0, topic_partitions=None)
    outcome = elect_leaders(request, mover.image, CONFIG)
    assert mover.replay(outcome.records).leader == 3


def test_an_unclean_election_prefers_replicas_that_were_there_before() -> None:
    mover = Mover(
        partition((), replicas=(3, 1, 2), adding=(3,), removing=(2,), leader=NO_NODE),
        active=(2, 3),
    )
    request = ElectLeadersRequest(election_type=1, topic_partitions=None)
    outcome = elect_leaders(request, mover.image, CONFIG)
    assert mover.replay(outcome.records).leader == 2


def test_the_death_of_a_removed_replica_does_not_stop_the_move() -> None:
    mover = Mover(ON_TWO, min_isr=1)
    mover.move((3, 1))
    mover.fence(2)
    mover.propose(1, 3)
    assert mover.sets() == ((3, 1), (), ())


def test_the_death_of_an_added_replica_stops_it_until_it_returns() -> None:
    mover = Mover(ON_TWO, min_isr=1)
    mover.move((3, 1))
    mover.fence(3)
    assert mover.look().is_moving
    mover.unfence(3)
    mover.propose(1, 2, 3)
    assert mover.sets() == ((3, 1), (), ())
