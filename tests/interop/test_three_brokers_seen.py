"""Three real brokers in the views of the monitor, the commands and Kafka's own tools, while one
broker is down."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.cli import context
from appliance.cli.app import main
from appliance.kafka_tools import leader_election
from appliance.mill import entry, parts
from protocol.client.cluster import Cluster
from protocol.client.group import OffsetAndMetadata, commit_offsets
from protocol.types import TopicPartition
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import ClusterProcesses
from tests.harness.monitor import MonitorProcess
from tests.harness.tally import tell
from tests.harness.tools import FEATURES, METADATA_QUORUM, KafkaTools
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PARTITIONS = 6
ALL = PARTITIONS + 3
"""The number of partitions, including those of the offsets topic. Each broker has a replica of
each."""

SETTINGS = {"offsets.topic.num.partitions": 3, "offsets.topic.replication.factor": 3}
SHOWN_WITHIN_S = 3.0
"""The time after a kill in which the page must name the dead broker, with the default refresh of 2
s."""
GROUP = "millrace-stream"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Return three brokers with a replicated topic that a group has read."""
    with ClusterProcesses(tmp_path / "cluster", SETTINGS) as cluster:
        cluster.wait_for_controller()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("logs.access", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["logs.access"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(PARTITIONS):
            producer.produce("logs.access", b"line", partition=number)
        assert producer.flush(30) == 0
        asyncio.run(commit(cluster.bootstrap))
        yield cluster


async def commit(bootstrap: str) -> None:
    client = Cluster(bootstrap, client_id="test")
    await client.start()
    offsets = {
        TopicPartition("logs.access", one): OffsetAndMetadata(1) for one in range(PARTITIONS)
    }
    await commit_offsets(client, GROUP, offsets)
    await client.close()


@pytest.fixture
def monitor(cluster: ClusterProcesses, tmp_path: Path) -> Iterator[MonitorProcess]:
    running = MonitorProcess(list(cluster.brokers.values()), tmp_path)
    try:
        wait_until(lambda: len(running.rows("brokers")) == 3, 20, "three brokers are known")
        yield running
    finally:
        running.kill()


def follower(cluster: ClusterProcesses) -> BrokerProcess:
    """Return a broker that is not the controller."""
    controller = cluster.wait_for_controller()
    return next(one for one in cluster.running if one is not controller)


def states(monitor: MonitorProcess) -> dict[int, str]:
    return {row["node_id"]: row["state"] for row in monitor.rows("brokers")}


def lags_known(monitor: MonitorProcess) -> int:
    return sum(lag is not None for _, lag, _ in monitor.lag())


def worst(monitor: MonitorProcess) -> Any:
    return monitor.rows("health")[0]


@pytest.mark.parametrize("has_controller", [False, True], ids=["a follower", "the controller"])
def test_within_three_seconds_of_a_kill_it_is_said_who_is_down_and_what_that_means(
    cluster: ClusterProcesses, monitor: MonitorProcess, has_controller: bool
) -> None:
    wait_until(lambda: lags_known(monitor) == PARTITIONS, 20, "all lags are known")
    killed = cluster.wait_for_controller() if has_controller else follower(cluster)
    begin = time.monotonic()
    killed.kill9()
    name = f"Broker {killed.node_id} does not answer since"
    wait_until(lambda: worst(monitor)["text"].startswith(name), SHOWN_WITHIN_S, "it is said")
    said_ms = round((time.monotonic() - begin) * 1_000)
    meaning = f"{ALL} of {ALL} partitions are under-replicated, none is offline"
    wait_until(lambda: meaning in worst(monitor)["detail"], 10, "it is said what that means")
    meant_ms = round((time.monotonic() - begin) * 1_000)
    assert states(monitor) == {
        one.node_id: "down" if one is killed else "up" for one in cluster.brokers.values()
    }
    rows = {row["node_id"]: row for row in monitor.rows("quorum")}
    assert sorted(rows) == [1, 2, 3]
    live = {one.node_id for one in cluster.running}
    assert {row["node_id"] for row in rows.values() if row["role"] == "leader"} < live
    wait_until(lambda: lags_known(monitor) == PARTITIONS, 10, "lags are known again")
    killed.spawn()
    wait_until(lambda: set(states(monitor).values()) == {"up"}, 30, "it is back on the page")
    wait_until(
        lambda: all(not row["under_replicated"] for row in monitor.rows("brokers")),
        30,
        "and in sync",
    )
    tell(f"page: the dead broker after {said_ms} ms, its effects after {meant_ms} ms")


def test_the_monitor_goes_on_beside_a_broker_that_says_nothing(
    cluster: ClusterProcesses, monitor: MonitorProcess
) -> None:
    wait_until(lambda: lags_known(monitor) == PARTITIONS, 20, "all lags are known")
    frozen = follower(cluster)
    frozen.freeze()
    begin = time.monotonic()
    wait_until(lambda: states(monitor)[frozen.node_id] == "down", 12, "it is down on the page")
    said_ms = round((time.monotonic() - begin) * 1_000)
    others = {one.node_id for one in cluster.running} - {frozen.node_id}
    assert all(states(monitor)[one] == "up" for one in others)
    ages = []
    until = time.monotonic() + 12

    def is_fenced() -> bool:
        envelope = monitor.get("/api/v1/lag")
        ages.append(envelope["ts_ms"] - envelope["kafka_at_ms"])
        assert {row["group"] for row in envelope["data"]} == {GROUP}, "no group is lost"
        return time.monotonic() > until and lags_known(monitor) == PARTITIONS

    wait_until(is_fenced, 30, "all partitions are led by others, and known")
    assert max(ages) == 0, "no cycle came home without the brokers that answer"
    tell(f"page: a frozen broker is down after {said_ms} ms")


def test_a_monitor_starts_though_its_first_bootstrap_server_is_dead(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    dead = follower(cluster)
    dead.kill9()
    servers = [dead, *(one for one in cluster.brokers.values() if one is not dead)]
    late = MonitorProcess(servers, tmp_path / "late")
    try:
        wait_until(lambda: len(late.rows("brokers")) == 3, 20, "all three are known")
        assert states(late)[dead.node_id] == "down"
        wait_until(lambda: lags_known(late) == PARTITIONS, 20, "all lags are known")
    finally:
        late.kill()


def described(cluster: ClusterProcesses, patched: pytest.MonkeyPatch) -> Any:
    """Return the output of `broker describe --json` in a mill with these brokers."""
    mill = SimpleNamespace(
        # No supervisor runs here. The command must ask the brokers that listen all the same.
        home=SimpleNamespace(lock_file=Path("no such mill")),
        config=SimpleNamespace(
            cluster=SimpleNamespace(
                bootstrap_servers=None, security=None, hosts=None, broker_ids=(1, 2, 3)
            )
        ),
        placement=None,
        parts=[
            SimpleNamespace(name=f"broker-{one.node_id}", host="127.0.0.1", port=one.status_port)
            for one in cluster.brokers.values()
        ],
    )
    patched.setattr(context, "mill_as_it_runs", lambda: mill)
    for module in (entry, parts):
        patched.setattr(module, "bootstrap_servers", lambda config, placement: cluster.bootstrap)
    return command(0, "broker", "describe", "--json")


def command(code: int, *arguments: str) -> Any:
    """Run a command, check its exit code, and return the data that it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*arguments]) == code
    return json.loads(out.getvalue())["data"]


def test_broker_describe_has_it_in_one_place(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = cluster.wait_for_controller()
    well = described(cluster, monkeypatch)
    assert well["controller"] == well["quorum"]["leader"] == controller.node_id
    assert [row["state"] for row in well["brokers"]] == ["in service"] * 3
    assert len({row["incarnation"] for row in well["brokers"]}) == 3
    assert len({row["epoch"] for row in well["brokers"]} - {None}) == 3
    assert all(set(row["listeners"]) == {"HOST", "MILL", "BROKER"} for row in well["brokers"])
    topic = [row for row in well["partitions"] if row["topic"] == "logs.access"]
    assert all(sorted(row["in_sync"]) == [1, 2, 3] for row in topic)
    assert None not in {row["partition_epoch"] for row in topic}
    assert [row["lag"] for row in well["quorum"]["replicas"]] == [0, 0, 0]
    assert (well["counts"]["under_replicated"], well["counts"]["offline"]) == (0, 0)

    dead = follower(cluster)
    dead.kill9()

    def is_fenced() -> bool:
        rows = {row["broker"]: row for row in described(cluster, monkeypatch)["brokers"]}
        return bool(rows[dead.node_id]["state"] == "fenced")

    wait_until(is_fenced, 20, "it is fenced")
    ill = described(cluster, monkeypatch)
    row = ill["brokers"][dead.node_id - 1]
    assert (row["address"], row["leads"], row["in_sync"]) == (None, 0, 0)
    assert row["incarnation"] == well["brokers"][dead.node_id - 1]["incarnation"]
    assert ill["counts"]["under_replicated"] == ALL
    assert ill["counts"]["offline"] == 0
    listed = command(3, "broker", "list", "--json")
    assert [row["answers"] for row in listed] == [row["broker"] != dead.node_id for row in listed]
    assert [row["broker"] for row in listed] == [1, 2, 3]
    behind = next(one for one in ill["quorum"]["replicas"] if one["node"] == dead.node_id)
    assert behind["lag"] > 0


def test_a_preferred_replica_leads_again_by_order(
    cluster: ClusterProcesses, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def first() -> Any:
        return admin.list_topics("logs.access", timeout=10).topics["logs.access"].partitions[0]

    def elected(*options: str) -> str:
        servers = ("--bootstrap-server", cluster.bootstrap)
        assert leader_election.main([*servers, "--election-type", "preferred", *options]) == 0
        return capsys.readouterr().out

    preferred = first().replicas[0]
    cluster.brokers[preferred].kill9()
    wait_until(lambda: first().leader not in (preferred, -1), 20, "another one leads")
    cluster.brokers[preferred].spawn()

    def all_in_sync() -> bool:
        topics = admin.list_topics(timeout=10).topics.values()
        return all(len(one.isrs) == 3 for topic in topics for one in topic.partitions.values())

    wait_until(all_in_sync, 30, "it is in sync again")
    assert first().leader != preferred
    named = ("--topic", "logs.access", "--partition", "0")
    done = "Successfully completed leader election (PREFERRED) for partitions logs.access-0\n"
    assert elected(*named) == done
    wait_until(lambda: first().leader == preferred, 10, "it leads")
    assert elected(*named) == "Valid replica already elected for partitions logs.access-0\n"
    assert "logs.access-0" not in elected("--all-topic-partitions")
    assert elected("--all-topic-partitions") == ""


@pytest.mark.slow
def test_kafkas_own_tools_read_it_from_any_of_them(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    leader = cluster.wait_for_controller().node_id
    for broker in cluster.running:
        tools = KafkaTools(tmp_path / "tools", broker.bootstrap)
        status = tools.run(METADATA_QUORUM, "describe", "--status")
        assert f"LeaderId:               {leader}\n" in status
        assert status.count("BROKER://127.0.0.1:") == 3
        rows = tools.run(METADATA_QUORUM, "describe", "--replication").splitlines()
        assert [line.split()[-1] for line in rows[1:]] == ["Leader", "Follower", "Follower"]
        assert tools.run(FEATURES, "upgrade", "--feature", "metadata.version=24")
