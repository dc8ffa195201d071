"""A broker, transactional clients that behave like real ones, and faults between any two steps.

Clients retry unanswered requests, and a fatal error ends their transaction. Every step is random: a
request, a whole or partial sync, a turn of the loop, a pause, a fault. At the end the checker of
histories examines what a read_committed consumer finds. The committed offsets must be those of the
last transaction that it sees.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from protocol.errors import ErrorCode
from protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.types import TopicPartition
from protocol.wire.schema import Message
from tests.harness.checker import check
from tests.harness.history import Outcome, ReadLog, SendLog
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.txn_rig import (
    TxnProducer,
    make_coordinators,
    read_stable_records,
    settle,
)

PLACES = [TopicPartition("t", number) for number in range(3)]
TIMEOUT_MS = 30_000

AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


class Actor:
    """One client: it begins, adds partitions, writes, commits offsets and ends, one request at a
    time."""

    def __init__(self, rig: Rig, name: str, transactional_id: str, chance: random.Random) -> None:
        self.producer = TxnProducer(rig, transactional_id, timeout_ms=TIMEOUT_MS)
        self.name = name
        self.log = SendLog(name)
        self.number = 0
        """The number of the current transaction."""
        self._rig = rig
        self._chance = chance
        self._value = 0
        self._plan: list[tuple[str, TopicPartition | None]] = []
        self._request: tuple[str, Message, int, int] | None = None
        """The pending request: its kind, message, version, and the record's number in the log."""
        self._asked: Asked | None = None
        self._is_commit = True

    @property
    def group_id(self) -> str:
        return f"g-{self.name}"

    def is_answered(self) -> bool:
        """Return True if no request is pending."""
        return self._asked is None or self._asked.is_answered()

    def lost(self) -> None:
        """Mark the request as lost, because the broker restarted and will not answer it."""
        self._asked = None

    def step(self, now_ns: int) -> None:
        """Process a response, send the next request, or repeat the last one."""
        if self._asked is not None:
            if self._asked.is_answered():
                asked, self._asked = self._asked, None
                self._take(asked, now_ns)
            return
        if self._request is None:
            self._request = self._next_request(now_ns)
        _, message, version, _ = self._request
        self._asked = self._rig.send(message, version)

    def _next_request(self, now_ns: int) -> tuple[str, Message, int, int]:
        producer = self.producer
        if producer.producer_id < 0:
            return "init", producer.init_request(), 4, -1
        if not self._plan:
            self._make_plan()
        kind, place = self._plan.pop(0)
        match kind:
            case "add":
                return kind, producer.add_request(*self._places), 3, -1
            case "write":
                assert place is not None
                value = b"%s.%d.%d" % (self.name.encode(), self.number, self._value)
                self._value += 1
                number = self.log.invoke(
                    (place.topic, place.partition), value, now_ns, transaction=self.number
                )
                return kind, producer.produce_request(place, value), 9, number
            case "offsets":
                return kind, producer.offsets_request(self.group_id), 3, -1
            case "commit":
                offsets = {PLACES[0]: self.number}
                return kind, producer.commit_request(self.group_id, offsets), 3, -1
        return kind, producer.end_request(is_commit=self._is_commit), 3, -1

    def _make_plan(self) -> None:
        chance = self._chance
        self.number += 1
        self._places = chance.sample(PLACES, chance.randint(1, len(PLACES)))
        self._is_commit = chance.random() < 0.7
        work: list[tuple[str, TopicPartition | None]] = [("write", one) for one in self._places]
        work += [("write", chance.choice(self._places)) for _ in range(chance.randint(0, 2))]
        self._plan = [("add", None), *work, ("offsets", None), ("commit", None), ("end", None)]

    def _take(self, asked: Asked, now_ns: int) -> None:
        assert self._request is not None
        kind, _, _, number = self._request
        code = self._code(kind, asked)
        if code in AGAIN:
            return
        self._request = None
        if code in FENCED:
            self._give_up(kind)
            return
        assert code is ErrorCode.NONE, f"{self.name} {kind}: {code.name}"
        if kind == "init":
            self.producer.take(asked.answer)
        elif kind == "write":
            offset = asked.answer.responses[0].partition_responses[0].base_offset
            self.log.ok(number, offset, now_ns)
        elif kind == "end":
            self.log.end(self.number, Outcome.OK if self._is_commit else Outcome.FAILED)

    def _give_up(self, kind: str) -> None:
        """Stop, because another producer has taken the id. The transaction is aborted unless a
        commit was requested."""
        if self.number in self.log.ends and not (kind == "end" and self._is_commit):
            self.log.end(self.number, Outcome.FAILED)
        self._plan.clear()
        self.producer.producer_id = -1
        self.producer.sequences.clear()

    @staticmethod
    def _code(kind: str, asked: Asked) -> ErrorCode:
        answer = asked.answer
        match kind:
            case "init" | "offsets" | "end":
                return ErrorCode(answer.error_code)
            case "add":
                topic = answer.results_by_topic_v3_and_below[0]
                return ErrorCode(topic.results_by_partition[0].partition_error_code)
            case "write":
                return ErrorCode(answer.responses[0].partition_responses[0].error_code)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


