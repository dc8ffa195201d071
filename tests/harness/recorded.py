"""Recorded librdkafka clients: producers, consumers and committers that record their results.

Each client runs a thread until `finish`, even while the broker is down. Pass the recorded results
to `checker.check`, together with those of `read_everything` at the end.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.harness.history import CommitLog, Place, ReadLog, SendLog
from tests.harness.wait import wait_until

FILLER_BYTES = 4_096
VALUE_BYTES_MAX = 400
READ_DEADLINE_S = 60.0
CONSUME_S = 0.05
CONSUME_RETURNS_S = 10.0
"""A call of librdkafka's `consume` that has not returned by then is given up."""
FLUSH_DEADLINE_S = 90.0
OFFSET_UNKNOWN = -1

CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 150, "log_level": 0}
"""Settings that find a restarted broker at once, so that a campaign does not wait for back-offs."""

PRODUCER = CLIENT | {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 1,
    "message.timeout.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "queue.buffering.max.messages": 1_000,
    "batch.size": 16_000,
    "topic.metadata.refresh.interval.ms": 5_000,
}
CODECS = ("none", "lz4", "zstd", "gzip", "snappy")


class Recorded(Protocol):
    """A recorded client."""

    def finish(self) -> None:
        """Finish properly: wait for every outstanding result. The broker must be running."""

    def abandon(self) -> None:
        """Stop at once, even if no broker responds."""


class RecordedProducer:
    """Produces unique values to random partitions at a fixed rate. `places` may grow while it runs.

    `keys` is the number of different keys per partition. 0 means records without a key.
    """

    def __init__(
        self,
        bootstrap: str,
        name: str,
        places: Iterable[Place],
        chance: random.Random,
        *,
        settings: Mapping[str, Any] | None = None,
        keys: int = 0,
        per_turn: int = 10,
        pace_s: float = 0.004,
    ) -> None:
        self.log = SendLog(name)
        self.places = list(places)
        self.failures: list[str] = []
        self.acknowledged = 0
        self._chance = random.Random(chance.getrandbits(64))
        self._filler = self._chance.randbytes(FILLER_BYTES)
        self._keys = keys
        self._per_turn = per_turn
        self._pace_s = pace_s
        codec = {"compression.type": self._chance.choice(CODECS)}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "error_cb": self._failed}
            | PRODUCER
            | codec
            | dict(settings or {})
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer-{name}")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for _ in range(self._per_turn):
                self._send_one()
            self._producer.poll(self._pace_s)

    def _send_one(self) -> None:
        chance = self._chance
        place = chance.choice(self.places)
        number = len(self.log)
        start = chance.randrange(FILLER_BYTES - VALUE_BYTES_MAX)
        filler = self._filler[start : start + chance.randrange(VALUE_BYTES_MAX)]
        value = b"%s:%d:" % (self.log.process.encode(), number) + filler
        key = b"k%d" % chance.randrange(self._keys) if self._keys else None
        while not self._stopping.is_set():
            now_ns = time.monotonic_ns()
            try:
                self._producer.produce(
                    place[0], value, key, partition=place[1], on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.01)
                continue
            self.log.invoke(place, value, now_ns, key=key)
            return

    def _delivered(self, error: Any, message: Any) -> None:
        number = int(message.value().split(b":", 2)[1])
        if error is None:
            offset = message.offset()
            self.log.ok(number, OFFSET_UNKNOWN if offset is None else offset, time.monotonic_ns())
            self.acknowledged += 1
        else:
            # The record may be in the log, so its outcome stays UNKNOWN. The test decides if such
            # a failure is allowed.
            self.failures.append(f"{self.log.process} #{number}: {error}")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"{self.log.process}: fatal: {error}")

    def finish(self) -> None:
        """Stop sending and wait until every record is acknowledged or has failed."""
        self.abandon()
        rest = self._producer.flush(FLUSH_DEADLINE_S)
        assert rest == 0, f"{self.log.process}: {rest} records have no answer yet"

    def abandon(self) -> None:
        """Stop sending, even if requests still wait for an answer."""
        self._stopping.set()
        self._thread.join()


