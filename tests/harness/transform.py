"""A librdkafka client that consumes, transforms and produces in transactions while a test kills or
restarts the broker.

    with Transformer(bootstrap, "in", "out") as transformer:
        broker.kill9(); broker.start()
        wait_until(lambda: transformer.committed_count >= 1_000, ...)
    assert_exactly_once(bootstrap, "in", "out")

It handles errors as librdkafka's manual requires. It retries after a retriable error. After an
abortable error it aborts the transaction and seeks to the committed offsets. After a fatal error it
creates another producer with the same transactional id.
"""

import threading
from collections import Counter
from types import TracebackType
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.harness.recorded import CLIENT

PER_TRANSACTION_MAX = 50
CALL_S = 10.0
"""The time that one call to a coordinator may take before it is repeated."""

READ_DEADLINE_S = 30.0

TRANSACTING = CLIENT | {
    # When all brokers are down, or metadata no longer name a broker, librdkafka 2.10 and later
    # forgets these brokers. But it still waits for the group's coordinator among the forgotten
    # ones, and hangs in send_offsets_to_transaction until some connection changes its state
    # (librdkafka issue 5511). So let it forget no broker, and close idle connections, which changes
    # their state.
    "metadata.recovery.strategy": "none",
    "connections.max.idle.ms": 3_000,
}
"""The settings of a librdkafka client that transforms while brokers die."""


class Transformer:
    """One worker: a consumer in a group, and a transactional producer."""

    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        *,
        name: str = "worker",
        abort_every: int = 7,
    ) -> None:
        self.committed_count = 0
        """The number of input records whose transaction is known to be committed."""
        self.counts: Counter[str] = Counter()
        """Commits, aborts and new producers."""
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._target = target
        self._name = name
        self._abort_every = abort_every
        self._producer: Producer | None = None
        self._consumer = Consumer(
            TRANSACTING
            | {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 50,
            }
        )
        self._assignment: list[TopicPartition] = []
        # Track the assignment here, because `Consumer.assignment()` holds Python's global lock
        # while it waits for librdkafka.
        self._consumer.subscribe([source], on_assign=self._assigned, on_revoke=self._revoked)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"transformer-{name}")
        self._thread.start()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment = partitions

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment = []

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                messages = [
                    one
                    for one in self._consumer.consume(PER_TRANSACTION_MAX, 0.1)
                    if one.error() is None
                ]
                if messages:
                    self._transform(messages)
        except BaseException as error:  # the test that waits for this thread reports it
            self.failure = error

    def _transform(self, messages: list[Message]) -> None:
        try:
            self._one_transaction(messages)
        except KafkaException as error:
            self._recover(error.args[0])
            self._rewind()

    def _one_transaction(self, messages: list[Message]) -> None:
        producer = self._ready_producer()
        producer.begin_transaction()
        for message in messages:
            place = f"{message.partition()}:{message.offset()}:"
            value = place.encode() + (message.value() or b"")
            producer.produce(self._target, value, message.key(), on_delivery=lambda *_: None)
            producer.poll(0)
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        source = messages[0].topic()
        assert source is not None
        self._again(
            lambda: producer.send_offsets_to_transaction(
                [TopicPartition(source, partition, offset) for partition, offset in ends.items()],
                self._consumer.consumer_group_metadata(),
                CALL_S,
            )
        )
        number = self.counts["commits"] + self.counts["aborts"]
        if self._abort_every and number % self._abort_every == self._abort_every - 1:
            self._abort(producer)
            self._rewind()
            return
        self._again(lambda: producer.commit_transaction(CALL_S))
        self.counts["commits"] += 1
        self.committed_count += len(messages)

    def _abort(self, producer: Producer) -> None:
        self._again(lambda: producer.abort_transaction(CALL_S))
        self.counts["aborts"] += 1

    def _again(self, call: Any) -> None:
        """Repeat a call until it succeeds or raises an error that is not retriable."""
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable() or self._stopping.is_set():
                    raise
            else:
                return

    def _recover(self, error: KafkaError) -> None:
        """Abort the transaction if possible. Otherwise drop the producer, so a new one is
        created."""
        producer = self._producer
        if producer is not None and error.txn_requires_abort():
            try:
                self._abort(producer)
            except KafkaException as second:
                error = second.args[0]
            else:
                return
        self.counts[f"given up for {error.name()}"] += 1
        self._producer = None

    def _ready_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                TRANSACTING
                | {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": 60_000,
                    "linger.ms": 1,
                }
            )
            self._again(lambda: producer.init_transactions(CALL_S))
            self.counts["producers"] += 1
            self._producer = producer
        return self._producer

    def _rewind(self) -> None:
        """Seek to the committed offsets, so that the records of the transaction are read again."""
        while not self._stopping.is_set():
            try:
                if not self._assignment:
                    return
                for one in self._consumer.committed(self._assignment, CALL_S):
                    if one.error is not None:
                        raise KafkaException(one.error)
                    offset = max(one.offset, 0)
                    self._consumer.seek(TopicPartition(one.topic, one.partition, offset))
            except KafkaException:
                self._stopping.wait(0.05)
            else:
                return

    def stop(self) -> None:
        """Stop. A pending transaction stays open."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def __enter__(self) -> "Transformer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def read_committed(bootstrap: str, topic: str, partition_count: int) -> dict[int, list[bytes]]:
    """Return everything that a read_committed client finds in a topic, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partition_count)])
    found: dict[int, list[bytes]] = {number: [] for number in range(partition_count)}
    ended: set[int] = set()
    while len(ended) < partition_count:
        message = consumer.poll(READ_DEADLINE_S)
        assert message is not None, f"{topic}: no end of partitions within {READ_DEADLINE_S} s"
        partition = message.partition() or 0
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            ended.add(partition)
        elif error is None:
            found[partition].append(message.value() or b"")
    consumer.close()
    return found


def assert_exactly_once(bootstrap: str, source: str, target: str, partition_count: int) -> int:
    """Check that every input record is in the output once, and in order per partition. Return
    the count."""
    wanted = {
        (partition, value)
        for partition, values in read_committed(bootstrap, source, partition_count).items()
        for value in values
    }
    found: Counter[tuple[int, bytes]] = Counter()
    for values in read_committed(bootstrap, target, partition_count).values():
        last: dict[int, int] = {}
        for one in values:
            partition, offset, value = one.split(b":", 2)
            number = int(partition)
            assert int(offset) > last.get(number, -1), f"{one!r} stands behind offset {last}"
            last[number] = int(offset)
            found[number, value] += 1
    doubled = [one for one, count in found.items() if count > 1]
    assert not doubled, f"{len(doubled)} doubled: {doubled[:5]}"
    lost = wanted - found.keys()
    assert not lost, f"{len(lost)} lost: {sorted(lost)[:5]}"
    assert not found.keys() - wanted, "made up"
    return len(found)