class TxnWorld:
    """The broker, its clients, and the faults that can happen.

    `fault` happens at one of fifty steps. The default is a power cut.
    """

    def __init__(self, chance: random.Random, fault: Callable[[TxnWorld], None]) -> None:
        self.chance = chance
        self.fault = fault
        self.rig = Rig()
        # Files must be as old as the records in them, or producers would seem to be long silent.
        self.rig.disk.now_ms = self.rig.clock.now_ms()
        self.rig.create("t", len(PLACES))
        make_coordinators(self.rig)
        self.actors = [
            Actor(self.rig, name, transactional_id, chance)
            for name, transactional_id in (("a", "one"), ("b", "two"), ("c", "two"))
        ]
        self.reader = ReadLog("on the way", is_read_committed=True)
        self.now_ns = 0
        self.fault_count = 0

    def run(self, step_count: int) -> None:
        for _ in range(step_count):
            self.now_ns += 1
            self._step()

    def _step(self) -> None:
        chance, rig = self.chance, self.rig
        drawn = chance.random()
        if drawn < 0.60:
            # Clients b and c share an id. Client c acts rarely, because otherwise they would only
            # fence each other.
            weights = (10, 10, 1)
            chance.choices(self.actors, weights)[0].step(self.now_ns)
        elif drawn < 0.80:
            rig.flusher.sync()
        elif drawn < 0.85:
            targets = rig.flusher.begin()
            chance.choice(self.actors).step(self.now_ns)
            rig.flusher.finish(targets)
        elif drawn < 0.95:
            rig.turn()
        elif drawn < 0.97:
            self._read(chance.choice(PLACES))
        elif drawn < 0.98:
            rig.advance(chance.randint(1, TIMEOUT_MS))
        else:
            self.fault_count += 1
            self.fault(self)

    def _read(self, place: TopicPartition) -> None:
        """Continue a read_committed consumer where it was, if the partition has a leader."""
        if self.rig.broker.parts.replicas.get(*place) is None:
            return
        known = self.reader.offsets.get(place)
        for record in read_stable_records(self.rig, *place, known[-1] + 1 if known else 0):
            assert record.value is not None
            self.reader.read(place, record.offset, record.value)

    def cut(self) -> None:
        """Cut the power. The clients notice that the broker does not answer."""
        self.rig.power_cut(self.chance)
        for actor in self.actors:
            actor.lost()

    def finish(self) -> None:
        """End all faults. Open transactions expire, and decided ones complete."""
        settle(self.rig)
        self.rig.advance(10 * TIMEOUT_MS)
        settle(self.rig)

    def judge(self) -> None:
        """Check that data and offsets contain all or nothing of every transaction."""
        read = ReadLog("committed", is_full=True, is_read_committed=True)
        for place in PLACES:
            log = self.rig.broker.parts.replicas.find(*place).log
            assert log.last_stable_offset == log.log_end_offset, "something is open forever"
            read.starts[place] = 0
            for record in read_stable_records(self.rig, *place):
                assert record.value is not None
                read.read(place, record.offset, record.value)
        report = check([actor.log for actor in self.actors], [self.reader, read])
        assert report.is_clean, report.text()
        for actor in self.actors:
            seen = [
                int(value.split(b".")[1])
                for place in PLACES
                for value in read.values.get(place, ())
                if value.startswith(b"%s." % actor.name.encode())
            ]
            assert self._committed_offset(actor) == max(seen, default=-1), actor.name

    def _committed_offset(self, actor: Actor) -> int:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=actor.group_id, topics=None)],
            require_stable=True,
        )
        topics = self.rig.ask(request, 8).groups[0].topics
        if not topics:
            return -1
        one = topics[0].partitions[0]
        assert one.error_code == 0
        return int(one.committed_offset)
