"""Records are sent at a fixed rate, here to the mock cluster inside librdkafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Message, Producer

from bench.librdkafka import Lost
from bench.paced import PacedRecords
from tests.harness.wait import wait_until

PARTITIONS = 3
PACE_S = 0.001


class Written(PacedRecords):
    def __init__(self, settings: dict[str, str | int]) -> None:
        self.took_s: list[float] = []
        self.partitions: set[int | None] = set()
        producer = Producer({"log_level": 0, **settings})
        super().__init__(producer, "t", PARTITIONS, PACE_S)

    def _value(self, number: int) -> bytes:
        return b"%d" % number

    def _on_acknowledged(self, sent_s: float, message: Message) -> None:
        self.took_s.append(time.perf_counter() - sent_s)
        self.partitions.add(message.partition())


def test_every_record_is_acknowledged_when_the_writing_is_finished() -> None:
    began_s = time.perf_counter()
    with Written({"test.mock.num.brokers": 1}) as load:
        wait_until(lambda: len(load.took_s) > 100, 30, "acknowledgements")
        load.finish_writing()
        seconds = time.perf_counter() - began_s
    assert load.partitions == set(range(PARTITIONS))
    assert min(load.took_s) > 0
    assert len(load.took_s) <= seconds / PACE_S + 1
    load.check_refused()


def test_a_refused_record_is_a_loss() -> None:
    nothing_listens: dict[str, str | int] = {
        "bootstrap.servers": "127.0.0.1:1",
        "message.timeout.ms": 50,
    }
    with Written(nothing_listens) as load:
        wait_until(lambda: bool(load._refused), 30, "a refusal")
        with pytest.raises(Lost, match="refused a record: "):
            load.check_refused()
        with pytest.raises(Lost, match="were not acknowledged; the first refusal"):
            load.finish_writing()