class RecordedConsumer:
    """Reads partitions from their start while the broker stops and starts."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        places: Iterable[Place],
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        base = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 20,
            "isolation.level": "read_uncommitted",
        }
        options = base | CLIENT | dict(settings or {})
        self.log = ReadLog(name, is_read_committed=options["isolation.level"] == "read_committed")
        self.count = 0
        self.errors: Counter[str] = Counter()
        self._asked_s = time.monotonic()
        self._consumer = Consumer(options)
        self._consumer.assign([TopicPartition(*place, 0) for place in places])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"consumer-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._asked_s = time.monotonic()
            for message in self._consumer.consume(1_000, CONSUME_S):
                error = message.error()
                if error is None:
                    note(self.log, message)
                    self.count += 1
                else:
                    self.errors[error.name()] += 1

    def told(self) -> str:
        """Describe how long the reader's last call has lasted, and its errors, for a failed
        test."""
        since_s = time.monotonic() - self._asked_s
        return f"{self.log.process} asked {since_s:.2f} s ago, errors {dict(self.errors)}"

    def finish(self) -> None:
        """Stop reading. Raises AssertionError if librdkafka's `consume` does not return."""
        self._stopping.set()
        self._thread.join(CONSUME_RETURNS_S)
        assert not self._thread.is_alive(), f"`consume` does not return: {self.told()}"
        self._consumer.close()

    def abandon(self) -> None:
        """Stop reading. If `consume` does not return, leave the thread and its consumer running."""
        with suppress(AssertionError):
            self.finish()


class RecordedCommitter:
    """Commits growing offsets for one group without joining it, and reads them back."""

    def __init__(self, bootstrap: str, group: str, places: Iterable[Place]) -> None:
        self.log = CommitLog(group)
        self.acknowledged = 0
        self.errors: set[str] = set()
        self._places = list(places)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "socket.timeout.ms": 2_000,
            }
            | CLIENT
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"committer-{group}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        offset = 0
        while not self._stopping.is_set():
            offset += 1
            self._commit(offset)
            with suppress(KafkaException):
                self._look(2.0)

    def _commit(self, offset: int) -> None:
        asked = [TopicPartition(*place, offset) for place in self._places]
        for place in self._places:
            self.log.invoke(place, offset)
        try:
            answers = self._consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            self.errors.add(error.args[0].name())
            return
        for one in answers or ():
            if one.error is None:
                self.log.ok((one.topic, one.partition), offset)
                self.acknowledged += 1
            else:
                self.errors.add(one.error.name())

    def _look(self, timeout_s: float) -> None:
        for one in self._consumer.committed([TopicPartition(*p) for p in self._places], timeout_s):
            if one.error is None:
                self.log.saw((one.topic, one.partition), max(one.offset, -1))

    def finish(self) -> None:
        """Stop committing, and read the committed offsets back once more."""
        self._stopping.set()
        self._thread.join()
        self._look(READ_DEADLINE_S)
        self._consumer.close()

    def abandon(self) -> None:
        """Stop committing, but do not wait for a commit that has no response yet."""
        self._stopping.set()


def note(log: ReadLog, message: Any) -> None:
    """Record a record that a consumer got."""
    place = (message.topic(), message.partition())
    log.read(place, message.offset(), message.value() or b"", message.key())


def read_everything(
    bootstrap: str,
    places: Iterable[Place],
    *,
    name: str = "last",
    is_read_committed: bool = False,
) -> ReadLog:
    """Read every partition from its start to its end after all writers have stopped.

    Retention and DeleteRecords can still move the log start offset. If it moves while this
    reads, read the partition again from the new start.
    """
    log = ReadLog(name, is_full=True, is_read_committed=is_read_committed)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if is_read_committed else "read_uncommitted",
        }
        | CLIENT
    )
    try:
        open_places = set(places)
        for place in open_places:
            log.starts[place] = start_of(consumer, place)
        consumer.assign([TopicPartition(*place, log.starts[place]) for place in open_places])
        end = time.monotonic() + READ_DEADLINE_S
        while open_places:
            assert time.monotonic() < end, f"not read to their ends: {sorted(open_places)}"
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    note(log, message)
                    continue
                topic, partition = message.topic(), message.partition()
                assert topic is not None and partition is not None, error
                place = (topic, partition)
                if error.code() == KafkaError._PARTITION_EOF:
                    open_places.discard(place)
                    continue
                start = start_of(consumer, place)
                if error.code() != KafkaError._AUTO_OFFSET_RESET or start <= log.starts[place]:
                    raise AssertionError(f"{place}: {error}")
                log.forget(place)
                log.starts[place] = start
                # After this error librdkafka cannot seek in the partition, so assign it again.
                consumer.incremental_unassign([TopicPartition(*place)])
                consumer.incremental_assign([TopicPartition(*place, start)])
    finally:
        consumer.close()
    return log


def start_of(consumer: Consumer, place: Place) -> int:
    """Return the log start offset. Wait for it, because a log created on a full disk comes into
    service a moment later."""
    low, _ = wait_until(
        partial(consumer.get_watermark_offsets, TopicPartition(*place), 5.0),
        READ_DEADLINE_S,
        f"{place} is in service",
    )
    return int(low)
