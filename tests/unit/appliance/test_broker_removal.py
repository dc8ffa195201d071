"""`millrace broker remove` from the plan to the end, with a scripted cluster."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.mill.home import CODE, Home
from appliance.operate import lifecycle
from appliance.output import Exit
from protocol.types import Uuid
from tests.harness.wait import wait_until
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.reassign_desk import Desk, Ran, data

CORDON = (4, "3")
"""Broker 3 among the resources with settings."""


@pytest.fixture
def cluster() -> Iterator[FakeQuorum]:
    """Four brokers, three of which vote, with partitions of broker 3."""
    cluster = FakeQuorum(
        dict.fromkeys((1, 2, 3, 4)), voters={one: Uuid(int=one) for one in (1, 2, 3)}
    )
    cluster.topic("logs", [1, 2], [2, 3], [3, 1])
    cluster.topic("other", [3])
    cluster.topic("elsewhere", [1])
    with cluster.serving():
        yield cluster


def remove(desk: Desk, *arguments: str) -> Ran:
    return desk.run("broker", "remove", "3", *arguments)


def stop(cluster: FakeQuorum) -> None:
    del cluster.brokers[3]
    cluster.fenced.add(3)


def test_the_plan_is_shown_and_nothing_is_changed(cluster: FakeQuorum, desk: Desk) -> None:
    code, out, err = remove(desk, "--dry-run", "--json")
    assert code == 0
    assert [row["does"] for row in data(out)] == [
        "Cordon",
        "StartMoves",
        "WaitForMoves",
        "GiveVote",
        "TakeVote",
        "StopBroker",
        "Unregister",
    ]
    said = "\n".join(err)
    assert "will be copied to broker 2: 1 replica, 1 MiB" in said
    assert "will be copied to broker 4: 2 replicas, 2 MiB" in said
    assert err[-1] == "nothing was changed"
    assert cluster.asked_for() == []


def test_a_broker_leaves_and_the_same_command_ends_the_removal(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.completes = True
    code, _, err = remove(desk, "--yes")
    assert code == Exit.CONDITION
    assert "broker 3 has no replica and no vote any more" in err[-1]
    assert cluster.settings[CORDON] == {"cordoned.log.dirs": "*"}
    assert all(3 not in one.replicas for one in cluster.partitions.values())
    assert cluster.replicas("elsewhere") == [[1]]
    assert set(cluster.voters) == {1, 2, 4}
    assert 3 in cluster.brokers
    stop(cluster)
    code, out, err = remove(desk, "--yes", "--json")
    assert code == 0, err
    assert [row["does"] for row in data(out)] == ["Unregister"]
    assert "broker 3 has left the cluster" in err[-1]
    assert cluster.fenced == set()
    code, _, err = remove(desk, "--yes")
    assert code == Exit.NOT_FOUND
    assert "there is no broker 3" in err[-1]


def test_a_broker_of_this_mill_is_stopped_by_its_supervisor(
    cluster: FakeQuorum, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.completes = True
    stopped: list[str] = []

    def stop_part(home: Home, part: str, timeout_s: float) -> None:
        stopped.append(part)
        stop(cluster)

    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    monkeypatch.setattr(lifecycle, "stop_part", stop_part)
    monkeypatch.setattr("appliance.cli.cluster.asked_cluster", lambda bootstrap: cluster.address)
    code, _, err = desk.run_here("broker", "remove", "3", "--yes")
    assert code == 0, err
    assert stopped == ["broker-3"]
    assert cluster.fenced == set()
    assert err[-4:-1] == [
        "remove broker 3 from the voters; 1, 2, 4 will vote",
        "stop broker 3",
        "unregister broker 3",
    ]


def test_a_command_that_was_killed_after_its_last_step_succeeds_again(
    cluster: FakeQuorum, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.cli.cluster.asked_cluster", lambda bootstrap: cluster.address)
    file = tmp_path / "configs" / "millrace.yaml"
    file.parent.mkdir()
    file.write_text("cluster: {brokers: [1, 2, 4, 5]}\n")
    code, out, err = desk.run_here("broker", "remove", "5", "--yes")
    assert (code, out) == (0, [])
    assert err[-1].startswith("broker 5 is not in the cluster: nothing is left to do there. Take")
    code, _, err = desk.run_here("broker", "remove", "6", "--yes")
    assert code == Exit.NOT_FOUND, "the file does not list it either"
    assert "there is no broker 6; registered are 1, 2, 3, 4" in err[-1]


def test_without_consent_nothing_is_changed(cluster: FakeQuorum, desk: Desk) -> None:
    code, _, err = remove(desk)
    assert code == Exit.USAGE
    assert "no terminal to ask for confirmation: add --yes" in err[-1]
    assert cluster.asked_for() == []


def test_copies_are_limited_and_the_limit_goes_with_the_last_move(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.completes = True
    limits = []

    def keep(request: object) -> None:
        limits.append({key: dict(value) for key, value in cluster.settings.items()})

    take = cluster._alter

    def alter(request: object) -> object:
        keep(request)
        return take(request)

    cluster._alter = alter  # type: ignore[method-assign, assignment]
    remove(desk, "--yes", "--throttle", "1MiB")
    assert limits[0][4, "4"]["follower.replication.throttled.rate"] == str(1 << 20)
    assert "3:4" not in limits[0][2, "logs"]["follower.replication.throttled.replicas"]
    left = {key for own in cluster.settings.values() for key in own}
    assert left == {"cordoned.log.dirs"}


def test_trap_14_a_later_run_removes_the_throttle_of_an_earlier_one(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.settings = {
        (4, "4"): {"follower.replication.throttled.rate": "5"},
        (2, "logs"): {"follower.replication.throttled.replicas": "1:4"},
    }
    cluster.completes = True
    remove(desk, "--yes")
    assert {key for own in cluster.settings.values() for key in own} == {"cordoned.log.dirs"}


def test_a_change_of_voters_is_tried_again_for_a_moment(cluster: FakeQuorum, desk: Desk) -> None:
    cluster.completes = True
    cluster.refused_changes = 3
    assert remove(desk, "--yes")[0] == Exit.CONDITION
    assert set(cluster.voters) == {1, 2, 4}


def test_a_change_of_voters_that_is_refused_for_good_ends_the_command(
    cluster: FakeQuorum, desk: Desk
) -> None:
    cluster.completes = True
    cluster.refused_changes = 1_000
    assert remove(desk, "--yes")[0] == Exit.TIMEOUT
    assert cluster.asked_for().count("AddRaftVoter") == 5
    cluster.refused_changes = 0
    assert remove(desk, "--yes")[0] == Exit.CONDITION
    assert set(cluster.voters) == {1, 2, 4}


def test_a_disk_without_room_is_said_before_anything_moves(cluster: FakeQuorum, desk: Desk) -> None:
    cluster.free = 1 << 20
    code, _, err = remove(desk, "--yes")
    assert code == Exit.CONDITION
    assert "broker 4 has 1 MiB free and needs" in "\n".join(err)
    assert cluster.asked_for() == []
    cluster.completes = True
    assert "no vote any more" in remove(desk, "--yes", "--force")[2][-1]


def test_the_active_controller_is_said_to_move(cluster: FakeQuorum, desk: Desk) -> None:
    cluster.controller = 3
    assert (
        "broker 3 is the active controller: another one takes over" in remove(desk, "--dry-run")[2]
    )


def test_moves_are_taken_back(cluster: FakeQuorum, desk: Desk) -> None:
    before = [cluster.replicas("logs"), cluster.replicas("other")]
    cluster.settings[CORDON] = {"cordoned.log.dirs": "*"}
    for one in cluster.partitions.values():
        if 3 in one.replicas:
            cluster._move(one, [4 if member == 3 else member for member in one.replicas])
    cluster._move(cluster.partitions[min(cluster.partitions)], [2])
    code, _, err = remove(desk, "--abort", "--dry-run")
    assert (code, err[-1]) == (0, "nothing was changed")
    assert "broker 3 will get new replicas again" in err
    assert cluster.asked_for() == []
    code, out, err = remove(desk, "--abort", "--yes", "--json")
    assert code == 0, err
    assert [row["topic"] for row in data(out)] == ["logs", "logs", "other"]
    assert err[-1] == "the removal of broker 3 is undone"
    assert [set(map(frozenset, rows)) for rows in before] == [
        set(map(frozenset, cluster.replicas(name))) for name in ("logs", "other")
    ]
    assert cluster.partitions[min(cluster.partitions)].adding == [2], "another move goes on"
    assert cluster.settings[CORDON] == {}
    code, _, err = remove(desk, "--abort", "--yes")
    assert (code, err[-1]) == (
        0,
        "there is no removal to undo: broker 3 is not cordoned, and gets new replicas",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("9",), Exit.NOT_FOUND, "there is no broker 9; registered are 1, 2, 3, 4"),
        (("9", "--abort"), Exit.NOT_FOUND, "broker 9 is not registered"),
        (("x",), Exit.USAGE, "Input should be a valid integer"),
        (("-1",), Exit.USAGE, "-1"),
        ((), Exit.USAGE, "Missing argument"),
        (("3", "--throttle", "0"), Exit.USAGE, "expected at least 1 byte a second"),
        (("3", "--abort", "--force"), Exit.USAGE, "--abort excludes --throttle and --force"),
    ],
)
def test_bad_input(
    cluster: FakeQuorum, desk: Desk, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = desk.run("broker", "remove", *arguments)
    assert found == code
    assert said in "\n".join(err)
    assert cluster.asked_for() == []


def test_ctrl_c_ends_the_following_only(cluster: FakeQuorum, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "appliance", "broker", "remove", "3", "--yes"),
            *("--bootstrap-server", cluster.address),
        ],
        cwd=CODE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"MILLRACE_HOME": str(tmp_path)},
    )
    wait_until(
        lambda: any(one.adding for one in cluster.partitions.values()), 60, "the moves have begun"
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert "moves that have begun go on" in err
    assert "`./millrace broker remove 3 --abort` to undo it" in err
    assert all(3 not in one.replicas or one.removing == [3] for one in cluster.partitions.values())
