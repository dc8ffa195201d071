"""The steps that bring a broker back after its disk was lost."""

import random
from dataclasses import replace

import pytest

from appliance.kafka.disk_plan import DiskState, refuse_replacement, steps_to_replace
from appliance.kafka.membership_steps import GiveVote, MembershipStep, TakeVote
from appliance.output import CommandError, Exit
from protocol.types import TopicPartition, Uuid
from tests.unit.appliance.cluster_model import NOW_MS, ClusterModel


def state_of(model: ClusterModel, node_id: int) -> DiskState:
    return DiskState(node_id, model.replicas(), model.registrations(), model.quorum())


def three() -> ClusterModel:
    """Three voters, of which broker 2 has lost its disk."""
    return ClusterModel(
        {"logs": [[1, 2, 3], [2, 3, 1]], "two": [[1, 2]], "other": [[1, 3]]},
        {1, 2, 3},
        {1, 2, 3},
        away={2},
        behind={2},
    )


def names(model: ClusterModel, node_id: int) -> list[str]:
    return [type(step).__name__ for step in steps_to_replace(state_of(model, node_id))]


def take_all(model: ClusterModel, node_id: int) -> list[MembershipStep]:
    taken: list[MembershipStep] = []
    while steps := steps_to_replace(state_of(model, node_id)):
        model.take(steps[0])
        taken.append(steps[0])
        assert len(taken) < 50, taken
    return taken


def test_the_steps_of_a_voter() -> None:
    model = three()
    planned = ["TakeVote", "StartBroker", "WaitForReplicas", "WaitForMetadata"]
    assert names(model, 2) == planned
    taken = [type(step).__name__ for step in take_all(model, 2)]
    assert list(dict.fromkeys(taken)) == [*planned, "GiveVote"]
    assert model.voters == {1, 2, 3}
    assert all(2 in model.in_sync(TopicPartition("logs", one)) for one in (0, 1))
    assert steps_to_replace(state_of(model, 2)) == []


def test_trap_27_the_vote_of_the_lost_disk_goes_before_the_broker_starts() -> None:
    """An empty disk must not use the vote of a full one."""
    first = steps_to_replace(state_of(three(), 2))[0]
    assert first == TakeVote(2, Uuid(int=2), (1, 3))


def test_the_vote_comes_back_last() -> None:
    """Until then the broker would count for a majority without the records of one."""
    model = three()
    model.behind = set()
    taken = [type(step).__name__ for step in take_all(model, 2)]
    assert taken[-1] == "GiveVote"
    assert taken.index("StartBroker") < taken.index("WaitForReplicas")


def test_the_vote_is_given_to_the_new_disk_and_not_to_the_lost_one() -> None:
    """The leader of the quorum lists the removed voter as an observer until it forgets it."""
    model = three()
    model.behind = set()
    while names(model, 2) != ["GiveVote"]:
        model.take(steps_to_replace(state_of(model, 2))[0])
    state = state_of(model, 2)
    assert state.quorum is not None
    (new,) = state.quorum.observers
    lost = replace(
        new, directory_id=Uuid(int=99), fetched_at_ms=NOW_MS - 5, caught_up_at_ms=NOW_MS - 5
    )
    state = replace(state, quorum=replace(state.quorum, observers=(lost, new)))
    assert steps_to_replace(state) == [GiveVote(2, Uuid(int=2))]


def test_an_observer_gets_no_vote() -> None:
    model = three()
    model.registered.add(4)
    model.partitions["fourth"] = [[4, 1]]
    model.away = {4}
    assert names(model, 4) == ["StartBroker", "WaitForReplicas"]
    take_all(model, 4)
    assert model.voters == {1, 2, 3}


def test_an_interrupted_replacement_continues_from_every_step() -> None:
    model = three()
    count = len(take_all(model, 2))
    for interrupted in range(count + 1):
        again = three()
        for _ in range(interrupted):
            again.take(steps_to_replace(state_of(again, 2))[0])
        assert len(take_all(again, 2)) == count - interrupted
        assert again == model


def test_a_broker_that_is_whole_has_no_steps() -> None:
    model = three()
    model.away = set()
    assert steps_to_replace(state_of(model, 2)) == []
    refuse_replacement(state_of(model, 2))


def test_a_partition_without_another_replica_is_lost_and_not_waited_for() -> None:
    model = three()
    model.partitions["alone"] = [[2]]
    state = state_of(model, 2)
    refuse_replacement(state)
    assert state.lost == [TopicPartition("alone", 0)]
    model.empty = {(TopicPartition("alone", 0), 2)}
    model.take(steps_to_replace(state)[0])
    while names(model, 2) != ["GiveVote"]:
        model.take(steps_to_replace(state_of(model, 2))[0])
    assert model.in_sync(TopicPartition("alone", 0)) == ()


def refusal(model: ClusterModel, node_id: int) -> CommandError:
    with pytest.raises(CommandError) as caught:
        refuse_replacement(state_of(model, node_id))
    return caught.value


def test_an_id_that_does_not_exist() -> None:
    error = refusal(three(), 9)
    assert error.code == Exit.NOT_FOUND
    assert "there is no broker 9; registered are 1, 2, 3" in str(error)


def test_a_second_disk_while_the_first_is_not_whole_is_refused() -> None:
    model = three()
    model.away = {2, 3}
    text = str(refusal(model, 2))
    assert "the voters are brokers 1, 3, and those in service (1) are no majority" in text
    model = three()
    model.voters = {1, 3}
    model.away = {3}
    model.empty = {(TopicPartition("logs", 0), 2), (TopicPartition("logs", 1), 2)}
    assert "are no majority" in str(refusal(model, 3))


def test_a_partition_that_nobody_else_has_in_sync_is_refused() -> None:
    model = three()
    model.empty = {(TopicPartition("two", 0), 1)}
    assert "no other broker in service has all records of two-0" in str(refusal(model, 2))


def test_the_only_voter_is_refused() -> None:
    model = three()
    model.voters = {2}
    assert "broker 2 is the only voter" in str(refusal(model, 2))


def test_random_clusters_are_whole_again() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        ids = [1, 2, 3, *([4] if chance.random() < 0.5 else [])]
        node_id = chance.choice(ids)
        model = ClusterModel(
            {"t": [chance.sample(ids, chance.randint(2, 3)) for _ in range(chance.randint(1, 8))]},
            set(ids),
            {1, 2, 3},
            away={node_id},
            behind={node_id},
        )
        refuse_replacement(state_of(model, node_id))
        take_all(model, node_id)
        assert model.voters == {1, 2, 3}
        assert model.empty == set()
