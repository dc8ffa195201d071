"""A broker registers, is fenced, stops and is unregistered: the effects on its partitions."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.controller.registration import (
    distrust,
    fence,
    leads_nothing,
    register,
    stop,
    unfence,
)
from broker.controller.registration_checks import RegistrationFacts
from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import MetadataRecord, RegisterBrokerRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import BrokerRegistrationRequest, DamagedTopic
from protocol.types import NO_NODE, Uuid, uuid_to_base64
from tests.unit.broker.controller.kit import (
    CLUSTER,
    CONFIG,
    NODES,
    ONE,
    THREE,
    TWO,
    after,
    disk,
    image_of,
    incarnation,
    one_of,
    partition,
    registration,
)

DEAD = RegistrationFacts(CLUSTER, is_live=False, voter_directory=None)
LIVE = replace(DEAD, is_live=True)
OTHER_DISK = Uuid(int=0xEE)


def registered(
    request: BrokerRegistrationRequest, image: MetadataImage, facts: RegistrationFacts = DEAD
) -> MetadataImage:
    return after(image, register(request, image, CONFIG, facts).records)


def refused(
    request: BrokerRegistrationRequest, image: MetadataImage, facts: RegistrationFacts = DEAD
) -> ApiError:
    with pytest.raises(ApiError) as error:
        register(request, image, CONFIG, facts)
    return error.value


def sets(image: MetadataImage, number: int = 0) -> tuple[Sequence[int], ...]:
    one = one_of(image, number)
    return one.in_sync_replicas, one.eligible_leader_replicas, one.last_known_elr


def test_a_registration_is_fenced_and_its_epoch_is_its_offset() -> None:
    image = image_of(partition())
    outcome = register(registration(ONE), image, CONFIG, DEAD)
    assert outcome.reply.broker_epoch == image.end_offset
    first = outcome.records[0]
    assert isinstance(first, RegisterBrokerRecord)
    assert first.broker_epoch == image.end_offset
    broker = after(image, outcome.records).brokers[ONE]
    assert (broker.is_fenced, broker.incarnation_id) == (True, incarnation(ONE, 1))
    assert broker.directory_ids == (disk(ONE),)


def test_the_same_incarnation_again_gets_its_epoch_and_changes_nothing() -> None:
    """This holds even while the broker is live, because it repeats the request when it gets no
    answer."""
    image = registered(registration(ONE), image_of(partition()))
    again = register(registration(ONE), image, CONFIG, LIVE)
    assert again.records == []
    assert again.reply.broker_epoch == image.brokers[ONE].broker_epoch


def test_another_incarnation_is_refused_while_the_first_may_live() -> None:
    error = refused(registration(ONE), image_of(partition()), LIVE)
    assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    for side in (incarnation(ONE), incarnation(ONE, 1)):
        assert uuid_to_base64(side) in error.message
    assert "BROKER://broker-1:9094" in error.message


def test_a_foreign_cluster_is_refused_with_both_named() -> None:
    error = refused(registration(ONE, cluster_id="other"), image_of(partition()))
    assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "other" in error.message and CLUSTER in error.message
    assert f"broker-{ONE}:9094" in error.message
    assert "Correct the addresses" in error.message, "and what to do"


def test_a_copied_directory_is_refused_with_both_named() -> None:
    error = refused(registration(4, directories=[disk(TWO)]), image_of(partition()))
    assert error.code is ErrorCode.INVALID_REQUEST
    for side in (uuid_to_base64(disk(TWO)), "broker 2", "broker 4", "broker-4:9094"):
        assert side in error.message


def test_a_voter_with_an_emptied_directory_is_refused_with_both_named() -> None:
    facts = replace(DEAD, voter_directory=disk(ONE))
    error = refused(registration(ONE, directories=[OTHER_DISK]), image_of(partition()), facts)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert uuid_to_base64(disk(ONE)) in error.message
    assert uuid_to_base64(OTHER_DISK) in error.message
    assert registered(registration(ONE), image_of(partition()), facts).brokers[ONE].is_fenced


@pytest.mark.parametrize("directories", [[], [OTHER_DISK, OTHER_DISK]])
def test_a_broker_has_directories_and_each_once(directories: list[Uuid]) -> None:
    error = refused(registration(ONE, directories=directories), image_of(partition()))
    assert error.code is ErrorCode.INVALID_REQUEST


def test_what_a_new_life_led_is_led_by_another_in_a_new_epoch() -> None:
    later = registered(registration(ONE), image_of(partition()))
    assert (one_of(later).leader, one_of(later).leader_epoch) == (TWO, 6)
    assert sets(later) == ((TWO, THREE), (), ())


def test_what_a_new_life_led_alone_it_leads_again_in_a_later_epoch() -> None:
    alone = partition(isr=(ONE,), replicas=(ONE,))
    later = registered(registration(ONE), image_of(alone))
    assert (one_of(later).leader, one_of(later).leader_epoch) == (NO_NODE, 6)
    assert sets(later) == ((), (ONE,), ())
    again = after(later, unfence(ONE, later, CONFIG))
    assert (one_of(again).leader, one_of(again).leader_epoch) == (ONE, 7)
    assert sets(again) == ((ONE,), (), ())


def test_the_first_broker_of_an_empty_cluster_registers() -> None:
    image = registered(registration(ONE), MetadataImage())
    assert image.brokers[ONE].broker_epoch == 0


INTERVAL = {"flush.messages": "1000"}


@pytest.mark.parametrize(
    ("settings", "previous_broker_epoch", "directories", "expected"),
    [
        pytest.param({}, -1, [disk(ONE)], ((), (ONE,), ()), id="synced before it was counted"),
        pytest.param(INTERVAL, 0, [disk(ONE)], ((), (ONE,), ()), id="a clean stop"),
        pytest.param(INTERVAL, -1, [disk(ONE)], ((), (), (ONE,)), id="an unclean one"),
        pytest.param(INTERVAL, 7, [disk(ONE)], ((), (), (ONE,)), id="clean, but another life's"),
        pytest.param({}, 0, [OTHER_DISK], ((), (), ()), id="another disk"),
    ],
)
def test_what_a_returning_disk_is_believed(
    settings: dict[str, str],
    previous_broker_epoch: int,
    directories: list[Uuid],
    expected: tuple[Sequence[int], ...],
) -> None:
    request = registration(
        ONE, previous_broker_epoch=previous_broker_epoch, directories=directories
    )
    for before in (partition(isr=(ONE,)), partition(isr=(), elr=(ONE,), leader=NO_NODE)):
        later = registered(request, image_of(before, settings=settings))
        assert sets(later) == expected
        assert one_of(later).directories[0] == directories[0]


@pytest.mark.parametrize(
    ("previous_broker_epoch", "expected"),
    [
        pytest.param(0, ((), (ONE,), ()), id="the marker of the last process"),
        pytest.param(7, ((), (), (ONE,)), id="the marker of another process"),
        pytest.param(-1, ((), (), (ONE,)), id="no marker"),
    ],
)
def test_guard_62_what_can_be_an_old_copy_is_believed_by_its_marker_alone(
    previous_broker_epoch: int, expected: tuple[Sequence[int], ...]
) -> None:
    request = registration(ONE, previous_broker_epoch=previous_broker_epoch, can_be_old_copy=True)
    sent, _ = BrokerRegistrationRequest.decode(request.encode(4), 4, 0)
    assert sent == request
    for settings in ({}, INTERVAL):
        for before in (partition(isr=(ONE,)), partition(isr=(), elr=(ONE,), leader=NO_NODE)):
            assert sets(registered(sent, image_of(before, settings=settings))) == expected
    in_sync = registered(sent, image_of(partition()))
    assert ONE not in one_of(in_sync).in_sync_replicas


def test_a_disk_is_not_believed_of_what_it_says_is_damaged() -> None:
    """A replica that is reported as damaged is never trusted, whatever other evidence there is."""
    request = registration(ONE, previous_broker_epoch=0, damaged={"logs": [0, 7], "gone": [1]})
    eligible = partition(isr=(), elr=(ONE, TWO), leader=NO_NODE)
    image = image_of(partition(isr=(ONE,)), partition(isr=(ONE,)), partition())
    later = registered(request, image)
    assert sets(later, 0) == ((), (), (ONE,))
    assert sets(later, 1) == ((), (ONE,), ())
    assert sets(later, 2) == ((TWO, THREE), (), ())
    assert sets(registered(request, image_of(eligible))) == ((TWO,), (), (ONE,))


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(partition(), (TWO, (TWO, THREE), ()), id="the leader"),
        pytest.param(partition(leader=TWO), (TWO, (TWO, THREE), ()), id="a follower"),
        pytest.param(
            partition(isr=(ONE, THREE)), (THREE, (THREE,), ()), id="too few for the minimum"
        ),
        pytest.param(
            partition(isr=(TWO,), elr=(ONE, THREE), leader=TWO),
            (TWO, (TWO,), (THREE,)),
            id="an eligible replica",
        ),
        pytest.param(
            partition(isr=(TWO, THREE), leader=TWO),
            (TWO, (TWO, THREE), ()),
            id="a replica that is not eligible",
        ),
    ],
)
def test_others_lead_what_a_broker_in_service_has_found_damaged(
    before: PartitionImage, expected: tuple[int, Sequence[int], Sequence[int]]
) -> None:
    image = image_of(before, before)
    later = after(image, distrust(ONE, [DamagedTopic(name="logs", partitions=[1])], image, CONFIG))
    one = one_of(later, 1)
    assert (one.leader, one.in_sync_replicas, one.eligible_leader_replicas) == expected
    # The leader epoch rises even if the leader stays, because the leader must forget what it knows
    # about the damaged log.
    assert one.leader_epoch == before.leader_epoch + 1
    assert one_of(later, 0) == before


@pytest.mark.parametrize(
    ("before", "damaged"),
    [
        pytest.param(partition(isr=(ONE,)), [0], id="no other in sync"),
        pytest.param(partition(isr=(ONE, THREE)), [0], id="only one who is fenced"),
        pytest.param(
            partition(replicas=(TWO, THREE), isr=(TWO,), leader=TWO), [0], id="no replica"
        ),
        pytest.param(partition(), [1, -1], id="no partition"),
        pytest.param(partition(isr=(), elr=(ONE, THREE), leader=NO_NODE), [0], id="no leader"),
    ],
)
def test_a_partition_without_another_eligible_leader_stays_where_it_is(
    before: PartitionImage, damaged: list[int]
) -> None:
    image = image_of(before, active=(ONE, TWO))
    named = [DamagedTopic(name=one, partitions=damaged) for one in ("logs", "gone")]
    assert distrust(ONE, named, image, CONFIG) == []


def test_an_older_version_that_recorded_no_directories_is_trusted() -> None:
    image = image_of(replace(partition(isr=(ONE,), replicas=(ONE,)), directories=()))
    unrecorded = replace(image.brokers[ONE], directory_ids=())
    image = replace(image, brokers={**image.brokers, ONE: unrecorded})
    assert sets(registered(registration(ONE), image)) == ((), (ONE,), ())


def test_a_registration_touches_no_partition_of_others() -> None:
    image = image_of(partition(isr=(TWO,), leader=TWO, replicas=(TWO, THREE)))
    assert one_of(registered(registration(ONE), image)) == one_of(image)


def test_a_fenced_broker_leads_nothing_and_is_in_sync_nowhere() -> None:
    image = image_of(partition(), partition(leader=TWO), partition(isr=(ONE,)))
    later = after(image, fence(ONE, image, CONFIG))
    assert later.brokers[ONE].is_fenced
    assert [one_of(later, number).leader for number in range(3)] == [TWO, TWO, NO_NODE]
    assert [one_of(later, number).leader_epoch for number in range(3)] == [6, 5, 6]
    assert sets(later, 0) == ((TWO, THREE), (), ())
    assert sets(later, 2) == ((), (ONE,), ())


def test_a_stopping_broker_hands_over_and_stays_unfenced() -> None:
    image = image_of(partition())
    assert not leads_nothing(ONE, image)
    later = after(image, stop(ONE, image, CONFIG))
    assert (later.brokers[ONE].is_fenced, later.brokers[ONE].is_stopping) == (False, True)
    assert one_of(later).leader == TWO
    assert sets(later) == ((TWO, THREE), (), ())
    assert leads_nothing(ONE, later)


def test_an_unfenced_broker_leads_only_what_it_may() -> None:
    image = image_of(
        partition(isr=(), elr=(ONE,), leader=NO_NODE),
        partition(isr=(), elr=(TWO,), leader=NO_NODE),
        partition(isr=(), known=(ONE,), leader=NO_NODE),
        active=(THREE,),
    )
    later = after(image, unfence(ONE, image, CONFIG))
    assert not later.brokers[ONE].is_fenced
    assert [one_of(later, number).leader for number in range(3)] == [ONE, NO_NODE, NO_NODE]


@pytest.mark.parametrize("standing", [fence, stop])
def test_the_brokers_own_record_comes_first(standing: object) -> None:
    """The record about the broker comes first, and the changes of its partitions follow."""
    image = image_of(partition())
    assert callable(standing)
    records: Sequence[MetadataRecord] = standing(ONE, image, CONFIG)
    kinds = [type(record).__name__ for record in records]
    assert kinds[0] in ("FenceBrokerRecord", "BrokerRegistrationChangeRecord")
    assert kinds[1:] == ["PartitionChangeRecord"]
    assert NODES == (ONE, TWO, THREE)
