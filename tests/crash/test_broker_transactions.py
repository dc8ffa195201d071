"""Exactly-once copying from one topic to another while the broker is killed repeatedly."""

import random
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.broker import BrokerProcess
from tests.harness.java import NEWEST, SPARKS, JavaClients, client_version
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.transform import Transformer, assert_exactly_once
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PARTITIONS = 3
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    # Small segments roll often, so that the cleaner has work in the coordinators' topics.
    "offsets.topic.segment.bytes": 65_536,
    "transaction.state.log.segment.bytes": 65_536,
}
PROGRESS_DEADLINE_S = 60.0

KILLS_SHORT, RECORDS_SHORT = 2, 1_000
KILLS_LONG, RECORDS_LONG = 60, 60_000
KILLS_JAVA, RECORDS_JAVA = 12, 20_000


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=-1, key=b"%d" % number)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def kill_between(
    broker: BrokerProcess,
    chance: random.Random,
    committed: Callable[[], int],
    kills: int,
    records: int,
) -> None:
    """Kill the broker this number of times, spread over the work. Then wait until the work is
    done."""

    def has_committed(count: int) -> bool:
        return committed() >= count

    for number in range(1, kills + 1):
        least = (number - 1) * records // (kills + 1)
        goal = chance.randint(least, number * records // (kills + 1))
        wait_until(partial(has_committed, goal), PROGRESS_DEADLINE_S, f"{goal} committed")
        broker.kill9()
        broker.start()
    wait_until(partial(has_committed, records), PROGRESS_DEADLINE_S, "all committed")


def run(folder: Path, kills: int, records: int, name: str) -> None:
    chance = seeded(name)
    with BrokerProcess(folder, SETTINGS) as broker:
        fill(broker, "in", records)
        with Transformer(broker.bootstrap, "in", "out") as transformer:

            def committed() -> int:
                if transformer.failure is not None:
                    raise SystemExit(f"the transformer ended: {transformer.failure!r}")
                return transformer.committed_count

            kill_between(broker, chance, committed, kills, records)
        count = assert_exactly_once(broker.bootstrap, "in", "out", PARTITIONS)
    assert count == records
    tell(f"{name}: {kills} kills, {records} records exactly once, {dict(transformer.counts)}")


def test_librdkafka_transforms_exactly_once_over_kills(tmp_path: Path) -> None:
    run(tmp_path, KILLS_SHORT, RECORDS_SHORT, "transform")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_librdkafka_transforms_exactly_once_over_many_kills(tmp_path: Path) -> None:
    run(tmp_path, KILLS_LONG, RECORDS_LONG, "long transform")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("version", [SPARKS, NEWEST])
def test_java_transforms_exactly_once_over_kills(tmp_path: Path, version: str) -> None:
    chance = seeded("Java's transform")
    java = JavaClients(tmp_path / "java", version)
    said = tmp_path / "java" / "said.txt"
    arguments = ("in", "out", str(RECORDS_JAVA))
    with BrokerProcess(tmp_path, SETTINGS) as broker, said.open("wb") as output:
        fill(broker, "in", RECORDS_JAVA)
        program = subprocess.Popen(
            java.command("Transform", broker.bootstrap, *arguments),
            stdout=output,
            stderr=subprocess.STDOUT,
        )

        def committed() -> int:
            found = re.findall(r"^committed (\d+)$", said.read_text(), re.MULTILINE)
            if program.poll() not in (None, 0):
                raise SystemExit(f"the program ended: {said.read_text()[-3_000:]}")
            return int(found[-1]) if found else 0

        try:
            kill_between(broker, chance, committed, KILLS_JAVA, RECORDS_JAVA)
            assert program.wait(PROGRESS_DEADLINE_S) == 0
        finally:
            program.kill()
            program.wait()
        assert assert_exactly_once(broker.bootstrap, "in", "out", PARTITIONS) == RECORDS_JAVA
    gave_up = said.read_text().count("gave up")
    name = f"kafka-clients {client_version(version)}"
    tell(f"{name}: {KILLS_JAVA} kills, {RECORDS_JAVA} records exactly once, {gave_up} given up")
