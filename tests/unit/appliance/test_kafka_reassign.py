"""`kafka-reassign-partitions` has the output and the exit codes of Kafka's tool, beside a scripted
cluster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.kafka_tools.reassign_partitions import main
from appliance.output import Exit
from protocol.errors import ErrorCode
from tests.unit.appliance.fake_cluster import BROKER, TOPIC, FakeCluster

UNUSED = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fake = FakeCluster(dict.fromkeys((1, 2, 3)))
    fake.topic("t", [1, 2], [2, 3])
    fake.topic("u", [1])
    with fake.serving():
        yield fake


class Tool:
    """The command with its plan file, and the arguments that a user types."""

    def __init__(
        self, cluster: FakeCluster, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._cluster = cluster
        self._plan = folder / "plan.json"
        self._topics = folder / "topics.json"
        self._capsys = capsys

    def plan(self, **replicas: list[list[int]]) -> None:
        rows = [
            {"topic": name, "partition": number, "replicas": members}
            for name, partitions in replicas.items()
            for number, members in enumerate(partitions)
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": rows}))

    def folders(self, *folders: str) -> None:
        """Set the log folders (`log_dirs`) of the only partition in the plan."""
        plan = json.loads(self._plan.read_text())
        plan["partitions"][0]["log_dirs"] = folders
        self._plan.write_text(json.dumps(plan))

    def run(self, action: str, *arguments: str) -> tuple[int, list[str]]:
        file = () if action == "list" else ("--reassignment-json-file", str(self._plan))
        return self.call(f"--{action}", *file, *arguments)

    def generate(self, *names: str, brokers: str, more: tuple[str, ...] = ()) -> Any:
        topics = [{"topic": name} for name in names]
        self._topics.write_text(json.dumps({"version": 1, "topics": topics}))
        return self.call(
            *("--generate", "--topics-to-move-json-file", str(self._topics)),
            *("--broker-list", brokers, *more),
        )

    def call(self, *arguments: str) -> tuple[int, list[str]]:
        code = main(("--bootstrap-server", self._cluster.address, *arguments))
        said = self._capsys.readouterr()
        assert said.err == ""
        return code, said.out.splitlines()


@pytest.fixture
def tool(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(cluster, tmp_path, capsys)


def test_from_the_start_to_the_end(tool: Tool, cluster: FakeCluster) -> None:
    tool.plan(t=[[3, 2], [2, 3]])
    assert tool.run("execute") == (
        0,
        [
            "Current partition replica assignment",
            "",
            '{"version":1,"partitions":['
            '{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["/data","/data"]},'
            '{"topic":"t","partition":1,"replicas":[2,3],"log_dirs":["/data","/data"]}]}',
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            "Successfully started partition reassignments for t-0,t-1",
        ],
    )
    assert tool.run("list") == (
        0,
        ["Current partition reassignments:", "t-0: replicas: 3,2,1. adding: 3. removing: 1."],
    )
    # The exit code of an unfinished plan is 0, as with Kafka's tool.
    assert tool.run("verify") == (
        0,
        [
            "Status of partition reassignment:",
            "Reassignment of partition t-0 is still in progress.",
            "Reassignment of partition t-1 is completed.",
            "",
        ],
    )
    cluster.complete()
    assert tool.run("verify")[1][-3:] == [
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic t",
    ]
    assert tool.run("list") == (0, ["No partition reassignments found."])


def test_trap_14_throttles_stay_while_anything_moves_and_are_cleared_of_what_is_left(
    tool: Tool, cluster: FakeCluster
) -> None:
    tool.plan(u=[[2]])
    tool.run("execute")
    tool.plan(t=[[1, 2], [2, 9]], gone=[[1]])
    code, lines = tool.run("verify")
    assert code == 0
    assert lines == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition gone-0, but replica set is  rather than 1.",
        "Reassignment of partition t-0 is completed.",
        "There is no active reassignment of partition t-1, but replica set is 2,3 rather than 2,9.",
        "",
    ]
    cluster.complete()
    cluster.asked.clear()
    assert tool.run("verify")[1][-2:] == [
        "Clearing broker-level throttles on brokers 1,2,3,9",
        "Clearing topic-level throttles on topics gone,t",
    ]
    changed = {
        resource.resource_name
        for one in cluster.asked
        if type(one).__name__.startswith("IncrementalAlter")
        for resource in one.resources
    }
    assert changed == {"1", "2", "3", "t"}
    assert len(tool.run("verify", "--preserve-throttles")[1]) == 5


def test_a_second_one_needs_additional(tool: Tool, cluster: FakeCluster) -> None:
    tool.plan(t=[[3, 2]])
    assert tool.run("execute")[1][-1] == "Successfully started partition reassignment for t-0"
    tool.plan(u=[[2]])
    code, (line,) = tool.run("execute")
    assert code == Exit.FAILED
    assert line.startswith("Cannot execute because there is an existing partition assignment.  Use")
    assert tool.run("execute", "--additional")[0] == 0
    assert [one.adding for one in cluster.partitions.values()] == [[3], [], [2]]


def test_trap_5_a_cancel_ends_what_only_adds_too(tool: Tool, cluster: FakeCluster) -> None:
    tool.plan(t=[[1, 2, 3]])
    tool.run("execute")
    tool.plan(t=[[1, 2, 3], [3, 2]], u=[[2]])
    assert tool.run("cancel", "--preserve-throttles") == (
        0,
        [
            "Successfully cancelled partition reassignment for: t-0",
            "None of the specified partition moves are active.",
        ],
    )
    assert cluster.replicas("t")[0] == [1, 2]
    assert tool.run("cancel")[1] == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topics t,u",
    ]


@pytest.mark.parametrize(
    ("replicas", "code", "said"),
    [
        ({"t": [[1, 9]]}, Exit.FAILED, "Error: Unknown broker id 9"),
        ({"missing": [[1]]}, Exit.NOT_FOUND, "Error: Topic missing not found."),
        ({"u": [[1], [1]]}, Exit.NOT_FOUND, "Error: Unable to find partition: u-1"),
    ],
)
def test_a_plan_for_what_is_not_there(
    tool: Tool, replicas: dict[str, list[list[int]]], code: int, said: str
) -> None:
    tool.plan(**replicas)
    assert tool.run("execute") == (code, [said])


def test_a_refusal_of_the_broker(tool: Tool, cluster: FakeCluster) -> None:
    cluster.refuses = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    tool.plan(t=[[3, 2]])
    code, lines = tool.run("execute")
    assert code == Exit.FAILED
    assert lines[-2] == "Error reassigning partition(s):"
    assert lines[-1].startswith("t-0: ")


def test_folders_that_a_plan_names(tool: Tool) -> None:
    tool.plan(t=[[1, 2]])
    for folder, said in (
        ("/data", "Reassignment of replica t-0-1 completed successfully."),
        ("/old", "Partition t-0 on broker 1 is not being moved from log dir /data to /old."),
    ):
        tool.folders(folder, "any")
        assert tool.run("verify")[1][2] == said
    code, (line,) = tool.run("execute")
    assert code == Exit.NOT_FOUND
    assert line == "Error: t-0: broker 1 has no folder /old; it has /data. Expected any"


def test_another_number_of_replicas_is_refused_on_request(tool: Tool, cluster: FakeCluster) -> None:
    tool.plan(t=[[1, 2, 3], [3, 2]])
    code, lines = tool.run("execute", "--disallow-replication-factor-change")
    assert code == Exit.FAILED
    assert lines[-1].startswith("t-0: ")
    assert cluster.replicas("t") == [[1, 2], [3, 2]]


def test_a_generated_plan_deals_all_replicas_again(tool: Tool, cluster: FakeCluster) -> None:
    code, lines = tool.generate("t", brokers="2,3,9")
    assert code == 0
    assert [lines[0], *lines[2:4]] == [
        "Current partition replica assignment",
        "",
        "Proposed partition reassignment configuration",
    ]
    proposed = json.loads(lines[4])["partitions"]
    assert [(one["topic"], one["partition"]) for one in proposed] == [("t", 0), ("t", 1)]
    assert all(sorted(one["replicas"]) == [2, 3] for one in proposed)
    assert cluster.replicas("t") == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("names", "brokers", "said"),
    [
        (("t",), "1", "Error: Replication factor: 2 larger than available brokers: 1."),
        (("missing",), "1,2", "Error: Topic missing not found."),
        (("t", "t"), "1,2", "List of topics to reassign contains duplicate entries: t"),
        (("t",), "1,1", "Broker list contains duplicate entries: 1"),
    ],
)
def test_what_cannot_be_generated(
    tool: Tool, names: tuple[str, ...], brokers: str, said: str
) -> None:
    code, lines = tool.generate(*names, brokers=brokers)
    assert code != 0
    assert said in lines[-1]


def test_racks_of_some_brokers_only_are_refused(tool: Tool, cluster: FakeCluster) -> None:
    cluster.brokers = {1: "a", 2: "b", 3: None}
    code, lines = tool.generate("t", brokers="1,2,3")
    assert code == Exit.FAILED
    assert lines[-1].startswith("Error: Not all brokers have rack information. Add --disable-rack")
    assert tool.generate("t", brokers="1,2,3", more=("--disable-rack-aware",))[0] == 0
    cluster.brokers = {1: "a", 2: "a", 3: "b"}
    proposed = json.loads(tool.generate("t", brokers="1,2,3")[1][4])["partitions"]
    assert all(3 in one["replicas"] for one in proposed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--execute", 'Missing required argument "[reassignment-json-file]"'),
        ("--generate --broker-list 1", 'Missing required argument "[topics-to-move-json-file]"'),
        (
            "",
            "Command must include exactly one action: --generate, --execute, --verify, --cancel,"
            " --list",
        ),
        ("--list --verify", "Command must include exactly one action"),
        ("--list --additional", 'Option "[additional]" can\'t be used with action "[list]"'),
        (
            "--verify --reassignment-json-file f --broker-list 1",
            'Option "[broker-list]" can\'t be used with action "[verify]"',
        ),
    ],
)
def test_options_that_do_not_go_together(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main((*UNUSED, *options.split())) == Exit.USAGE
    assert capsys.readouterr().err.splitlines()[0].startswith(said)


def test_a_broker_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("--list",)) == Exit.USAGE
    said = capsys.readouterr().err
    assert said.startswith("Please specify either --bootstrap-server or --bootstrap-controller")


def test_what_this_version_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    option = "--replica-alter-log-dirs-throttle"
    assert main((*UNUSED, "--execute", "--reassignment-json-file", "f", option, "1")) == Exit.USAGE
    assert "a broker has one folder" in capsys.readouterr().out


@pytest.mark.parametrize("rate", ["0", "-1", "fast"])
def test_trap_15_a_rate_that_copies_nothing_is_refused(
    tool: Tool, cluster: FakeCluster, rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tool.plan(t=[[3, 2]])
    assert main((*UNUSED, "--execute", "--reassignment-json-file", "f", "--throttle", rate)) != 0
    assert "--throttle" in "".join(capsys.readouterr())
    assert not cluster.settings


def test_a_throttle_is_set_as_kafka_sets_it(tool: Tool, cluster: FakeCluster) -> None:
    """Current replicas are listed as throttled leaders, and added replicas as throttled followers.
    Moves that already run stay in the lists."""
    tool.plan(t=[[3, 2], [2, 3]])
    assert tool.run("execute", "--throttle", "1000")[1][4:] == [
        "Save this to use as the --reassignment-json-file option during rollback",
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure "
        "the throttle is removed.",
        "The inter-broker throttle limit was set to 1000 B/s",
        "Successfully started partition reassignments for t-0,t-1",
    ]
    leaders, followers = (
        f"{side}.replication.throttled.replicas" for side in ("leader", "follower")
    )
    assert cluster.settings[TOPIC, "t"] == {leaders: "0:1,0:2,1:2,1:3", followers: "0:3"}
    rates = {
        "leader.replication.throttled.rate": "1000",
        "follower.replication.throttled.rate": "1000",
    }
    assert {name: own for (kind, name), own in cluster.settings.items() if kind == BROKER} == {
        "1": rates,
        "2": rates,
        "3": rates,
    }
    # A second plan is added: the topics of the first plan stay in the lists, and the rate changes.
    tool.plan(u=[[2]])
    assert tool.run("execute", "--additional", "--throttle", "5000")[0] == 0
    assert cluster.settings[TOPIC, "t"] == {leaders: "0:1,0:2", followers: "0:3"}
    assert cluster.settings[TOPIC, "u"] == {leaders: "0:1", followers: "0:2"}
    assert {
        own["leader.replication.throttled.rate"]
        for (kind, _), own in cluster.settings.items()
        if kind == BROKER
    } == {"5000"}
    cluster.complete()
    tool.run("verify")
    assert cluster.settings[TOPIC, "u"] == {}
    assert not any(own for (kind, _), own in cluster.settings.items() if kind == BROKER)
