"""Four real brokers execute a plan of `millrace reassign`, and no acknowledged record is lost."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.cli.app import main
from appliance.kafka_tools import reassign_partitions, topics
from appliance.output import Exit
from tests.harness.cluster import ClusterProcesses
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "moved"
PARTITIONS = 6
RECORDS = 3_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 3}
    with ClusterProcesses(tmp_path_factory.mktemp("moving"), settings, size=4) as cluster:
        yield cluster


def command(cluster: ClusterProcesses, *arguments: str) -> tuple[int, Any, str]:
    """Run `millrace` in this process. Return its exit code, its data and its messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments, "--json", "--bootstrap-server", cluster.bootstrap])
    text = out.getvalue()
    return code, json.loads(text)["data"] if text else None, err.getvalue()


def replicas(cluster: ClusterProcesses, topic: str) -> list[list[int]]:
    """Return the replicas of each partition. Wait until the broker knows the topic."""

    def described() -> Any:
        code, rows, said = command(cluster, "topic", "describe", topic)
        assert code == 0, said
        return rows

    return [row["replicas"] for row in wait_until(described, 30, f"{topic} is described")]


def fill(cluster: ClusterProcesses, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def read(cluster: ClusterProcesses, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []

    def more() -> bool:
        found.extend(int(one.value() or b"") for one in consumer.consume(500, 1.0))
        return len(found) >= RECORDS

    wait_until(more, 60, "all records are read")
    consumer.close()
    return sorted(found)


def test_a_plan_empties_a_broker_and_the_way_back_fills_it(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])[TOPIC].result(30)
    fill(cluster, TOPIC)
    before = replicas(cluster, TOPIC)
    plan = tmp_path / "plan.json"
    code, rows, said = command(
        cluster,
        *("reassign", "generate", "--topic", TOPIC, "--remove", "3", "--write", str(plan)),
    )
    assert code == 0, said
    assert sum(len(row["copied_to"]) for row in rows) == sum(3 in one for one in before)
    code, _, said = command(cluster, "reassign", "execute", "--plan", str(plan), "--yes")
    assert code == 0, said
    assert "all partitions have their targets" in said
    verify = ("reassign", "verify", "--plan", str(plan))
    wait_until(lambda: command(cluster, *verify)[0] == 0, 10, "the plan is done on all brokers")
    after = replicas(cluster, TOPIC)
    assert all(3 not in one for one in after)
    loads = Counter(broker for one in after for broker in one)
    assert max(loads.values()) - min(loads.values()) <= 1
    assert read(cluster, TOPIC) == list(range(RECORDS))
    back = plan.with_suffix(".rollback.json")
    assert command(cluster, "reassign", "execute", "--plan", str(back), "--yes")[0] == 0
    # Any broker can respond, and it learns of the change a moment later than the controller.
    wait_until(lambda: replicas(cluster, TOPIC) == before, 10, "all brokers know the way back")


def test_kafkas_spelling_moves_and_lists(
    cluster: ClusterProcesses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    made = ("--create", "--topic", "spelled", "--replica-assignment", "1:2")
    assert topics.main((*server, *made)) == 0
    plan = tmp_path / "plan.json"
    moved = {"topic": "spelled", "partition": 0, "replicas": [4, 3, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))

    capsys.readouterr()

    def tool(*arguments: str) -> tuple[int, str]:
        code = reassign_partitions.main((*server, *arguments))
        return code, capsys.readouterr().out

    file = ("--reassignment-json-file", str(plan))
    code, said = tool("--execute", *file)
    assert code == 0
    assert "Successfully started partition reassignment for spelled-0" in said
    done = "Reassignment of partition spelled-0 is completed."
    wait_until(lambda: done in tool("--verify", *file)[1], 30, "the move is done")
    assert tool("--list") == (0, "No partition reassignments found.\n")
    assert replicas(cluster, "spelled") == [[4, 3, 2]]


def test_a_leader_that_was_moved_is_elected_again(cluster: ClusterProcesses) -> None:
    code, rows, said = command(cluster, "elect-leader", TOPIC)
    assert code == 0, said
    assert {row["outcome"] for row in rows} <= {"elected", "not needed"}


def test_a_cordoned_broker_gets_no_topic(cluster: ClusterProcesses) -> None:
    code, _, said = command(cluster, "config", "set", "broker", "2", "cordoned.log.dirs=*")
    assert code == 0, said
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("elsewhere", 6, 3)])["elsewhere"].result(30)
    assert all(2 not in one for one in replicas(cluster, "elsewhere"))
    code, _, said = command(
        cluster, "config", "set", "broker", "2", "--delete", "cordoned.log.dirs"
    )
    assert code == 0, said


def test_a_rate_slows_copies_and_is_gone_afterwards(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    """Copy four megabytes at half a megabyte per second. Meanwhile records with acks=all must be
    acknowledged quickly."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("slowed", 1, replica_assignment=[[1, 2]])])["slowed"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(400):
        producer.produce("slowed", number.to_bytes(2, "big") + bytes(10_000))
    assert producer.flush(30) == 0
    plan = tmp_path / "slow.json"
    rows = [{"topic": "slowed", "partition": 0, "replicas": [4, 2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    began_s = time.monotonic()
    execute = ("reassign", "execute", "--plan", str(plan), "--yes", "--throttle")
    assert command(cluster, *execute, "500kB", "--detach")[0] == 0
    took_ms = []
    while time.monotonic() - began_s < 3:
        assert command(cluster, "reassign", "verify", "--plan", str(plan))[0] == Exit.CONDITION
        sent_s = time.monotonic()
        producer.produce("slowed", b"beside")
        assert producer.flush(30) == 0
        took_ms.append((time.monotonic() - sent_s) * 1_000)
    assert median(took_ms) < 1_000, took_ms
    # The same plan with a higher rate takes effect at once, and this command waits for the end.
    code, _, said = command(cluster, *execute, "100MB")
    assert code == 0, said
    assert time.monotonic() - began_s > 3
    assert "removed the throttle" in said
    assert replicas(cluster, "slowed") == [[4, 2]]
    for resource in (("topic", "slowed"), ("broker", "1"), ("broker", "4")):
        code, entries, said = command(cluster, "config", "get", *resource)
        assert code == 0, said
        assert "throttled" not in str(entries)
