"""A mill of three brokers gets a fourth one, gives up one of the first three, and gets it again."""

import json
import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.mill import TempMill, brokers_only, temp_mill
from tests.harness.collector import TopicReader
from tests.harness.number_writer import NumberWriter
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow]

PARTITIONS = 3


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    with temp_mill(tmp_path_factory.mktemp("come") / "mill") as made:
        made.write_config(brokers_only("3"))
        yield made


def pids(mill: TempMill) -> dict[str, int]:
    return {name: row["pid"] for name, row in mill.status().items() if name.startswith("broker-")}


def voters(mill: TempMill) -> set[int]:
    told = mill.run("broker", "describe", "--json")
    assert told.code == 0, told.err
    rows = json.loads(told.out)["data"]["brokers"]
    return {row["broker"] for row in rows if row["voter"]}


def test_brokers_come_and_go_and_no_record_is_lost(mill: TempMill) -> None:
    mill.up()
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1, 3)})
    admin.create_topics([NewTopic("kept", PARTITIONS, 3)])["kept"].result(30)
    writer = NumberWriter(mill.bootstrap(1, 3), "kept", PARTITIONS)
    writer.start()
    before = pids(mill)

    refused = mill.run("broker", "add", "4", "--yes")
    assert refused.code == 3
    assert "Write `brokers: [1, 2, 3, 4]` below `cluster:`" in refused.err
    mill.write_config(brokers_only("[1, 2, 3, 4]"))
    applied = mill.run("up", "--apply")
    assert applied.code == 0, applied.err
    assert {name: pid for name, pid in pids(mill).items() if name != "broker-4"} == before
    added = mill.run("broker", "add", "4", "--yes")
    assert added.code == 0, added.err
    assert voters(mill) == {1, 2, 3}

    mill.write_config(brokers_only("[1, 3, 4]"))
    refused = mill.run("up", "--apply")
    assert refused.code != 0
    assert "`./millrace broker remove 2`" in refused.err
    removed = mill.run("broker", "remove", "2", "--yes")
    assert removed.code == 0, removed.err
    assert voters(mill) == {1, 3, 4}
    applied = mill.run("up", "--apply")
    assert applied.code == 0, applied.err
    assert set(pids(mill)) == {"broker-1", "broker-3", "broker-4"}

    # The id comes back with an empty folder, and takes part again.
    shutil.rmtree(mill.home.data / "broker-2")
    mill.write_config(brokers_only("[1, 2, 3, 4]"))
    applied = mill.run("up", "--apply")
    assert applied.code == 0, applied.err
    again = mill.run("broker", "add", "2", "--yes")
    assert again.code == 0, again.err
    assert "let broker 2 get new replicas" in again.err
    assert voters(mill) == {1, 3, 4}

    writer.stop()
    assert writer.errors == []
    reader = TopicReader(mill.bootstrap(1, 3), "kept", list(range(PARTITIONS)))
    found = sorted(int(one) for one in reader.values(writer.written))
    reader.close()
    assert found == list(range(writer.written))
    assert mill.run("down").code == 0
    started = mill.up()
    assert set(pids(mill)) == {f"broker-{one}" for one in (1, 2, 3, 4)}, started.err
    wait_until(lambda: voters(mill) == {1, 3, 4}, 30, "the voters are those of before")
