"""`millrace broker add`: its steps, and the command with a scripted cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.kafka.addition import AdditionState, steps_to_add
from appliance.kafka.membership_steps import GiveVote, Uncordon, WaitForMetadata, WaitForService
from appliance.kafka.reassign import ClusterReplicas
from appliance.operate import lifecycle
from appliance.output import Exit
from protocol.client.metadata import BrokerInfo
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.types import Uuid
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.reassign_desk import Desk, Ran, data

FOUR = Uuid(int=4)


def state(
    *,
    voters: tuple[int, ...] = (1, 2, 3),
    observers: tuple[int, ...] = (),
    is_in_service: bool = True,
    is_cordoned: bool = False,
) -> AdditionState:
    def replicas(ids: tuple[int, ...]) -> tuple[QuorumReplica, ...]:
        return tuple(QuorumReplica(one, Uuid(int=one), 10, 1, 1) for one in ids)

    quorum = QuorumInfo(1, 1, 10, replicas(voters), replicas(observers), {})
    brokers = (1, 2, 3, 4) if is_in_service else (1, 2, 3)
    found = ClusterReplicas({one: BrokerInfo(one, "h", one) for one in brokers}, {}, {})
    return AdditionState(4, found, frozenset({1, 2, 3}), is_cordoned, quorum)


@pytest.mark.parametrize(
    ("found", "votes", "steps"),
    [
        (state(is_in_service=False), False, [WaitForService(4)]),
        (state(is_in_service=False), True, [WaitForService(4), WaitForMetadata(4)]),
        (state(), False, []),
        (state(), True, [WaitForMetadata(4)]),
        (state(observers=(4,)), True, [GiveVote(4, FOUR)]),
        (state(observers=(4,), is_cordoned=True), True, [Uncordon(4), GiveVote(4, FOUR)]),
        (state(observers=(4,), is_cordoned=True), False, [Uncordon(4)]),
        (state(voters=(1, 2, 3, 4)), True, []),
    ],
)
def test_the_steps_follow_from_the_state(
    found: AdditionState, votes: bool, steps: list[object]
) -> None:
    assert steps_to_add(found, votes=votes) == steps


@pytest.fixture
def cluster() -> Iterator[FakeQuorum]:
    cluster = FakeQuorum(
        dict.fromkeys((1, 2, 3, 4)), voters={one: Uuid(int=one) for one in (1, 2, 3)}
    )
    cluster.topic("logs", [1, 2])
    with cluster.serving():
        yield cluster


def add(desk: Desk, *arguments: str) -> Ran:
    return desk.run("broker", "add", *arguments)


def test_a_removed_id_that_comes_back_gets_replicas_and_a_vote(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.settings[4, "4"] = {"cordoned.log.dirs": "*"}
    code, out, err = add(desk, "4", "--voter", "--dry-run", "--json")
    assert code == 0
    assert [row["does"] for row in data(out)] == ["Uncordon", "GiveVote"]
    assert "4 voters tolerate no more failures than 3" in err[0]
    assert cluster.asked_for() == []
    cluster.refused_changes = 2
    code, _, err = add(desk, "4", "--voter", "--yes")
    assert code == 0, err
    assert cluster.settings[4, "4"] == {}
    assert cluster.voters[4] == FOUR
    assert "`./millrace reassign generate --add 4`" in err[-1]
    assert cluster.replicas("logs") == [[1, 2]], "nothing moves"
    asked = len(cluster.asked_for())
    code, _, err = add(desk, "4", "--voter", "--yes")
    assert (code, err[0]) == (0, "broker 4 is a member already")
    assert len(cluster.asked_for()) == asked


def test_an_observer_that_stays_behind_ends_the_command(cluster: FakeQuorum, desk: Desk) -> None:
    cluster.refused_changes = 1_000
    assert add(desk, "4", "--voter", "--yes")[0] == Exit.TIMEOUT
    assert cluster.asked_for() == ["AddRaftVoter"] * 5


def test_a_broker_that_never_registered_is_named(cluster: FakeQuorum, desk: Desk) -> None:
    code, _, err = add(desk, "7", "--yes")
    assert code == Exit.NOT_FOUND
    assert "broker 7 is not registered; registered are 1, 2, 3, 4" in err[-1]
    assert "`joins: true`" in err[-1]


@pytest.mark.parametrize(
    ("text", "broker", "said"),
    [
        ("cluster: {brokers: 3}", "4", "Write `brokers: [1, 2, 3, 4]` below `cluster:`"),
        ("cluster: {brokers: [1, 3, 4]}", "2", "Write `brokers: [1, 2, 3, 4]`"),
        ("cluster: {brokers: 3}", "12", "found broker 12, expected an id from 1 to 9"),
        ("cluster: {brokers: 1}", "2", "`./millrace cluster grow` makes three of it"),
    ],
)
def test_a_broker_that_the_mill_does_not_run_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, broker: str, said: str
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "millrace.yaml").write_text(text)
    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": [{"part": "broker-1"}]})
    code, _, err = desk.run_here("broker", "add", broker, "--yes")
    assert code in (Exit.CONDITION, Exit.USAGE)
    assert said in err[-1]
