"""The brokers of a mill move under a writer: to other ports, to other folders, and killed
half-way."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.mill import TempMill, brokers_only, temp_mill
from tests.harness.collector import TopicReader
from tests.harness.number_writer import NumberWriter

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1200)]

PARTITIONS = 3


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    with temp_mill(tmp_path_factory.mktemp("moves") / "mill") as made:
        made.write_config(brokers_only("3"))
        yield made


def place(mill: TempMill, places: str) -> None:
    """Write the places of brokers into the file."""
    text = mill.home.config_file.read_text()
    assert text.count("\nports: {") == 1
    text = text.replace("\nports: {", f"\nports: {{places: {places}, ")
    mill.home.config_file.write_text(text)


def move_and_move(mill: TempMill, disk: Path) -> None:
    """Move brokers in every way, with a writer beside."""
    nothing = mill.run("broker", "move", "3", "--yes")
    assert nothing.code == 0 and "nothing to move" in nothing.err
    place(mill, "{3: 8}")
    refused = mill.run("up", "--apply")
    assert refused.code == 3
    assert "Run `./millrace broker move 3`" in refused.err
    plan = mill.run("broker", "move", "3", "--dry-run", "--json")
    assert [row["does"] for row in json.loads(plan.out)["data"]] == [
        "StopBroker",
        "StartMoved",
        "WaitForReplicas",
        "WaitForAddress",
    ]
    moved = mill.run("broker", "move", "3", "--yes")
    assert moved.code == 0, moved.err
    assert mill.status()["broker-3"]["state"] == "healthy"

    target = disk / "three"
    disk.mkdir()
    moved = mill.run("broker", "move", "3", "--folder", str(target), "--yes")
    assert moved.code == 0, moved.err
    assert (mill.home.data / "broker-3").resolve() == target
    assert (target / "meta.properties").exists()

    # Killed while it moves the folder, stops or starts the broker: the same command continues.
    for number, wait_s in enumerate((4.0, 8.0, 12.0)):
        other = disk / f"two-{number}"
        with mill.begin("broker", "move", "2", "--folder", str(other), "--yes") as command:
            try:
                command.wait(wait_s)
            except subprocess.TimeoutExpired:
                command.kill()
        again = mill.run("broker", "move", "2", "--folder", str(other), "--yes")
        assert again.code == 0, again.err
        assert (mill.home.data / "broker-2").resolve() == other

    # The disk of broker 3 is lost, and the broker gets an empty folder on another disk.
    stopped = mill.run("stop", "broker-3")
    assert stopped.code == 0, stopped.err
    shutil.rmtree(target)
    blank = disk / "blank"
    moved = mill.run("broker", "move", "3", "--folder", str(blank), "--yes")
    assert moved.code == 0, moved.err
    assert (mill.home.data / "broker-3").resolve() == blank


def test_brokers_move_and_no_record_is_lost(mill: TempMill, tmp_path: Path) -> None:
    mill.up()
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1, 2)})
    admin.create_topics([NewTopic("kept", PARTITIONS, 3)])["kept"].result(30)
    writer = NumberWriter(mill.bootstrap(1, 2), "kept", PARTITIONS)
    writer.start()

    try:
        move_and_move(mill, tmp_path / "disk")
    finally:
        writer.stop()
    assert writer.errors == []
    reader = TopicReader(mill.bootstrap(1, 2), "kept", list(range(PARTITIONS)))
    found = sorted(int(one) for one in reader.values(writer.written))
    reader.close()
    assert found == list(range(writer.written))
