"""The steps that make three brokers of one, from every state in which they can stop."""

import copy
import random
from collections import Counter
from dataclasses import replace

import pytest

from appliance.kafka.growth_plan import (
    GrowthGoal,
    GrowthState,
    refuse_growth,
    steps_to_grow,
)
from appliance.kafka.membership_steps import (
    AddReplicas,
    GiveVote,
    MembershipStep,
    RaiseMinIsr,
    Uncordon,
    WaitForMetadata,
    WaitForService,
)
from appliance.output import CommandError
from protocol.types import TopicPartition, Uuid
from tests.unit.appliance.cluster_model import ClusterModel

GOAL = GrowthGoal(
    voters=(1, 2, 3),
    factors={"__transaction_state": 3},
    default_factor=3,
    min_isrs={"__transaction_state": 2},
    default_min_isr=2,
)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def state_of(model: ClusterModel, goal: GrowthGoal = GOAL) -> GrowthState:
    return GrowthState(
        model.replicas(),
        model.cordoned_in_service(),
        model.quorum(),
        dict(model.min_isrs),
        goal,
    )


def one() -> ClusterModel:
    """A broker that was alone, and two that have just joined it."""
    return ClusterModel(
        {
            OFFSETS: [[1]] * 4,
            TRANSACTIONS: [[1]] * 2,
            "millrace.positions": [[1]],
            "logs": [[1]] * 6,
        },
        {1, 2, 3},
        {1},
        behind={2, 3},
        min_isrs={TRANSACTIONS: 1},
    )


def names(model: ClusterModel, goal: GrowthGoal = GOAL) -> list[str]:
    return [type(step).__name__ for step in steps_to_grow(state_of(model, goal))]


def take_all(model: ClusterModel, goal: GrowthGoal = GOAL) -> list[MembershipStep]:
    taken: list[MembershipStep] = []
    while steps := steps_to_grow(state_of(model, goal)):
        model.take(steps[0])
        taken.append(steps[0])
        assert len(taken) < 200, taken
    return taken


def test_the_steps_of_a_growth() -> None:
    model = one()
    model.registered = {1}
    model.cordoned = {3}
    taken = [type(step).__name__ for step in take_all(model)]
    order = list(dict.fromkeys(taken))
    assert order == [
        "WaitForService",
        "Uncordon",
        "WaitForMetadata",
        "GiveVote",
        "AddReplicas",
        "WaitForReplicas",
        "RaiseMinIsr",
        "SpreadLeaders",
    ]
    assert model.voters == {1, 2, 3}
    assert all(sorted(row) == [1, 2, 3] for rows in model.partitions.values() for row in rows)
    assert model.min_isrs == {TRANSACTIONS: 2}
    led = Counter(model.leader(TopicPartition("logs", number)) for number in range(6))
    assert led == {1: 2, 2: 2, 3: 2}
    assert steps_to_grow(state_of(model)) == []


def test_both_newcomers_have_all_metadata_before_the_first_one_votes() -> None:
    """With two voters no broker can fail, so this moment must be short."""
    model = one()
    model.behind = {3}
    assert steps_to_grow(state_of(model))[:2] == [WaitForMetadata(3), GiveVote(2, Uuid(int=2))]
    model.behind = set()
    votes = [step for step in steps_to_grow(state_of(model)) if isinstance(step, GiveVote)]
    assert [step.node_id for step in votes] == [2, 3]


def test_trap_34_internal_topics_get_replicas_before_the_others() -> None:
    model = one()
    model.behind = set()
    added = [step for step in take_all(model) if isinstance(step, AddReplicas)]
    assert [{tp.topic for tp in step.targets} for step in added] == [
        {OFFSETS, TRANSACTIONS, "millrace.positions"},
        {"logs"},
    ]


def test_min_isr_is_raised_only_when_all_replicas_are_in_sync() -> None:
    """Otherwise writes that were accepted by one replica would be refused until the copy ends."""
    model = one()
    model.behind = set()
    while steps := steps_to_grow(state_of(model)):
        if isinstance(steps[0], RaiseMinIsr):
            assert not model.moving
            assert all(len(row) == 3 for row in model.partitions[TRANSACTIONS])
            return
        model.take(steps[0])
    pytest.fail("the minimum was never raised")


def test_an_interrupted_growth_continues_from_every_step() -> None:
    model = one()
    count = len(take_all(model))
    for interrupted in range(count + 1):
        again = one()
        for _ in range(interrupted):
            again.take(steps_to_grow(state_of(again))[0])
        # The command was killed here. Another run knows the reported state only.
        assert len(take_all(again)) == count - interrupted
        assert again == model


