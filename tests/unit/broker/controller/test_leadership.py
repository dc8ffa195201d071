"""The rules by which replicas may lead. Broker 1 leads three replicas unless a test says
otherwise."""

from dataclasses import replace

import pytest

from broker.controller.leadership import (
    Election,
    ElectionResult,
    WantedChange,
    change,
    differs,
    elect,
    elect_by_order,
    lowered_min_isr,
    returns,
)
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import RECOVERED, RECOVERING, PartitionChangeRecord
from protocol.errors import ApiError, ErrorCode
from protocol.types import NO_NODE, Uuid
from tests.unit.broker.controller.kit import (
    NODES,
    ONE,
    THREE,
    TOPIC_ID,
    TWO,
    broker,
    brokers,
    disk,
    image_of,
    one_of,
    partition,
)


def changed(
    before: PartitionImage, wanted: WantedChange, *active: int, min_isr: int = 2
) -> PartitionImage:
    return before.changed(change(TOPIC_ID, 0, before, wanted, brokers(*active), min_isr))


def sets(one: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return one.in_sync_replicas, one.eligible_leader_replicas, one.last_known_elr


def test_a_leader_that_may_lead_goes_on() -> None:
    assert elect(partition(leader=TWO), brokers(*NODES), Election.CLEAN) == ElectionResult(TWO)


def test_the_first_of_the_assignment_in_sync_follows() -> None:
    assigned = partition(isr=(TWO, THREE), replicas=(ONE, THREE, TWO))
    assert elect(assigned, brokers(TWO, THREE), Election.CLEAN) == ElectionResult(THREE)


def test_in_sync_goes_before_eligible() -> None:
    one = partition(isr=(THREE,), elr=(ONE, TWO), leader=NO_NODE)
    assert elect(one, brokers(*NODES), Election.CLEAN) == ElectionResult(THREE)


def test_an_eligible_replica_that_leads_is_in_sync_again() -> None:
    after = changed(partition(isr=(), elr=(TWO, THREE), leader=NO_NODE), WantedChange(), TWO)
    assert after.leader == TWO
    assert after.leader_epoch == 6
    assert sets(after) == ((TWO,), (THREE,), ())


@pytest.mark.parametrize("election", Election)
def test_no_fenced_stopping_or_unknown_broker_leads(election: Election) -> None:
    one = partition(elr=(TWO,), known=NODES)
    standing = {ONE: broker(ONE, fenced=True), TWO: broker(TWO, stopping=True)}
    assert elect(one, standing, election, ONE) == ElectionResult(NO_NODE)
    assert elect(one, standing, election, TWO) == ElectionResult(NO_NODE)
    assert elect(one, standing, election, THREE) == ElectionResult(NO_NODE)


@pytest.mark.parametrize("election", Election)
def test_no_broker_leads_from_another_disk(election: Election) -> None:
    elsewhere = replace(broker(ONE), directory_ids=(Uuid(int=1),))
    one = partition(isr=(ONE,), replicas=(ONE,))
    assert elect(one, {ONE: elsewhere}, election, ONE) == ElectionResult(NO_NODE)
    unrecorded = replace(one, directories=())
    assert elect(unrecorded, {ONE: elsewhere}, election, ONE) == ElectionResult(ONE)


@pytest.mark.parametrize("election", Election)
def test_only_a_replica_leads(election: Election) -> None:
    one = partition(isr=(ONE, THREE), replicas=(ONE, TWO))
    assert elect(one, brokers(THREE), election, THREE) == ElectionResult(NO_NODE)


def test_last_known_eligible_replicas_do_not_lead_by_themselves() -> None:
    one = partition(isr=(), known=(TWO,), leader=NO_NODE)
    assert elect(one, brokers(*NODES), Election.CLEAN) == ElectionResult(NO_NODE)
    assert elect(one, brokers(*NODES), Election.UNCLEAN) == ElectionResult(NO_NODE)


def test_a_person_may_choose_where_no_replica_is_eligible() -> None:
    one = partition(isr=(), known=(TWO,), leader=NO_NODE)
    after = changed(one, WantedChange(election=Election.UNCLEAN, chosen=THREE), *NODES)
    assert (after.leader, after.leader_recovery_state) == (THREE, RECOVERING)
    assert sets(after) == ((THREE,), (), ())


def test_an_unclean_choice_is_skipped_where_a_replica_is_eligible() -> None:
    one = partition(isr=(), elr=(TWO,), leader=NO_NODE)
    after = changed(one, WantedChange(election=Election.UNCLEAN, chosen=THREE), *NODES)
    assert (after.leader, after.leader_recovery_state) == (TWO, RECOVERED)


def test_who_leaves_is_eligible_only_when_too_few_remain() -> None:
    """Two of the in-sync replicas {1, 2, 3} suffice for a commit. So the first replica that leaves
    can lack later records."""
    after = changed(partition(), WantedChange((ONE, TWO)), *NODES)
    assert sets(after) == ((ONE, TWO), (), ())
    after = changed(after, WantedChange((ONE,)), *NODES)
    assert sets(after) == ((ONE,), (TWO,), ())


def test_no_replica_is_eligible_once_enough_are_in_sync() -> None:
    before = partition(isr=(ONE,), elr=(TWO,), known=(THREE,))
    after = changed(before, WantedChange((ONE, THREE)), *NODES)
    assert sets(after) == ((ONE, THREE), (), ())


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    before = partition(isr=(ONE,), replicas=(ONE,))
    assert sets(changed(before, WantedChange((ONE,)), ONE)) == ((ONE,), (), ())
    assert sets(changed(before, WantedChange(()))) == ((), (ONE,), ())


def test_who_is_distrusted_is_only_known_afterwards() -> None:
    before = partition(isr=(ONE,), elr=(TWO,))
    after = changed(before, WantedChange((), frozenset({ONE})), TWO)
    assert after.leader == TWO
    assert sets(after) == ((TWO,), (), (ONE,))


def test_a_replica_on_an_empty_disk_is_forgotten() -> None:
    before = partition(isr=(ONE,), known=(TWO,))
    other = Uuid(int=1)
    after = changed(before, WantedChange(None, frozenset({TWO}), moved={TWO: other}), ONE)
    assert sets(after) == ((ONE,), (), ())
    assert after.directories == (disk(ONE), other, disk(THREE))


def test_a_minimum_that_is_lowered_takes_eligibility_away_in_its_batch() -> None:
    image = image_of(partition(isr=(ONE,), elr=(TWO,)), partition())
    (record,) = lowered_min_isr(image, image.topics["logs"], 1)
    assert isinstance(record, PartitionChangeRecord)
    assert sets(one_of(image).changed(record)) == ((ONE,), (), ())


def test_a_minimum_that_is_lowered_leaves_eligible_those_who_are_all_there_is() -> None:
    one = partition(isr=(), elr=(ONE, TWO), leader=NO_NODE)
    image = image_of(one, active=(THREE,))
    assert lowered_min_isr(image, image.topics["logs"], 1) == []


def test_a_change_of_nothing_differs_in_nothing() -> None:
    before = partition()
    nothing = change(TOPIC_ID, 0, before, WantedChange(), brokers(*NODES), 2)
    assert not differs(before, nothing)
    assert differs(before, change(TOPIC_ID, 0, before, WantedChange((ONE,)), brokers(*NODES), 2))


def test_leadership_can_return_to_the_first_of_the_assignment_alone() -> None:
    assert returns(partition(leader=TWO), brokers(*NODES))
    assert not returns(partition(leader=ONE), brokers(*NODES))
    assert not returns(partition(leader=TWO), brokers(TWO, THREE))
    assert not returns(partition(isr=(TWO, THREE), leader=TWO), brokers(*NODES))
    offline = partition(isr=(), elr=(TWO,), leader=NO_NODE)
    assert not returns(offline, brokers(*NODES))


def test_a_person_gets_the_preferred_leader_at_once_in_a_new_epoch() -> None:
    image = image_of(partition(leader=TWO))
    record = elect_by_order(image.topics["logs"], 0, image, Election.PREFERRED, 2)
    after = one_of(image).changed(record)
    assert (after.leader, after.leader_epoch) == (ONE, 6)


@pytest.mark.parametrize(
    ("one", "active", "election", "code"),
    [
        (partition(), NODES, Election.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(), NODES, Election.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (
            partition(isr=(TWO,), leader=TWO),
            NODES,
            Election.PREFERRED,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (
            partition(isr=(), leader=NO_NODE),
            (TWO, THREE),
            Election.UNCLEAN,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ),
    ],
)
def test_an_order_that_cannot_be_done_is_refused(
    one: PartitionImage, active: tuple[int, ...], election: Election, code: ErrorCode
) -> None:
    image = image_of(one, active=active)
    with pytest.raises(ApiError) as refused:
        elect_by_order(image.topics["logs"], 0, image, election, 2, chosen=ONE)
    assert refused.value.code is code
