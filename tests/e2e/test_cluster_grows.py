"""A mill of one broker becomes one of three while records are written, and then loses a disk.

The commands are killed on the way.
"""

import json
import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.mill import TempMill, brokers_only, temp_mill, until_it_says
from tests.harness.collector import TopicReader
from tests.harness.number_writer import NumberWriter
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PARTITIONS = 6
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    with temp_mill(tmp_path_factory.mktemp("grow") / "mill") as made:
        made.write_config(brokers_only("1"))
        yield made


def described(mill: TempMill) -> dict[str, list[dict[str, object]]]:
    told = mill.run("broker", "describe", "--json")
    assert told.code == 0, told.err
    found: dict[str, list[dict[str, object]]] = json.loads(told.out)["data"]
    return found


def kill_when_it_says(mill: TempMill, text: str, *command: str) -> None:
    """Run a command until it says this, and kill it."""
    with mill.begin(*command, "--yes") as process:
        until_it_says(process, text)
        process.send_signal(signal.SIGKILL)


def test_one_broker_becomes_three_and_no_record_is_lost(mill: TempMill) -> None:
    mill.up()
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1)})
    admin.create_topics([NewTopic("kept", PARTITIONS, 1)])["kept"].result(30)
    writer = NumberWriter(mill.bootstrap(1), "kept", PARTITIONS)
    writer.start()
    wait_until(lambda: writer.acknowledged > 500, 30, "records are written")

    refused = mill.run("cluster", "grow", "--yes")
    assert refused.code == 3
    assert "Write `brokers: 3` below `cluster:`" in refused.err
    mill.write_config(brokers_only("3"))
    applied = mill.run("up", "--apply")
    assert applied.code == 0, applied.err
    before = described(mill)
    assert [row["broker"] for row in before["brokers"] if row["voter"]] == [1]
    assert {len(row["replicas"]) for row in before["partitions"]} == {1}  # type: ignore[arg-type]

    kill_when_it_says(mill, "make broker 3 a voter", "cluster", "grow")
    kill_when_it_says(mill, "add replicas", "cluster", "grow")
    grown = mill.run("cluster", "grow", "--yes")
    assert grown.code == 0, f"{grown.err}\n{mill.log_ends()}"
    after = described(mill)
    assert [row["broker"] for row in after["brokers"] if row["voter"]] == list(BROKERS)
    for row in after["partitions"]:
        assert sorted(row["replicas"]) == list(BROKERS), row  # type: ignore[call-overload]
        assert sorted(row["in_sync"]) == list(BROKERS), row  # type: ignore[call-overload]
    # The broker that is asked can be behind with the last election of leaders.
    wait_until(
        lambda: "has grown already" in mill.run("cluster", "grow", "--yes").err,
        60,
        "nothing is left to do",
    )

    killed = mill.status()["broker-1"]["pid"]
    acknowledged = writer.acknowledged
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: writer.acknowledged > acknowledged + 500, 60, "the others take writes")
    refuse_lost_records(mill, writer, "kept")


def refuse_lost_records(mill: TempMill, writer: NumberWriter, topic: str) -> None:
    """Stop the writer, and check that the topic has each of its records once."""
    writer.stop()
    assert writer.errors == []
    reader = TopicReader(mill.bootstrap(*BROKERS), topic, list(range(PARTITIONS)))
    found = sorted(int(one) for one in reader.values(writer.written))
    reader.close()
    assert found == list(range(writer.written))


def test_a_broker_whose_disk_was_lost_comes_back(mill: TempMill) -> None:
    mill.up()
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(*BROKERS)})
    admin.create_topics([NewTopic("again", PARTITIONS, 3)])["again"].result(30)
    writer = NumberWriter(mill.bootstrap(*BROKERS), "again", PARTITIONS)
    writer.start()
    wait_until(lambda: writer.acknowledged > 500, 30, "records are written")
    wait_until(
        lambda: all(len(row["in_sync"]) == 3 for row in described(mill)["partitions"]),  # type: ignore[arg-type]
        60,
        "all replicas are in sync",
    )
    whole = mill.run("broker", "replace-disk", "2", "--yes")
    assert (whole.code, "broker 2 is in service with all its replicas" in whole.err) == (0, True)

    stopped = mill.run("stop", "broker-2")
    assert stopped.code == 0, stopped.err
    folder = mill.home.data / "broker-2"
    refused = mill.run("broker", "replace-disk", "2", "--yes")
    assert refused.code == 3
    assert f"{folder} is not empty" in refused.err
    folder.rename(folder.with_name("lost"))
    kill_when_it_says(mill, "remove broker 2 from the voters", "broker", "replace-disk", "2")
    kill_when_it_says(mill, "start broker 2", "broker", "replace-disk", "2")
    replaced = mill.run("broker", "replace-disk", "2", "--yes")
    assert replaced.code == 0, f"{replaced.err}\n{mill.log_ends()}"
    after = described(mill)
    assert [row["broker"] for row in after["brokers"] if row["voter"]] == list(BROKERS)
    for row in after["partitions"]:
        assert sorted(row["in_sync"]) == list(BROKERS), row  # type: ignore[call-overload]
    refuse_lost_records(mill, writer, "again")
