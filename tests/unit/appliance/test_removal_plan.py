"""The steps that take a broker out of a cluster, from every state in which they can stop."""

from __future__ import annotations

import random

import pytest

from appliance.kafka.membership_steps import (
    Cordon,
    GiveUpLeaders,
    GiveVote,
    StartMoves,
    StopBroker,
    TakeVote,
    Unregister,
    WaitForMoves,
)
from appliance.kafka.removal_plan import (
    RemovalState,
    RemovalStep,
    refuse_removal,
    remaining_steps,
    way_back,
)
from appliance.output import CommandError, Exit
from protocol.types import TopicPartition
from tests.unit.appliance.cluster_model import ClusterModel


def four() -> ClusterModel:
    """Four brokers, three of which vote."""
    return ClusterModel(
        {"logs": [[1, 2, 3], [2, 3, 4], [3, 1, 2]], "one": [[3]], "away": [[1, 2]]},
        {1, 2, 3, 4},
        {1, 2, 3},
    )


def state_of(model: ClusterModel, node_id: int) -> RemovalState:
    return RemovalState(
        node_id,
        model.replicas(),
        model.registrations(),
        model.cordoned_in_service(),
        model.quorum(),
        model.factors,
    )


def names(state: RemovalState) -> list[str]:
    return [type(one).__name__ for one in remaining_steps(state)]


def take_all(model: ClusterModel, node_id: int, steps_max: int = 100) -> list[RemovalStep]:
    taken: list[RemovalStep] = []
    while steps := remaining_steps(state_of(model, node_id)):
        model.take(steps[0])
        taken.append(steps[0])
        assert len(taken) < steps_max, taken
    return taken


def test_the_steps_of_a_broker_with_replicas_and_a_vote() -> None:
    model = four()
    assert names(state_of(model, 3)) == [
        "Cordon",
        "StartMoves",
        "WaitForMoves",
        "GiveVote",
        "TakeVote",
        "StopBroker",
        "Unregister",
    ]
    take_all(model, 3)
    assert model.registered == {1, 2, 4}
    assert model.voters == {1, 2, 4}
    assert [len(one) for one in model.partitions["logs"]] == [3, 3, 3]
    assert model.partitions["away"] == [[1, 2]], "what is not on broker 3 does not move"
    assert remaining_steps(state_of(model, 3)) == []


def test_each_step_is_one_that_was_announced_and_none_comes_back() -> None:
    """So the plan that was confirmed is the plan that is carried out."""
    model = four()
    announced = names(state_of(model, 3))
    while steps := remaining_steps(state_of(model, 3)):
        present = [type(one).__name__ for one in steps]
        # Leaderships can be given up only after the moves have begun.
        present = [one for one in present if one != "GiveUpLeaders"]
        assert announced[-len(present) :] == present if present else True
        model.take(steps[0])


@pytest.mark.parametrize("node_id", [1, 2, 3, 4])
def test_an_interrupted_removal_continues_from_every_step(node_id: int) -> None:
    model = four()
    count = len(take_all(model, node_id))
    for interrupted in range(count + 1):
        again = four()
        for _ in range(interrupted):
            again.take(remaining_steps(state_of(again, node_id))[0])
        # The command was killed here. Another run knows the reported state only.
        rest = take_all(again, node_id)
        assert len(rest) == count - interrupted
        assert again == model


def test_a_step_that_is_taken_twice_changes_nothing() -> None:
    """A broker that is behind lets the command repeat a step."""
    model = four()
    steps = remaining_steps(state_of(model, 3))
    for step in steps[:2]:
        model.take(step)
        before = state_of(model, 3)
        model.take(step)
        assert remaining_steps(state_of(model, 3)) == remaining_steps(before)


def test_random_clusters_end_without_the_broker() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        ids = list(range(1, chance.randint(3, 6)))
        if len(ids) < 2:
            continue
        factor = chance.randint(1, len(ids) - 1)
        model = ClusterModel(
            {"t": [chance.sample(ids, factor) for _ in range(chance.randint(1, 12))]},
            set(ids),
            set(ids[: chance.choice([1, 3]) if len(ids) >= 3 else 1]),
        )
        node_id = chance.choice(ids)
        size = len(model.voters)
        refuse_removal(state_of(model, node_id))
        take_all(model, node_id)
        assert node_id not in model.registered | model.voters
        assert all(node_id not in one and len(one) == factor for one in model.partitions["t"])
        assert len(model.voters) in (size, size - 1)


def test_leaderships_are_given_up_before_the_copies_are_done() -> None:
    model = ClusterModel({"t": [[2, 3], [3, 2]]}, {1, 2, 3, 4}, {1})
    model.leaders[TopicPartition("t", 0)] = 3
    steps = remaining_steps(state_of(model, 3))
    assert steps[2] == GiveUpLeaders((TopicPartition("t", 0),))
    for step in steps[:3]:
        model.take(step)
    assert model.leader(TopicPartition("t", 0)) == 2
    assert "GiveUpLeaders" not in names(state_of(model, 3))


def test_a_move_to_the_broker_is_redirected() -> None:
    """So a removal never ends with a replica that comes back."""
    model = four()
    model.start(TopicPartition("away", 0), (1, 3))
    steps = remaining_steps(state_of(model, 3))
    (targets,) = [one.targets for one in steps if isinstance(one, StartMoves)]
    assert 3 not in targets[TopicPartition("away", 0)]
    take_all(model, 3)
    assert all(3 not in one for rows in model.partitions.values() for one in rows)


