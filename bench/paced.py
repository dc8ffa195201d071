"""A thread that writes records to a topic at a fixed rate while something else is measured."""

import threading
import time
from abc import ABC, abstractmethod
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import Message, Producer

from bench.librdkafka import TIMEOUT_S, Lost


class PacedRecords(ABC):
    """Writes a record every `pace_s` seconds within a `with` block, to one partition after the
    other.

    After a pause, the thread sends all overdue records at once. So the average rate is kept.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int, pace_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._pace_s = pace_s
        self._refused: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paced records", daemon=True)

    @abstractmethod
    def _value(self, number: int) -> bytes:
        """Return the value of a record."""

    @abstractmethod
    def _on_acknowledged(self, sent_s: float, message: Message) -> None:
        """Handle an acknowledged record. `sent_s` is the time at which it was written."""

    def check_refused(self) -> None:
        """Raise Lost if a record was refused."""
        if self._refused:
            raise Lost(f"the broker refused a record: {self._refused[0]}")

    def finish_writing(self) -> None:
        """End the thread. Raises Lost unless all records were acknowledged."""
        self._end()
        left = self._producer.flush(TIMEOUT_S)
        if left or self._refused:
            raise Lost(
                f"{left} records were not acknowledged; the first refusal is {self._refused[:1]}"
            )

    def _end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        began_s, number = time.perf_counter(), 0
        while not self._ends.is_set():
            now_s = time.perf_counter()
            while began_s + number * self._pace_s <= now_s:
                self._producer.produce(
                    self._topic,
                    self._value(number),
                    partition=number % self._partitions,
                    on_delivery=partial(self._on_delivery, now_s),
                )
                number += 1
            self._producer.poll(max(0.0, began_s + number * self._pace_s - time.perf_counter()))

    def _on_delivery(self, sent_s: float, error: object, message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))
        else:
            self._on_acknowledged(sent_s, message)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
