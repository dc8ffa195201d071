"""Real brokers: the active controller is taken out of a cluster while records are written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.cli.app import main
from appliance.mill.home import CODE
from appliance.output import Exit
from tests.harness.cluster import ClusterProcesses
from tests.harness.collector import TopicReader
from tests.harness.number_writer import NumberWriter
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "kept"
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three brokers that vote, and a fourth broker that joined them."""
    settings = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 3,
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
    }
    with ClusterProcesses(tmp_path_factory.mktemp("leaving"), settings) as cluster:
        cluster.join(4)
        yield cluster


def arguments(cluster: ClusterProcesses, *words: str) -> list[str]:
    return [*words, "--bootstrap-server", cluster.bootstrap]


def command(cluster: ClusterProcesses, *words: str) -> tuple[int, Any, str]:
    """Run `millrace` in this process. Return its exit code, its data and its messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments(cluster, *words, "--json"))
    text = out.getvalue()
    return code, json.loads(text)["data"] if text else None, err.getvalue()


def killed_on_the_way(cluster: ClusterProcesses, leaving: str, folder: Path) -> None:
    """Run the command until the broker is cordoned, and kill it."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "appliance"),
            *arguments(cluster, "broker", "remove", leaving, "--yes"),
        ],
        cwd=CODE,
        env=os.environ | {"MILLRACE_HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = ""
    while f"cordon broker {leaving}, so" not in said:
        said = process.stderr.readline()
        assert said, "the command ended before it began"
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_the_active_controller_leaves_under_load_and_no_record_is_lost(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    controller = cluster.wait_for_controller()
    leaving = str(controller.node_id)
    writer = NumberWriter(cluster.bootstrap, TOPIC, PARTITIONS)
    writer.start()
    code, _, said = command(cluster, "broker", "add", "4", "--yes")
    assert code == 0, said
    wait_until(lambda: writer.acknowledged > 100, 30, "records are written")
    killed_on_the_way(cluster, leaving, tmp_path)
    code, rows, said = command(cluster, "broker", "remove", leaving, "--yes")
    assert code == Exit.CONDITION, said
    assert [row["does"] for row in rows][-4:] == [
        "GiveVote",
        "TakeVote",
        "StopBroker",
        "Unregister",
    ]
    assert "stop its process" in said
    before = writer.acknowledged
    assert controller.stop() == 0
    wait_until(lambda: writer.acknowledged > before + 100, 30, "writes go on")
    code, _, said = command(cluster, "broker", "remove", leaving, "--yes")
    assert code == 0, said
    writer.stop()
    assert writer.errors == []
    code, told, _ = command(cluster, "broker", "describe")
    assert code == 0
    others = [one for one in (1, 2, 3, 4) if one != controller.node_id]
    assert [row["broker"] for row in told["brokers"]] == others
    assert all(row["voter"] for row in told["brokers"])
    assert told["counts"]["under_replicated"] == 0
    for row in told["partitions"]:
        assert controller.node_id not in row["replicas"]
        assert len(row["replicas"]) == 3
    reader = TopicReader(cluster.bootstrap, TOPIC, list(range(PARTITIONS)))
    found = sorted(int(one) for one in reader.values(writer.written))
    reader.close()
    assert found == list(range(writer.written))
