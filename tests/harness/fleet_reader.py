"""Reads the lines of a fleet of collectors, and judges them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.harness.fleet_lines import FleetJudge
from tests.harness.processes import Server
from tests.harness.wait import wait_until

PATIENCE_S = 300.0
"""The longest time without a new line until all lines have arrived."""


class FleetReader(Server):
    """A thread that reads a topic as a read_committed consumer does."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.judge = FleetJudge()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "fleet",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._ends = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="fleet reader")

    def _read(self) -> None:
        try:
            while not self._ends.is_set():
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                value = message.value()
                assert value is not None
                self.judge.note(value, time.time_ns() // 1_000_000)
        except BaseException as error:
            self._error = error

    @property
    def has_ended(self) -> bool:
        """True if a line was wrong, or the thread has failed. `check` raises the reason."""
        return self._error is not None or bool(self.judge.faults)

    def check(self) -> None:
        """Raise the error that has ended the thread, or AssertionError for a wrong line."""
        if self._error is not None:
            raise self._error
        assert not self.judge.faults, self.judge.faults

    def wait_for_all(self, written: Mapping[str, int], patience_s: float = PATIENCE_S) -> None:
        """Wait until every written line has arrived: `written` has their number by collector.

        Raises what `check` raises, or AssertionError if no line arrives for `patience_s`.
        """
        wait_until(
            lambda: self.has_ended or self.judge.has_all(written),
            patience_s,
            "every line",
            progress=lambda: self.judge.total,
        )
        self.check()

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.close()
