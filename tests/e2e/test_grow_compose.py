"""A mill of one broker in containers becomes one of three while lines are counted and records are
written. The command is killed on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.containers import Containers, counted, mill_in_containers
from tests.e2e.mill import SHIPPED, until_it_says
from tests.harness.collector import TopicReader
from tests.harness.logs import shared_log
from tests.harness.number_writer import NumberWriter
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3_600)]

PARTITIONS = 6
BROKERS = [1, 2, 3]
COUNTED_S = 240.0
FIRST = "127.0.0.1:9092"
ALL = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
GROW = ("cluster", "grow", "--yes")


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Containers]:
    with mill_in_containers(tmp_path) as made:
        made.compose("build", "init", "stream")
        yield made


def configure(mill: Containers, brokers: int) -> None:
    text = SHIPPED.read_text()
    assert "brokers: 3 " in text
    file = mill.folder / "configs" / "millrace.yaml"
    file.write_text(text.replace("brokers: 3 ", f"brokers: {brokers} "))


def drop(mill: Containers, number: int) -> None:
    """Drop the shared log for the n-th time."""
    access = mill.folder / "watched" / "access"
    shutil.copyfile(shared_log("apache_access.log"), access / f"{number}.log")


def described(mill: Containers) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]]
    found = json.loads(mill.cli("broker", "describe", "--json"))["data"]
    return found


def kill_when_it_says(mill: Containers, text: str) -> None:
    """Run `cluster grow` until it says this, and kill its container."""
    name = f"{mill.environment['COMPOSE_PROJECT_NAME']}-grow"
    with subprocess.Popen(
        ["docker", "compose", "run", "--rm", "-T", "--name", name, "cli", *GROW],
        cwd=mill.folder,
        env=mill.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_it_says(process, text)
        subprocess.run(["docker", "kill", name], check=True, capture_output=True)


def grown(mill: Containers) -> subprocess.CompletedProcess[str]:
    return mill.attempt("run", "--rm", "-T", "cli", *GROW)


def test_one_broker_in_containers_becomes_three_and_every_count_is_exact(mill: Containers) -> None:
    configure(mill, 1)
    mill.compose("up", "--detach", "--wait")
    drop(mill, 1)
    wait_until(lambda: counted(1), COUNTED_S, "the lines are counted")
    for name in ("broker-2", "broker-3"):
        mill.wait_logged(name, f"{name} joins the cluster if")
    admin = AdminClient({"bootstrap.servers": FIRST})
    admin.create_topics([NewTopic("kept", PARTITIONS, 1)])["kept"].result(30)
    writer = NumberWriter(FIRST, "kept", PARTITIONS)
    writer.start()
    wait_until(lambda: writer.acknowledged > 500, 60, "records are written")

    refused = grown(mill)
    assert refused.returncode == 3
    assert "run `docker compose up -d --wait --force-recreate`" in refused.stderr
    configure(mill, 3)
    refused = grown(mill)
    assert refused.returncode == 3, "the containers still run with one broker"
    assert "broker 2 is not in service" in refused.stderr
    drop(mill, 2)
    mill.compose("up", "--detach", "--wait", "--force-recreate")
    before = described(mill)
    assert [row["broker"] for row in before["brokers"] if row["voter"]] == [1]

    drop(mill, 3)
    kill_when_it_says(mill, "make broker 3 a voter")
    kill_when_it_says(mill, "add replicas")
    mill.compose("stop", "broker-3")
    refused = grown(mill)
    assert "`docker compose up -d --wait broker-3` starts it" in refused.stderr
    mill.compose("up", "--detach", "--wait", "broker-3")
    done = grown(mill)
    assert done.returncode == 0, done.stderr
    drop(mill, 4)
    after = described(mill)
    assert [row["broker"] for row in after["brokers"] if row["voter"]] == BROKERS
    assert len(after["partitions"]) > PARTITIONS
    for row in after["partitions"]:
        assert sorted(row["replicas"]) == BROKERS, row  # type: ignore[call-overload]

    acknowledged = writer.acknowledged
    mill.compose("kill", "broker-1")
    wait_until(lambda: writer.acknowledged > acknowledged + 500, 120, "the others take writes")
    drop(mill, 5)
    wait_until(lambda: counted(5), COUNTED_S, "every line is counted once")
    writer.stop()
    assert writer.errors == []
    mill.compose("up", "--detach", "--wait", "broker-1")
    reader = TopicReader(ALL, "kept", list(range(PARTITIONS)))
    found = sorted(int(one) for one in reader.values(writer.written))
    reader.close()
    assert found == list(range(writer.written))
