"""Writes ascending numbers with acks=all until it is stopped, so that a test can count them all."""

import threading

from confluent_kafka import KafkaError, Producer

PAUSE_S = 0.002
FLUSH_S = 60.0


class NumberWriter(threading.Thread):
    """An idempotent producer of the numbers from 0 on, in turn to the partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        super().__init__()
        self.written = 0
        self.acknowledged = 0
        self.errors: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._ends = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )

    def run(self) -> None:
        while not self._ends.wait(PAUSE_S):
            self._producer.produce(
                self._topic,
                str(self.written),
                partition=self.written % self._partitions,
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
            self.written += 1
        assert self._producer.flush(FLUSH_S) == 0

    def stop(self) -> None:
        """Stop writing, and wait until every record is acknowledged or has failed."""
        self._ends.set()
        self.join()

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged += 1
