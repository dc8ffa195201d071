"""The steps that move a broker with its data."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.kafka.broker_move_plan import MovePlace, is_recorded, refuse_move, steps_to_move
from appliance.kafka.disk_plan import DiskState
from appliance.output import CommandError, Exit
from protocol.types import TopicPartition
from tests.unit.appliance.cluster_model import NOW_MS, ClusterModel

OLD, NEW = "127.0.0.1:29093", "127.0.0.1:29104"
FOLDERS = (Path("/data/broker-2"), Path("/disk/two"))


def three() -> ClusterModel:
    return ClusterModel(
        {"logs": [[1, 2, 3], [2, 3, 1]], "two": [[1, 2]], "other": [[1, 3]]}, {1, 2, 3}, {1, 2, 3}
    )


def state_of(model: ClusterModel, address: str = OLD) -> DiskState:
    quorum = model.quorum()
    if quorum is not None:
        quorum = replace(quorum, endpoints={2: (f"BROKER://{address}",)})
    return DiskState(2, model.replicas(), model.registrations(), quorum)


def names(state: DiskState, place: MovePlace) -> list[str]:
    return [type(step).__name__ for step in steps_to_move(state, place)]


def test_the_steps_of_a_move_to_other_ports_and_another_folder() -> None:
    place = MovePlace(NEW, runs=True, folder=FOLDERS, has_new_ports=True)
    assert names(state_of(three()), place) == [
        "StopBroker",
        "MoveFolder",
        "StartMoved",
        "WaitForReplicas",
        "WaitForAddress",
    ]
    place = MovePlace(OLD, runs=True, folder=FOLDERS)
    assert names(state_of(three()), place) == [
        *("StopBroker", "MoveFolder", "StartMoved", "WaitForReplicas"),
    ], "the address stays"


def test_it_continues_where_it_was_interrupted() -> None:
    model = three()
    model.away = {2}
    stopped = MovePlace(NEW, runs=False, folder=FOLDERS, has_new_ports=True)
    assert names(state_of(model), stopped)[:2] == ["MoveFolder", "StartMoved"]
    placed = MovePlace(NEW, runs=False, has_new_ports=True)
    assert names(state_of(model), placed)[0] == "StartMoved"
    runs = MovePlace(NEW, runs=True)
    assert names(state_of(model), runs) == ["StartMoved", "WaitForReplicas", "WaitForAddress"]
    model.away, model.empty = set(), {(TopicPartition("logs", 0), 2)}
    assert names(state_of(model), runs) == ["WaitForReplicas", "WaitForAddress"]
    model.empty = set()
    assert names(state_of(model), runs) == ["WaitForAddress"]
    assert names(state_of(model, NEW), runs) == []
    assert is_recorded(state_of(model, NEW), NEW)


def test_a_broker_that_does_not_vote_waits_for_no_record() -> None:
    model = three()
    model.voters = {1, 3}
    place = MovePlace(NEW, runs=True, has_new_ports=True)
    assert names(state_of(model), place) == ["StopBroker", "StartMoved", "WaitForReplicas"]


def test_only_a_minority_moves() -> None:
    model = three()
    refuse_move(state_of(model))
    model.away = {3}
    with pytest.raises(CommandError) as refused:
        refuse_move(state_of(model))
    assert refused.value.code is Exit.CONDITION
    text = str(refused.value)
    assert "of the other voters 1, 3, 1 have all metadata, which is no majority" in text


def test_voters_that_lag_are_no_majority() -> None:
    state = state_of(three())
    assert state.quorum is not None
    late = tuple(
        replace(one, caught_up_at_ms=NOW_MS - 60_000) if one.node_id == 3 else one
        for one in state.quorum.voters
    )
    with pytest.raises(CommandError, match="which is no majority"):
        refuse_move(replace(state, quorum=replace(state.quorum, voters=late)))


def test_partitions_that_only_it_has_whole_are_named() -> None:
    state = state_of(three())
    alone = {
        name: replace(
            topic,
            partitions=tuple(
                replace(one, in_sync_replicas=(2,)) if 2 in one.replicas else one
                for one in topic.partitions
            ),
        )
        for name, topic in state.replicas.topics.items()
    }
    with pytest.raises(CommandError, match="no other broker in service has all records of"):
        refuse_move(replace(state, replicas=replace(state.replicas, topics=alone)))


def test_an_unknown_broker() -> None:
    state = state_of(three())
    with pytest.raises(CommandError, match="there is no broker 7; registered are 1, 2, 3"):
        refuse_move(replace(state, node_id=7))
