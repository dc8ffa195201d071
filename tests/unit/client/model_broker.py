"""A double of a partition leader that follows Kafka's rules, and of a network that loses messages
at random.

The model keeps the log and, for each producer id, the epoch and the last five batches. It checks
sequence numbers by Kafka's rules.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.client.pending import BatchDelivered, BatchFailed, Effect, PendingBatch
from protocol.client.producer_core import ProducerCore
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord

POISON = b"poison"
REMEMBERED_BATCHES = 5
SEQUENCE_MODULUS = 2**31

REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
TOO_LATE = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


@dataclass
class _Known:
    """The producer epoch and the last batches of one producer id, as the leader remembers them."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES)
    )


class ModelPartition:
    """The log of one partition, and the state of each producer that wrote to it."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.known: dict[int, _Known] = {}

    def append(self, sent: "Sent") -> tuple[ErrorCode, int]:
        """Append one batch by Kafka's rules. Return the error code and the base offset of the
        response."""
        if POISON in sent.values:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        known = self.known.get(sent.producer_id)
        if sent.producer_id >= 0:
            last = (sent.base_sequence + len(sent.values) - 1) % SEQUENCE_MODULUS
            if known is None:
                known = self.known[sent.producer_id] = _Known(sent.producer_epoch)
            elif sent.producer_epoch < known.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            elif sent.producer_epoch > known.epoch:
                if sent.base_sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                known = self.known[sent.producer_id] = _Known(sent.producer_epoch)
            else:
                for first, final, base_offset in known.batches:
                    if (first, final) == (sent.base_sequence, last):
                        return ErrorCode.NONE, base_offset
                expected = (known.batches[-1][1] + 1) % SEQUENCE_MODULUS
                if sent.base_sequence != expected:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.batches.append((sent.base_sequence, last, len(self.log)))
        base_offset = len(self.log)
        self.log.extend(sent.values)
        return ErrorCode.NONE, base_offset


@dataclass(frozen=True)
class Sent:
    """A copy of a batch at the time of its request. Later changes of its producer id do not affect
    it."""

    batch: PendingBatch
    values: tuple[bytes, ...]
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @classmethod
    def of(cls, batch: PendingBatch) -> "Sent":
        values = tuple(r.value or b"" for r in batch.records)
        return cls(batch, values, batch.producer_id, batch.producer_epoch, batch.base_sequence)


class Connection:
    """A connection that delivers requests one way and responses the other way, both in order."""

    def __init__(self) -> None:
        self.requests: deque[list[Sent]] = deque()
        self.answers: deque[list[tuple[Sent, ErrorCode, int]]] = deque()


class World:
    """One producer core, partitions that are led by one of two brokers, and random faults.

    The two brokers share their logs, as replicas do. A broker that stops leading refuses the
    requests that it has not handled yet. Responses that it sent before can still arrive.
    """

    def __init__(self, core: ProducerCore, rng: random.Random, fault_rate: float) -> None:
        self.core = core
        self.rng = rng
        self.fault_rate = fault_rate
        self.now_ms = 0
        self.next_producer_id = 1000
        self.partitions: dict[TopicPartition, ModelPartition] = {}
        self.leading = Connection()
        self.other = Connection()
        self.delivered: dict[bytes, int] = {}
        self.failed: dict[bytes, Exception] = {}
        self.restarts = 0

    def append(self, tp: TopicPartition, value: bytes, content: bytes | None = None) -> None:
        self.core.append(tp, NewRecord(None, content or value, 0), value, self.now_ms)

    def step(self) -> None:
        """Perform one random event."""
        connection = self.leading if self.rng.random() < 0.8 else self.other
        actions = [
            self.send,
            lambda: self.handle(connection),
            lambda: self.answer(connection),
            self.pass_time,
        ]
        if self.rng.random() < self.fault_rate:
            actions = [lambda: self.lose(connection), self.move]
        self.rng.choice(actions)()

    def settle(self, steps_max: int = 20_000) -> None:
        """Run without further faults until every batch has a result."""
        self.fault_rate = 0.0
        for _ in range(steps_max):
            if self.core.is_empty:
                return
            self.send()
            for connection in (self.leading, self.other):
                self.handle(connection)
                self.answer(connection)
            self.pass_time()
        raise AssertionError("records without an outcome although nothing fails any more")

    def send(self) -> None:
        if self.core.needs_producer_id:
            self.next_producer_id += 1
            self.core.set_producer_id(self.next_producer_id, 0)
        connection = self.leading
        in_flight = len(connection.requests) + len(connection.answers)
        if in_flight >= self.core.settings.max_in_flight:
            return
        batches = self.core.drain(self.core.ready(self.now_ms), self.now_ms, 1 << 20)
        if batches:
            connection.requests.append([Sent.of(batch) for batch in batches])

    def handle(self, connection: Connection) -> None:
        """Let the broker handle the next request on the connection."""
        if not connection.requests:
            return
        answer = []
        for sent in connection.requests.popleft():
            partition = self.partitions.setdefault(sent.batch.tp, ModelPartition())
            if connection is not self.leading:
                answer.append((sent, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))
                continue
            if self.rng.random() < self.fault_rate:
                answer.append((sent, self.rng.choice(REFUSALS), -1))
                continue
            code, base_offset = partition.append(sent)
            if not code and self.rng.random() < self.fault_rate:
                code, base_offset = self.rng.choice(TOO_LATE), -1
            answer.append((sent, code, base_offset))
        connection.answers.append(answer)

    def answer(self, connection: Connection) -> None:
        if not connection.answers:
            return
        for sent, code, base_offset in connection.answers.popleft():
            if code:
                self.perform(self.core.on_refused(sent.batch, code, "", self.now_ms))
            else:
                self.perform(self.core.on_delivered(sent.batch, base_offset, -1))

    def lose(self, connection: Connection) -> None:
        """Drop all open requests of the connection. The responses of handled requests are lost, and
        the other requests are never handled."""
        for answer in connection.answers:
            for sent, _, _ in answer:
                self.core.on_connection_lost(sent.batch, self.now_ms)
        for request in connection.requests:
            for sent in request:
                self.core.on_connection_lost(sent.batch, self.now_ms)
        connection.answers.clear()
        connection.requests.clear()

    def move(self) -> None:
        """Make the other broker the leader."""
        self.leading, self.other = self.other, self.leading

    def pass_time(self) -> None:
        self.now_ms += self.rng.randrange(1, 40)
        self.perform(self.core.expire(self.now_ms))

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, BatchDelivered):
                for index, token in enumerate(effect.batch.tokens):
                    assert isinstance(token, bytes)
                    assert token not in self.delivered
                    self.delivered[token] = effect.base_offset + index
            elif isinstance(effect, BatchFailed):
                for token in effect.batch.tokens:
                    assert isinstance(token, bytes)
                    assert token not in self.failed
                    self.failed[token] = effect.error
            else:
                self.restarts += 1