def test_a_broker_that_is_away_is_removed_from_the_copies_of_the_others() -> None:
    model = four()
    model.partitions["one"] = [[1]]
    model.away = {3}
    assert names(state_of(model, 3)) == [
        "StartMoves",
        "WaitForMoves",
        "GiveVote",
        "TakeVote",
        "Unregister",
    ]
    refuse_removal(state_of(model, 3))
    take_all(model, 3)
    assert model.registered == model.voters == {1, 2, 4}


def test_a_broker_without_a_vote_changes_no_voters() -> None:
    model = four()
    take_all(model, 4)
    assert model.voters == {1, 2, 3}


def test_without_a_broker_that_could_vote_two_are_left_and_it_is_said() -> None:
    model = ClusterModel({}, {1, 2, 3}, {1, 2, 3})
    (removal,) = [one for one in remaining_steps(state_of(model, 3)) if isinstance(one, TakeVote)]
    assert removal.left == (1, 2)
    assert "both must then run" in str(removal)
    take_all(model, 3)
    assert model.voters == {1, 2}


def test_a_cordoned_broker_gets_neither_replicas_nor_a_vote() -> None:
    model = ClusterModel({"t": [[3]]}, {1, 2, 3, 4}, {1, 2, 3}, cordoned={4, 1})
    steps = remaining_steps(state_of(model, 3))
    assert isinstance(steps[1], StartMoves)
    assert steps[1].targets == {TopicPartition("t", 0): (2,)}
    assert not any(isinstance(one, GiveVote) for one in steps)


def refusal(model: ClusterModel, node_id: int) -> CommandError:
    with pytest.raises(CommandError) as found:
        refuse_removal(state_of(model, node_id))
    return found.value


def test_an_id_that_does_not_exist() -> None:
    error = refusal(four(), 9)
    assert error.code is Exit.NOT_FOUND
    assert "there is no broker 9; registered are 1, 2, 3, 4" in str(error)


def test_trap_18_a_broker_without_which_a_factor_cannot_be_kept_is_refused_by_partition() -> None:
    error = refusal(ClusterModel({"t": [[1, 2, 3], [2, 3, 1]]}, {1, 2, 3}, {1}), 3)
    assert "broker 3 cannot be removed:" in str(error)
    assert "t-0: 3 replicas need 3 brokers, and the plan can use 1, 2" in str(error)
    assert "t-1: 3 replicas" in str(error)
    assert "reassign generate --rf" in str(error)


def test_many_refused_partitions_are_counted() -> None:
    error = refusal(ClusterModel({"t": [[1, 2, 3]] * 13}, {1, 2, 3}, {1}), 3)
    assert "t-9:" in str(error)
    assert "t-10:" not in str(error)
    assert "and 3 more" in str(error)


def test_a_factor_that_new_topics_could_not_have_is_refused() -> None:
    model = ClusterModel({}, {1, 2, 3}, {1}, factors={"default.replication.factor": 3})
    assert "default.replication.factor is 3, and 2 brokers would be left" in str(refusal(model, 3))
    model.registered.add(4)
    refuse_removal(state_of(model, 3))
    model.cordoned.add(4)
    assert "2 brokers would be left" in str(refusal(model, 3))


def test_the_last_voter_is_refused_unless_another_broker_can_vote() -> None:
    alone = ClusterModel({}, {1, 2}, {2}, away={1}, controller=2)
    assert "broker 2 is the only voter" in str(refusal(alone, 2))
    alone.away = set()
    refuse_removal(state_of(alone, 2))
    assert [type(one) for one in take_all(alone, 2)] == [
        Cordon,
        GiveVote,
        TakeVote,
        StopBroker,
        Unregister,
    ]
    assert alone.voters == {1}


def test_voters_without_a_majority_are_refused_before_anything_moves() -> None:
    model = ClusterModel({}, {1, 2, 3}, {1, 2, 3}, away={2})
    error = refusal(model, 3)
    assert "the voters are brokers 1, 2, and those in service (1) are no majority" in str(error)
    model.registered.add(4)
    refuse_removal(state_of(model, 3))


def test_partitions_that_only_a_dead_broker_has_are_refused() -> None:
    model = four()
    model.away = {3}
    error = refusal(model, 3)
    assert "no broker in service has all records of one-0" in str(error)
    assert "start broker 3, or delete these topics" in str(error)


def after(model: ClusterModel, node_id: int, until: type[RemovalStep]) -> ClusterModel:
    while not isinstance(step := remaining_steps(state_of(model, node_id))[0], until):
        model.take(step)
    return model


def test_the_way_back_cancels_the_moves_of_this_broker_only() -> None:
    model = after(four(), 3, WaitForMoves)
    model.start(TopicPartition("away", 0), (1, 4))
    back = way_back(state_of(model, 3))
    assert back.is_cordoned
    assert TopicPartition("away", 0) not in back.cancelled
    assert set(back.cancelled) == {tp for tp, one in model.moving.items() if 3 in one.removing}
    assert len(back.cancelled) == 4


def test_the_way_back_of_a_removed_voter_says_that_it_does_not_vote() -> None:
    model = after(four(), 3, StopBroker)
    back = way_back(state_of(model, 3))
    assert back.cancelled == ()
    assert back.is_cordoned
    assert "broker 3 is no longer a voter" in back.notes[-1]


def test_trap_19_a_removal_is_taken_back_only_from_a_broker_in_service() -> None:
    model = after(four(), 3, Unregister)
    with pytest.raises(CommandError, match="broker 3 is not in service: start it") as found:
        way_back(state_of(model, 3))
    assert found.value.code is Exit.CONDITION
    take_all(model, 3)
    with pytest.raises(CommandError, match="no removal to undo") as found:
        way_back(state_of(model, 3))
    assert found.value.code is Exit.NOT_FOUND
