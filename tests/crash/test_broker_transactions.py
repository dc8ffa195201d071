"""Exactly once, from a topic to another, while the broker is killed every few moments."""

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.broker import BrokerProcess
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.transform import Transformer, assert_exactly_once
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PARTITIONS = 3
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    # Small, so that segments roll and the cleaner has work in the coordinators' topics.
    "offsets.topic.segment.bytes": 65_536,
    "transaction.state.log.segment.bytes": 65_536,
}
PROGRESS_DEADLINE_S = 60.0

KILLS_SHORT, RECORDS_SHORT = 3, 1_500
KILLS_LONG, RECORDS_LONG = 60, 60_000


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=-1, key=b"%d" % number)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def run(folder: Path, kills: int, records: int, name: str) -> None:
    chance = seeded(name)
    with BrokerProcess(folder, SETTINGS) as broker:
        fill(broker, "in", records)
        with Transformer(broker.bootstrap, "in", "out") as transformer:

            def has_committed(count: int) -> bool:
                if transformer.failure is not None:
                    raise SystemExit(f"the transformer ended: {transformer.failure!r}")
                return transformer.committed_count >= count

            for number in range(1, kills + 1):
                least = (number - 1) * records // (kills + 1)
                goal = chance.randint(least, number * records // (kills + 1))
                wait_until(partial(has_committed, goal), PROGRESS_DEADLINE_S, f"{goal} committed")
                broker.kill9()
                broker.start()
            wait_until(partial(has_committed, records), PROGRESS_DEADLINE_S, "all committed")
        count = assert_exactly_once(broker.bootstrap, "in", "out", PARTITIONS)
    assert count == records
    tell(f"{name}: {kills} kills, {records} records exactly once, {dict(transformer.counts)}")


def test_librdkafka_transforms_exactly_once_over_kills(tmp_path: Path) -> None:
    run(tmp_path, KILLS_SHORT, RECORDS_SHORT, "transform")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_librdkafka_transforms_exactly_once_over_many_kills(tmp_path: Path) -> None:
    run(tmp_path, KILLS_LONG, RECORDS_LONG, "long transform")
