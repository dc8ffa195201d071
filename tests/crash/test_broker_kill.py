"""The broker is killed under an idempotent producer: nothing is lost, nothing doubled."""

import random
import threading
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.broker import BrokerProcess
from tests.harness.seed import seeded
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "load"
PARTITIONS = 3
KILL_AFTER_MAX = 20_000
"""The broker dies after so many further acknowledgements, or fewer."""


class Load:
    """Writes numbers in order to each partition until told to stop; remembers what was accepted."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 2_000,
                "log_level": 0,
            }
        )
        self.sent = [0] * PARTITIONS
        self.acknowledged = [0] * PARTITIONS
        self.failures: list[str] = []
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping:
            for partition in range(PARTITIONS):
                try:
                    self._producer.produce(
                        TOPIC,
                        b"%d" % self.sent[partition],
                        partition=partition,
                        on_delivery=self._delivered,
                    )
                except BufferError:
                    self._producer.poll(0.01)
                    continue
                self.sent[partition] += 1
            self._producer.poll(0.0005)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]  # a Message

    def has_reached(self, count: int) -> bool:
        return sum(self.acknowledged) >= count

    def finish(self) -> None:
        self._is_stopping = True
        self._thread.join()
        assert self._producer.flush(60) == 0, "not everything was acknowledged in a minute"


def read_numbers(bootstrap: str, partition: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    numbers: list[int] = []
    try:
        while len(numbers) < count:
            messages = consumer.consume(min(count - len(numbers), 10_000), 20)
            assert messages, f"{len(numbers)} of {count} came"
            numbers.extend(int(one.value() or b"-1") for one in messages if one.error() is None)
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 10)
        assert end == count
    finally:
        consumer.close()
    return numbers


def run_kills(folder: Path, chance: random.Random, kills: int) -> None:
    settings = {"num.partitions": PARTITIONS, "log.segment.bytes": 300_000}
    with BrokerProcess(folder, settings) as broker:
        load = Load(broker.bootstrap)
        try:
            wait_until(lambda: min(load.acknowledged) > 0, 20, "the load is running")
            for _ in range(kills):
                target = sum(load.acknowledged) + chance.randint(0, KILL_AFTER_MAX)
                wait_until(partial(load.has_reached, target), 30, "the moment of the kill")
                before = sum(load.acknowledged)
                broker.kill9()
                broker.start()
                wait_until(partial(load.has_reached, before + 1), 30, "writes go on")
        finally:
            load.finish()
        assert not load.failures
        assert load.acknowledged == load.sent
        for partition in range(PARTITIONS):
            numbers = read_numbers(broker.bootstrap, partition, load.sent[partition])
            assert numbers == list(range(load.sent[partition]))


def test_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, seeded("kills"), kills=3)


@pytest.mark.slow
def test_twenty_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, seeded("twenty kills"), kills=20)
