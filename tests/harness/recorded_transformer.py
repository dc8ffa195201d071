"""Recorded librdkafka clients that consume, transform and produce in transactions.

A transformer reads one topic as a member of a group, writes every record once to another topic, and
commits its offsets in the same transaction. It handles errors as librdkafka's manual requires. It
retries after a retriable error. After an abortable error it aborts the transaction and reads its
records again. After a fatal error it closes the producer and creates another one with the same
transactional id.

An output value is the input value, `|`, and the number of the attempt that wrote it. So every value
is unique, and the number shows if a committed or an aborted attempt wrote it.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.history import Outcome, SendLog
from tests.harness.recorded import CLIENT
from tests.harness.transform import TRANSACTING

CALL_S = 15.0
"""The time for one attempt at a call. A retriable failure is tried again."""

TRIES_MAX = 20
BATCH_MAX = 200
ABORTED_ON_PURPOSE = 0.1
ERRORS_KEPT = 5
TRANSACTION_MS = 20_000
END_DEADLINE_S = 120.0


class DoomedTransaction(Exception):
    """The current transaction must be aborted."""


class Fenced(Exception):
    """This producer was fenced and cannot continue."""


class RecordedTransformer:
    """Transforms topic `source` into topic `target`, partition by partition."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        group: str,
        source: str,
        target: str,
        chance: random.Random,
    ) -> None:
        self.log = SendLog(name)
        self.failures: list[str] = []
        self.committed = self.aborted = self.given_again = 0
        self.ends: list[str] = []
        """The reasons for which producers had to be replaced."""
        self.errors: deque[str] = deque(maxlen=ERRORS_KEPT)
        """The last errors that its consumer got."""
        self.step = "starting"
        """Its current step, to be shown if a test waits too long."""
        self._name = name
        self._target = target
        self._bootstrap = bootstrap
        self._chance = random.Random(chance.getrandbits(64))
        self._transaction = -1
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
            }
            | CLIENT
        )
        self._consumer.subscribe([source])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"transformer-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": TRANSACTION_MS,
                    "linger.ms": 1,
                    "retry.backoff.ms": 20,
                    "retry.backoff.max.ms": 200,
                }
                | TRANSACTING
            )
            try:
                self.step = "init_transactions"
                self._call(partial(producer.init_transactions, CALL_S))
                # The last transaction of a predecessor is now committed or aborted, so the
                # committed offsets are final.
                self._rewind()
                while not self._stopping.is_set():
                    self._one_batch(producer)
            except (Fenced, DoomedTransaction) as error:
                self.ends.append(str(error))
                if len(self.ends) > TRIES_MAX:
                    self.failures.append(f"{self._name}: no producer lives long: {self.ends[-3:]}")
                    return

    def _one_batch(self, producer: Producer) -> None:
        self.step = "consume"
        given = self._consumer.consume(self._chance.randint(1, BATCH_MAX), 0.1)
        messages = [one for one in given if one.error() is None]
        self.errors.extend(str(one.error()) for one in given if one.error() is not None)
        if not messages:
            return
        self._transaction += 1
        producer.begin_transaction()
        try:
            self._transform(producer, messages)
            if self._chance.random() < ABORTED_ON_PURPOSE:
                raise DoomedTransaction("on purpose")
            self.step = "commit_transaction"
            self._call(partial(producer.commit_transaction, CALL_S))
        except DoomedTransaction:
            self._abort(producer)
        else:
            self.log.end(self._transaction, Outcome.OK)
            self.committed += 1

    def _transform(self, producer: Producer, messages: list[Any]) -> None:
        behind: dict[int, int] = {}
        for message in messages:
            if message.offset() < behind.get(message.partition(), 0):
                # After a rebalance within one `consume`, librdkafka goes back to the committed
                # offsets. The batch then has the records that it returned before, too.
                self.given_again += 1
                raise DoomedTransaction(f"offset {message.offset()} was given again")
            behind[message.partition()] = message.offset() + 1
            value = message.value() + b"|%s.%d" % (self._name.encode(), self._transaction)
            place = (self._target, message.partition())
            now_ns = time.monotonic_ns()
            number = self.log.invoke(place, value, now_ns, transaction=self._transaction)
            try:
                producer.produce(
                    place[0], value, partition=place[1], on_delivery=partial(self._sent, number)
                )
            except KafkaException as error:
                self._judge(error)
        source = messages[0].topic()
        offsets = [TopicPartition(source, partition, end) for partition, end in behind.items()]
        metadata = self._consumer.consumer_group_metadata()
        self.step = "send_offsets_to_transaction"
        self._call(partial(producer.send_offsets_to_transaction, offsets, metadata, CALL_S))

    def _sent(self, number: int, error: Any, message: Any) -> None:
        if error is None:
            self.log.ok(number, message.offset(), time.monotonic_ns())

    def _abort(self, producer: Producer) -> None:
        self.step = "abort_transaction"
        try:
            self._call(partial(producer.abort_transaction, CALL_S))
        except DoomedTransaction as error:
            raise Fenced(str(error)) from error
        self.log.end(self._transaction, Outcome.FAILED)
        self.aborted += 1
        self._rewind()

    def _rewind(self) -> None:
        """Seek to the group's committed offsets, and retry until that works."""
        while not self._stopping.is_set():
            try:
                for one in self._consumer.committed(self._consumer.assignment(), CALL_S):
                    offset = max(one.offset, 0)
                    self._consumer.seek(TopicPartition(one.topic, one.partition, offset))
                return
            except KafkaException as error:
                self.step = f"going back: {error}"
                # The broker is down, or a rebalance is under way. Records that this poll returns
                # are read again after the seek has worked.
                self._consumer.poll(0.05)

    def _call(self, call: Callable[[], object]) -> None:
        """Repeat a transactional call until it succeeds. Raises Fenced or DoomedTransaction if it
        cannot succeed."""
        for _ in range(TRIES_MAX):
            try:
                call()
                return
            except KafkaException as error:
                self.step = f"{self.step.split(':')[0]}: {error}"
                self._judge(error)
        raise Fenced("a call was tried in vain")

    def _judge(self, error: KafkaException) -> None:
        """Return if the call can be retried. Otherwise raise Fenced or DoomedTransaction."""
        reason: Any = error.args[0]
        if reason.txn_requires_abort():
            raise DoomedTransaction(str(error)) from error
        if reason.fatal() or not reason.retriable():
            raise Fenced(str(error)) from error

    def told(self) -> str:
        """Describe the consumer's position, for the message of a test whose wait fails."""
        try:
            places = self._consumer.assignment()
            stands: object = {
                (here.topic, here.partition): (here.offset, committed.offset)
                for here, committed in zip(
                    self._consumer.position(places),
                    self._consumer.committed(places, CALL_S),
                    strict=True,
                )
            }
        except KafkaException as error:
            stands = str(error)
        return (
            f"the transformer is at {self.step}; position and commit {stands}, as "
            f"{self._consumer.memberid()}; told last {list(self.errors)}"
        )

    def finish(self) -> None:
        """Stop. Commit or abort a pending transaction first."""
        self._stopping.set()
        self._thread.join(END_DEADLINE_S)
        assert not self._thread.is_alive(), f"{self._name} does not come to its end"
        self._consumer.close()

    def abandon(self) -> None:
        """Stop, even if a request has no response."""
        self._stopping.set()
