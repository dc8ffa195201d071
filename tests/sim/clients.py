"""Clients of simulated brokers: scripts that send requests, wait and retry over faulty links.

A script is a generator. To send a request, it yields the request and gets the response, or None if
no response will come. To wait, it yields a number of milliseconds. Each client is a process on a
separate host.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

from broker.sessions.peers import LinkKind, Peers
from broker.world import Address, End
from protocol.client.fetch_core import IsolationLevel, read_partition
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from protocol.wire.schema import Message
from tests.sim.network import Network
from tests.sim.sides import LAST_VERSIONS

ANSWER_MS_MAX = 2_000
"""The time after which a client gives up a request, whose outcome is then unknown."""

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""

PAUSE_MS = 20
"""The pause before a client retries."""

Script = Generator[Message | int, Any, None]
Asking = Generator[Message | int, Any, Any]
"""A part of a script, with a return value."""


class Client:
    """A running script. It sends each request to the broker that `find` returns, or without `find`
    to the first broker."""

    def __init__(
        self,
        network: Network,
        host: str,
        brokers: Mapping[int, Address],
        script: Script,
        find: Callable[[Message], int] | None = None,
    ) -> None:
        self.host = host
        self.is_done = False
        self.unanswered_count = 0
        self._world = network.world(host)
        self._peers = Peers(self._world, host, brokers, versions=LAST_VERSIONS)
        self._find = find or (lambda request: next(iter(brokers)))
        self._script = script
        self._go_on(None)

    def _go_on(self, value: Any) -> None:
        try:
            step = self._script.send(value)
        except StopIteration:
            self.is_done = True
            return
        if isinstance(step, int):
            self._world.later(step, lambda: self._go_on(None))
            return
        self.unanswered_count += 1
        self._peers.ask(
            self._find(step),
            LinkKind.DATA,
            step,
            self._world.clock.monotonic_ms() + ANSWER_MS_MAX,
            self._answered,
            self._failed,
        )

    def _answered(self, answer: Any) -> None:
        self.unanswered_count -= 1
        self._go_on(answer)

    def _failed(self, end: End) -> None:
        self.unanswered_count -= 1
        self._world.soon(self._go_on, None)


def settled(request: Message | Callable[[], Message], code_of: Any, *expected: ErrorCode) -> Asking:
    """Repeat the request until the error code of its response is NONE or one of `expected`. Return
    the response.

    Every other code must be retriable, otherwise fail. A function as `request` is called for each
    attempt, so that it can build the request again.
    """
    wanted = (ErrorCode.NONE, *expected)
    while True:
        asked = request() if callable(request) else request
        answer = yield asked
        if answer is not None:
            code = ErrorCode(code_of(answer))
            if code in wanted:
                return answer
            assert code.retriable, f"{type(asked).__name__}: {code!r}"
        yield PAUSE_MS


def topic_made(
    name: str, partitions: int, *, replication_factor: int = 1, **configs: str
) -> Asking:
    """Create a topic. TOPIC_ALREADY_EXISTS also counts as success, because an earlier attempt can
    have worked without a response."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )  # fmt: skip
    request = CreateTopicsRequest(topics=[topic], timeout_ms=ANSWER_MS_MAX)
    yield from settled(
        request, lambda answer: answer.topics[0].error_code, ErrorCode.TOPIC_ALREADY_EXISTS
    )


def coordinator_found(key: str, key_type: int) -> Asking:
    """Send FindCoordinator for a group or transactional id. The broker then creates the
    coordinators' topics."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    yield from settled(request, lambda answer: answer.coordinators[0].error_code)


class Produced:
    """The records of one idempotent producer by partition, in the order of sending."""

    def __init__(self, name: str, topic: str, count: int) -> None:
        self.name = name
        self.values: dict[int, list[bytes]] = {}
        self.offsets: dict[int, list[int]] = {}
        self._topic = topic
        self._count = count

    def script(self, partition: int) -> Script:
        """Write `count` records one after the other. Retry each until it is acknowledged."""
        producer_id, epoch = yield from producer_of(None)
        for sequence in range(self._count):
            value = f"{self.name}-{partition}-{sequence}".encode()
            batch = batch_of(value, (producer_id, epoch, sequence))
            answer = yield from written(self._topic, partition, batch, None)
            self.values.setdefault(partition, []).append(value)
            self.offsets.setdefault(partition, []).append(answer)


def producer_of(transactional_id: str | None, timeout_ms: int = 900_000) -> Asking:
    """Return the id and the epoch of a new producer, or of the producer with a transactional id."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    answer = yield from settled(request, lambda answer: answer.error_code)
    return answer.producer_id, answer.producer_epoch