def test_two_commands_at_once_end_where_one_ends() -> None:
    """Each of the two takes the step that it planned from a state that can be out of date."""
    for seed in range(50):
        chance = random.Random(seed)
        model = one()
        plans: list[MembershipStep | None] = [None, None]
        for _ in range(400):
            command = chance.randrange(2)
            step = plans[command]
            if step is None:
                plans[command] = next(iter(steps_to_grow(state_of(model))), None)
                continue
            plans[command] = None
            model.take(step)
        assert steps_to_grow(state_of(model)) == []
        assert model.voters == {1, 2, 3}
        assert all(sorted(row) == [1, 2, 3] for rows in model.partitions.values() for row in rows)


def test_a_topic_keeps_the_number_of_replicas_that_the_file_states() -> None:
    model = one()
    take_all(model, replace(GOAL, factors={"logs": 1}))
    assert model.partitions["logs"] == [[1]] * 6
    assert all(len(row) == 3 for row in model.partitions[OFFSETS])


def test_only_chosen_topics_grow_and_internal_ones() -> None:
    model = one()
    model.partitions["other"] = [[1]]
    take_all(model, replace(GOAL, topics=frozenset({"other"})))
    assert model.partitions["logs"] == [[1]] * 6
    assert sorted(model.partitions["other"][0]) == [1, 2, 3]
    assert all(len(row) == 3 for row in model.partitions[OFFSETS])


def test_a_topic_with_more_replicas_than_asked_for_loses_none() -> None:
    model = one()
    model.registered = {1, 2, 3, 4}
    model.partitions["wide"] = [[1, 2, 3, 4]]
    take_all(model)
    assert model.partitions["wide"] == [[1, 2, 3, 4]]


def test_a_stated_minimum_never_reaches_the_number_of_replicas() -> None:
    model = one()
    model.min_isrs = {"logs": 1}
    take_all(model, replace(GOAL, default_min_isr=3))
    assert model.min_isrs == {"logs": 2}


def test_a_partition_that_moves_already_is_waited_for() -> None:
    model = one()
    model.behind = set()
    model.voters = {1, 2, 3}
    model.start(TopicPartition("logs", 0), (1, 2, 3))
    first = steps_to_grow(state_of(model))[0]
    assert isinstance(first, AddReplicas)
    assert TopicPartition("logs", 0) not in state_of(model).targets
    take_all(model)
    assert model.partitions["logs"][0] == [1, 2, 3]


def test_random_clusters_grow() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        model = ClusterModel(
            {
                name: [
                    [1] if chance.random() < 0.8 else chance.sample([1, 2, 3], 2)
                    for _ in range(chance.randint(1, 5))
                ]
                for name in (OFFSETS, "a", "b", "c")
            },
            {1, 2, 3},
            {1} if chance.random() < 0.7 else {1, 2},
            behind=set(chance.sample([2, 3], chance.randint(0, 2))),
            cordoned=set(chance.sample([2, 3], chance.randint(0, 2))),
            min_isrs={name: chance.randint(1, 2) for name in ("a", "b")},
        )
        model.behind -= model.voters
        took = take_all(model)
        assert model.voters == {1, 2, 3}
        assert all(sorted(row) == [1, 2, 3] for rows in model.partitions.values() for row in rows)
        assert set(model.min_isrs.values()) == {2}
        before = copy.deepcopy(model)
        assert take_all(model) == []
        assert model == before
        assert len(took) < 60


@pytest.mark.parametrize("cordoned", [{2}, set()])
def test_newcomers_are_waited_for(cordoned: set[int]) -> None:
    model = one()
    model.away = {3}
    model.cordoned = cordoned
    steps = steps_to_grow(state_of(model))
    expected: list[object] = [Uncordon(2)] if cordoned else []
    assert steps[: len(expected) + 1] == [*expected, WaitForService(3)]


def refusal(model: ClusterModel, goal: GrowthGoal = GOAL) -> str:
    with pytest.raises(CommandError) as caught:
        refuse_growth(state_of(model, goal))
    return str(caught.value)


def test_fewer_than_three_brokers_are_refused() -> None:
    model = one()
    text = refusal(model, replace(GOAL, voters=(1, 2)))
    assert "there are 2 brokers (1, 2), but a cluster of fewer than 3 stops when one fails" in text


def test_a_partition_without_a_leader_is_named() -> None:
    model = one()
    model.partitions["lost"] = [[7]]
    assert "no broker in service leads lost-0, so they cannot be copied" in refusal(model)


def test_a_voter_outside_of_the_goal_is_named() -> None:
    model = one()
    model.registered.add(4)
    model.voters = {1, 4}
    assert "broker 4 is a voter, but the voters must be brokers 1, 2, 3" in refusal(model)


def test_a_cluster_that_can_grow_is_not_refused() -> None:
    refuse_growth(state_of(one()))
