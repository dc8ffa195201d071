"""`millrace reassign` from the plan to the end of the moves, beside a scripted cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.kafka import reassign, replica_copies
from appliance.mill.home import CODE
from appliance.output import Exit
from protocol.errors import ErrorCode
from protocol.messages.elections import ListPartitionReassignmentsResponse
from protocol.types import TopicPartition
from tests.harness.wait import wait_until
from tests.unit.appliance.fake_cluster import MIB, FakeCluster, FakePartition
from tests.unit.appliance.reassign_desk import Desk, data, desk_beside_four

LIST = "ListPartitionReassignmentsRequest"
ALTER = "AlterPartitionReassignmentsRequest"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk_beside_four(tmp_path, monkeypatch) as found:
        yield found


def targets(path: Path) -> list[list[int]]:
    return [one["replicas"] for one in json.loads(path.read_text())["partitions"]]


def changes(cluster: FakeCluster) -> int:
    return sum(type(one).__name__.startswith("AlterPartition") for one in cluster.asked)


def test_a_broker_is_added_from_the_plan_to_the_end(desk: Desk) -> None:
    code, out, err = desk.generate("--topic", "logs", "--add", "4", "--json")
    assert code == 0
    rows = data(out)
    assert sum(len(row["copied_to"]) for row in rows) == 2
    assert any("nothing was moved" in line for line in err)
    assert changes(desk.cluster) == 0
    code, out, _ = desk.execute("--detach")
    assert code == 0
    assert desk.reassign("verify", "--plan", str(desk.plan))[0] == Exit.CONDITION
    listed = data(desk.reassign("list", "--json")[1])
    assert [row["adding"] for row in listed] == [[4], [4]]
    desk.cluster.complete()
    code, out, err = desk.reassign("verify", "--plan", str(desk.plan))
    assert (code, err[-1]) == (0, "3 of 3 partitions are done")
    assert desk.reassign("list") == (0, [], ["no partition moves"])
    assert sum(4 in members for members in desk.cluster.replicas("logs")) == 2
    # Executing the rollback file restores the original replicas.
    assert desk.reassign("execute", "--plan", str(desk.back), "--yes", "--detach")[0] == 0
    desk.cluster.complete()
    assert desk.cluster.replicas("logs") == [[1, 2], [2, 3], [3, 1], [1, 3]]


def test_a_level_cluster_needs_no_plan(desk: Desk) -> None:
    desk.generate()
    assert desk.execute("--detach")[0] == 0
    desk.cluster.complete()
    desk.plan.unlink()
    code, out, err = desk.generate()
    assert (code, out, err) == (
        0,
        [],
        ["nothing to move: all brokers have their share of replicas"],
    )
    assert not desk.plan.exists()


def test_trap_18_a_broker_that_cannot_be_emptied_is_told_by_partition(desk: Desk) -> None:
    desk.cluster.topic("wide", [1, 2, 3])
    del desk.cluster.brokers[4]
    code, _, err = desk.generate("--topic", "wide", "--remove", "3")
    assert code == Exit.FAILED
    said = "\n".join(err)
    assert "wide-0: 3 replicas need 3 brokers, and the plan can use 1, 2" in said
    assert "no plan was written" in said
    assert not desk.plan.exists()


def test_an_empty_broker_takes_replicas_unless_another_is_added(desk: Desk) -> None:
    desk.cluster.brokers |= {5: None}
    code, out, _ = desk.generate("--topic", "logs", "--remove", "3", "--json")
    assert code == 0
    assert {one for row in data(out) for one in row["copied_to"]} == {4, 5}
    desk.plan.unlink()
    desk.back.unlink()
    _, out, _ = desk.generate("--topic", "logs", "--add", "4", "--json")
    assert {one for row in data(out) for one in row["copied_to"]} == {4}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--brokers", "1,9"), Exit.NOT_FOUND, "broker 9 is not registered, or not in service"),
        (("--brokers", "1,1"), Exit.USAGE, "Broker list contains duplicate entries: 1"),
        (("--add", "9"), Exit.NOT_FOUND, "in service are 1, 2, 3, 4"),
        (("--add", "4", "--remove", "4"), Exit.USAGE, "broker 4 is in --add and in --remove"),
        (("--remove", "7"), Exit.NOT_FOUND, "broker 7 is not in this cluster"),
        (("--brokers", "1", "--add", "2"), Exit.USAGE, "--brokers excludes --add"),
        (("--topic", "missing"), Exit.NOT_FOUND, "topic 'missing' does not exist"),
        (("--rf", "0"), Exit.USAGE, "--rf"),
        (("--topics-file", "/nowhere.json"), Exit.USAGE, "No such file"),
    ],
)
def test_a_goal_that_cannot_be_planned(
    desk: Desk, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = desk.generate(*arguments)
    assert found == code
    assert said in "\n".join(err)


def test_trap_35_a_cordoned_broker_is_no_target(desk: Desk) -> None:
    desk.cluster.cordoned.add(4)
    code, _, err = desk.generate("--add", "4")
    assert code == Exit.FAILED
    assert "broker 4 is cordoned" in err[-1]
    desk.generate("--topic", "logs")
    assert not desk.plan.exists(), "brokers 1 to 3 are level"
    desk.write(logs=[[1, 4]])
    code, _, err = desk.execute()
    assert code == Exit.FAILED
    assert "logs-0: broker 4 is cordoned" in err[-1]
    # A cordoned broker keeps a replica that it already has.
    desk.cluster.partitions[TopicPartition("logs", 0)] = FakePartition([4, 2], [4, 2], 4)
    desk.write(logs=[[4, 1]])
    assert desk.execute("--detach")[0] == 0


def test_a_plan_is_never_overwritten(desk: Desk) -> None:
    desk.generate("--add", "4")
    code, _, err = desk.generate("--add", "4")
    assert code == Exit.USAGE
    assert "plan.json exists: name another file with --write" in err[-1]


def test_a_plan_without_a_way_back_is_not_kept(desk: Desk) -> None:
    desk.back.write_text("of an earlier plan")
    for _ in range(2):
        code, _, err = desk.generate("--add", "4")
        assert code == Exit.USAGE
        assert "rollback.json exists: name another file with --write" in err[-1]
        assert not desk.plan.exists()
    assert desk.back.read_text() == "of an earlier plan"
    assert desk.reassign("generate", "--write", ".", "--add", "4")[0] == Exit.USAGE


def test_a_plan_for_what_is_not_there(desk: Desk) -> None:
    desk.write(missing=[[1]], logs=[[1], [2], [3], [4], [1]], other=[[9]])
    code, _, err = desk.execute()
    said = "\n".join(err)
    assert code == Exit.NOT_FOUND
    assert "missing-0: topic 'missing' does not exist" in said
    assert "logs-4: topic 'logs' has the partitions 0 to 3" in said
    assert "other-0: broker 9 is not registered, or not in service" in said
    assert changes(desk.cluster) == 0
    assert not desk.back.exists()


def test_a_folder_that_the_broker_does_not_have(desk: Desk) -> None:
    desk.write(logs=[[4, 2]])
    plan = json.loads(desk.plan.read_text())
    plan["partitions"][0]["log_dirs"] = ["/data", "/old"]
    desk.plan.write_text(json.dumps(plan))
    code, _, err = desk.execute()
    assert code == Exit.NOT_FOUND
    assert "logs-0: broker 2 has no folder /old; it has /data. Expected any" in err[-1]


def test_the_same_plan_twice_starts_nothing_again(desk: Desk) -> None:
    desk.write(logs=[[4, 2], [2, 4]])
    desk.execute("--detach")
    first = desk.back.read_text()
    code, _, err = desk.execute("--detach")
    assert (code, err) == (0, ["nothing to start"])
    assert changes(desk.cluster) == 1
    assert desk.back.read_text() == first
    desk.cluster.complete()
    assert desk.execute() == (
        0,
        [],
        ["nothing to start", "all partitions have their targets"],
    )


def test_a_second_plan_says_which_moves_it_replaces(desk: Desk) -> None:
    desk.write(logs=[[4, 2]])
    desk.execute("--detach")
    desk.write(logs=[[3, 2]])
    desk.back.unlink()
    code, _, err = desk.execute("--detach")
    assert code == 0
    # The rollback file names the replicas that have the records, not the targets of the replaced
    # move.
    assert targets(desk.back) == [[2, 1]]
    assert "logs-0 moves to 4,2 now; the plan replaces that move" in err
    assert desk.cluster.partitions[TopicPartition("logs", 0)].adding == [3]


def test_without_consent_and_in_a_dry_run_nothing_starts(desk: Desk) -> None:
    desk.write(logs=[[4, 2]])
    code, _, err = desk.reassign("execute", "--plan", str(desk.plan))
    assert code == Exit.USAGE
    assert "will be copied to broker 4: 1 replica, 1 MiB" in err
    assert "no terminal to ask for confirmation: add --yes" in err[-1]
    code, _, err = desk.execute("--dry-run")
    assert (code, err[-1]) == (0, "nothing was started")
    assert changes(desk.cluster) == 0
    assert not desk.back.exists()


def test_trap_16_a_disk_that_is_too_small_is_named_before_the_start(desk: Desk) -> None:
    desk.cluster.free = 1 << 30
    desk.write(logs=[[4, 2]])
    code, _, err = desk.execute()
    assert code == Exit.CONDITION
    assert "broker 4 has 1.0 GiB free and needs 1.0 GiB: 1 MiB to copy" in "\n".join(err)
    assert desk.execute("--force", "--detach")[0] == 0


def test_a_plan_that_continues_needs_room_for_the_missing_bytes_only(desk: Desk) -> None:
    moved = TopicPartition("logs", 0)
    desk.write(logs=[[4, 2]], other=[[4]])
    desk.cluster.sizes = {(moved, 1): 100 * MIB, (moved, 2): 100 * MIB}
    desk.execute("--detach")
    # Broker 4 already has nearly all of the copy, so little more disk space is needed.
    desk.cluster.sizes[moved, 4] = 90 * MIB
    desk.cluster.free = (1 << 30) + 20 * MIB
    desk.write(logs=[[4, 2], [2, 4]])
    code, _, err = desk.execute("--detach")
    assert (code, err[-1]) == (0, "started 1 move")


def test_moves_of_other_topics_need_room_too(desk: Desk) -> None:
    desk.write(other=[[4]])
    desk.execute("--detach")
    desk.cluster.free = (1 << 30) + 2 * MIB
    desk.write(logs=[[4, 2]])
    code, _, err = desk.execute("--detach")
    assert code == Exit.CONDITION
    assert "2 MiB to copy" in "\n".join(err)


def test_a_plan_that_starts_nothing_needs_no_room(desk: Desk) -> None:
    desk.write(logs=[[4, 2]])
    desk.execute("--detach")
    desk.cluster.free = 1
    assert desk.execute("--detach") == (0, [], ["nothing to start"])


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("0", "--throttle: found 0, expected at least 1 byte a second"),
        ("-5", "--throttle: found '-5', expected"),
        ("fast", "--throttle: found 'fast', expected"),
    ],
)
def test_trap_15_a_rate_is_refused(desk: Desk, rate: str, said: str) -> None:
    desk.write(logs=[[4, 2]])
    code, _, err = desk.execute("--throttle", rate)
    assert code == Exit.USAGE
    assert said in err[-1]
    assert changes(desk.cluster) == 0


def test_a_refusal_of_the_broker_is_told_by_partition(desk: Desk) -> None:
    desk.cluster.refuses = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    desk.write(logs=[[4, 2]])
    code, _, err = desk.execute()
    assert code == Exit.FAILED
    assert "started 0 moves" in err
    assert "logs-0: " in err[-1]


def test_trap_17_a_large_plan_goes_in_slices(desk: Desk) -> None:
    desk.cluster.topic("wide", *([1, 2] for _ in range(1_200)))
    desk.write(wide=[[3, 4] for _ in range(1_200)])
    assert desk.execute("--detach")[0] == 0
    sizes = [
        sum(len(topic.partitions) for topic in one.topics)
        for one in desk.cluster.asked
        if type(one).__name__.startswith("AlterPartition")
    ]
    assert sizes == [500, 500, 200]


def test_the_moves_are_followed_to_their_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassign, "POLL_S", 0.01)
    desk.write(logs=[[4, 2]])
    list_moves = desk.cluster._list
    lists: list[Any] = []

    def completing(request: Any) -> Any:
        lists.append(request)
        # The command lists moves once before the start. The second list is empty, as from a broker
        # that has not replayed the start yet. The command must not take that for the end.
        if len(lists) == 2:
            return ListPartitionReassignmentsResponse()
        if len(lists) == 4:
            desk.cluster.complete()
        return list_moves(request)

    monkeypatch.setattr(desk.cluster, "_list", completing)
    code, _, err = desk.execute()
    assert (code, err[-1]) == (0, "all partitions have their targets")
    assert len(lists) >= 4


def test_a_move_that_another_operator_cancels_ends_the_following(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reassign, "POLL_S", 0.01)
    desk.write(logs=[[4, 2]])
    list_moves = desk.cluster._list

    def cancelling(request: Any) -> Any:
        answer = list_moves(request)
        for one in desk.cluster.partitions.values():
            desk.cluster._move(one, None)
        return answer

    monkeypatch.setattr(desk.cluster, "_list", cancelling)
    code, _, err = desk.execute()
    assert code == Exit.FAILED
    assert "such as logs-0: the moves were cancelled, or another plan replaced" in err[-1]


def test_ctrl_c_ends_the_following_and_says_that_the_moves_go_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replica_copies, "follow", interrupted)
    desk.write(logs=[[4, 2]])
    code, _, err = desk.execute()
    assert code == Exit.INTERRUPTED
    assert "the brokers go on moving replicas" in err[-1]
    assert desk.cluster.partitions[TopicPartition("logs", 0)].adding == [4]


def test_sigint_ends_the_command_and_no_move(desk: Desk, tmp_path: Path) -> None:
    desk.write(logs=[[4, 2]])
    command = [sys.executable, "-m", "appliance", "reassign", "execute", "--yes"]
    options = ("--plan", str(desk.plan), "--bootstrap-server", desk.cluster.address)
    environment = {**os.environ, "MILLRACE_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [*command, *options], cwd=CODE, env=environment, stderr=subprocess.PIPE, text=True
    )

    def is_followed() -> bool:
        kinds = [type(one).__name__ for one in desk.cluster.asked]
        return ALTER in kinds and LIST in kinds[kinds.index(ALTER) :]

    wait_until(is_followed, 30, "the command follows the move")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED
    assert "the brokers go on moving replicas" in said
    assert desk.cluster.partitions[TopicPartition("logs", 0)].adding == [4]


def test_trap_5_a_cancel_says_the_order_and_the_minimum(desk: Desk) -> None:
    desk.cluster.min_isr = 2
    desk.write(logs=[[4, 1]])
    desk.execute("--detach")
    # Broker 2 is the second replica, and is no longer in sync.
    desk.cluster.partitions[TopicPartition("logs", 0)].in_sync = [1]
    code, out, err = desk.reassign("cancel", "--all", "--yes", "--json")
    assert code == 0
    assert data(out)[0] == {
        "topic": "logs",
        "partition": 0,
        "replicas": [1, 2],
        "preferred_leader": 1,
        "in_sync": [1],
        "min_insync": 2,
    }
    assert any("only 1 of them in sync, so writes with acks=all wait" in line for line in err)
    assert desk.cluster.replicas("logs")[0] == [1, 2]


def test_a_cancel_of_nothing(desk: Desk) -> None:
    assert desk.reassign("cancel", "--all") == (0, [], ["none of these partitions moves"])
    code, _, err = desk.reassign("cancel")
    assert (code, err[-1]) == (Exit.USAGE, "millrace: expected --plan FILE or --all")
    desk.write(logs=[[4, 2]], other=[[2]])
    desk.execute("--detach")
    desk.write(other=[[2]])
    assert desk.reassign("cancel", "--plan", str(desk.plan), "--yes")[0] == 0
    moving = {str(tp) for tp, one in desk.cluster.partitions.items() if one.adding}
    assert moving == {"logs-0"}


def test_a_plan_whose_topic_is_gone_is_not_done(desk: Desk) -> None:
    desk.write(missing=[[1]], other=[[1]], logs=[[2, 1]])
    code, out, _ = desk.reassign("verify", "--plan", str(desk.plan), "--json")
    assert code == Exit.CONDITION
    assert {row["topic"]: row["state"] for row in data(out)} == {
        "missing": "no such partition",
        "other": "done",
        "logs": "other replicas",
    }