def batch_of(
    value: bytes, producer: tuple[int, int, int], *, is_transactional: bool = False
) -> memoryview:
    producer_id, epoch, sequence = producer
    return memoryview(
        build_batch(
            [NewRecord(None, value, 1_000)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def written(topic: str, partition: int, batch: memoryview, transactional_id: str | None) -> Asking:
    """Produce with acks=all until the record is acknowledged. Return its offset. Return -1 if the
    broker responded only that it already had the record."""
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=ANSWER_MS_MAX,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answer = yield from settled(
        request,
        lambda answer: answer.responses[0].partition_responses[0].error_code,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    )
    return answer.responses[0].partition_responses[0].base_offset


class Transacted:
    """The records that one transactional producer has committed, and those that it has aborted."""

    def __init__(self, name: str, topic: str, partitions: int, outcomes: list[bool]) -> None:
        self.name = name
        self.committed: list[bytes] = []
        self.aborted: list[bytes] = []
        self._topic = topic
        self._partitions = range(partitions)
        self._outcomes = outcomes

    def script(self) -> Script:
        """Run one transaction after the other over all partitions, with the given outcomes."""
        yield from coordinator_found(self.name, TRANSACTION)
        producer_id, epoch = yield from producer_of(self.name)
        for sequence, is_committed in enumerate(self._outcomes):
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=self._topic, partitions=list(self._partitions))
                ],
            )
            yield from settled(added, added_code)
            value = f"{self.name}-{sequence}".encode()
            for partition in self._partitions:
                batch = batch_of(value, (producer_id, epoch, sequence), is_transactional=True)
                yield from written(self._topic, partition, batch, self.name)
            ended = EndTxnRequest(
                transactional_id=self.name,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=is_committed,
            )
            yield from settled(ended, lambda answer: answer.error_code)
            (self.committed if is_committed else self.aborted).append(value)


class Transformed:
    """Copies a partition in transactions, each with one record and its offset. It repeats an
    aborted transaction."""

    def __init__(
        self, name: str, group: str, source: TopicPartition, target: TopicPartition, count: int,
        outcomes: Iterator[bool],
    ) -> None:  # fmt: skip
        """`outcomes` gives for each transaction True to commit it, False to abort it."""
        self.name = name
        self.group = group
        self.abort_count = 0
        self._source = source
        self._target = target
        self._count = count
        self._outcomes = outcomes

    def script(self) -> Script:
        """Copy this number of records, each in a separate transaction."""
        yield from coordinator_found(self.group, GROUP)
        yield from coordinator_found(self.name, TRANSACTION)
        producer_id, epoch = yield from producer_of(self.name)
        owner = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(
                    name=self._target.topic, partitions=[self._target.partition]
                )
            ],
        )
        for sequence in count():
            offset = yield from self._position()
            if offset == self._count:
                return
            value = yield from first_at(self._source, offset)
            yield from settled(added, added_code)
            yield from settled(
                AddOffsetsToTxnRequest(group_id=self.group, **owner), lambda one: one.error_code
            )
            batch = batch_of(value, (producer_id, epoch, sequence), is_transactional=True)
            yield from written(*self._target, batch, self.name)
            yield from self._commit(owner, offset + 1)
            is_committed = next(self._outcomes)
            self.abort_count += not is_committed
            yield from settled(
                EndTxnRequest(committed=is_committed, **owner), lambda one: one.error_code
            )

    def _position(self) -> Asking:
        """Return the group's committed offset, after waiting for pending transactions that can
        still change it."""
        topic = OffsetFetchRequestTopics(
            name=self._source.topic, partition_indexes=[self._source.partition]
        )
        answer = yield from settled(
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[topic])],
                require_stable=True,
            ),
            lambda answer: (
                answer.groups[0].error_code or answer.groups[0].topics[0].partitions[0].error_code
            ),
        )
        return max(answer.groups[0].topics[0].partitions[0].committed_offset, 0)

    def _commit(self, owner: Mapping[str, Any], offset: int) -> Asking:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=self._source.partition, committed_offset=offset, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=self._source.topic, partitions=[partition])
        yield from settled(
            TxnOffsetCommitRequest(group_id=self.group, topics=[topic], **owner),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )


def first_at(source: TopicPartition, offset: int) -> Asking:
    """Wait until the partition has a record at this offset. Return the record's value."""
    partition = FetchPartition(
        partition=source.partition, fetch_offset=offset, partition_max_bytes=1
    )
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        isolation_level=IsolationLevel.READ_COMMITTED,
        topics=[FetchTopic(topic=source.topic, partitions=[partition])],
    )
    while True:
        answer = yield from settled(
            request,
            lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
        )
        data = answer.responses[0].partitions[0]
        found = read_partition(source, data, offset, IsolationLevel.READ_COMMITTED)
        if found.records:
            return bytes(found.records[0].value or b"")
        yield 1


def added_code(answer: Any) -> int:
    partitions = [
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    code: int = next((code for code in partitions if code), 0)
    return code


class Committed:
    """Commits increasing offsets for one group, and counts the acknowledged ones."""

    def __init__(self, group: str, topic: str, count: int) -> None:
        self.group = group
        self.acknowledged = 0
        self._topic = topic
        self._count = count

    def script(self) -> Script:
        """Commit 1, 2, 3, ... Repeat each commit until it is acknowledged."""
        yield from coordinator_found(self.group, GROUP)
        for offset in range(1, self._count + 1):
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=""
            )
            topic = OffsetCommitRequestTopic(name=self._topic, partitions=[partition])
            request = OffsetCommitRequest(group_id=self.group, topics=[topic])
            yield from settled(request, lambda answer: answer.topics[0].partitions[0].error_code)
            self.acknowledged = offset


class Read:
    """Reads one partition, and keeps the records with their offsets."""

    def __init__(
        self,
        topic: str,
        partition: int,
        isolation: IsolationLevel,
        epoch_of_leader: Callable[[], int] = lambda: -1,
    ) -> None:
        """`epoch_of_leader` returns the leader epoch to send in each Fetch, so that an older leader
        rejects the Fetch."""
        self.records: list[tuple[int, bytes]] = []
        self.is_to_end = False
        """Set this to True to let the script end when it has read all records."""
        self.partition = partition
        self.isolation = isolation
        self._tp = TopicPartition(topic, partition)
        self._epoch_of_leader = epoch_of_leader

    def script(self) -> Script:
        """Read from offset 0 on. Keep reading until `is_to_end` is set and the end is reached."""
        offset = 0
        while True:
            # Read this flag before the Fetch, because the response can lack records written later.
            is_to_end = self.is_to_end
            answer = yield from settled(
                partial(self._request, offset),
                lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
            )
            data = answer.responses[0].partitions[0]
            found = read_partition(self._tp, data, offset, self.isolation)
            self.records += [(one.offset, bytes(one.value or b"")) for one in found.records]
            offset = found.next_offset
            end_offset = (
                found.last_stable_offset
                if self.isolation is IsolationLevel.READ_COMMITTED
                else found.high_watermark
            )
            assert all(one.offset < end_offset for one in found.records), "read above the mark"
            # Compare with the high watermark also for read_committed readers. Their last stable
            # offset stays below a transaction until its marker is committed.
            if is_to_end and offset >= found.high_watermark:
                return
            yield 1

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._tp.partition,
            current_leader_epoch=self._epoch_of_leader(),
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )
        return FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            isolation_level=self.isolation,
            topics=[FetchTopic(topic=self._tp.topic, partitions=[partition])],
        )
