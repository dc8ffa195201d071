"""A transaction's coordinator moves to a node with another clock. The transaction is aborted late
rather than early, and nothing is lost."""

from __future__ import annotations

import pytest

from broker.metadata.image import TRANSACTIONS_TOPIC
from broker.world import Address
from protocol.client.fetch_core import IsolationLevel
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from protocol.types import NO_NODE
from protocol.wire.schema import Message
from tests.sim.clients import (
    TRANSACTION,
    Asking,
    Client,
    Read,
    Script,
    added_code,
    batch_of,
    coordinator_found,
    producer_of,
    settled,
    topic_made,
    written,
)
from tests.sim.test_leaving import in_service
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeBroker

TOPIC = "t"
NAME = "worker"
AHEAD_MS = 3_600_000
"""More than the longest allowed transaction timeout."""

TIMEOUT_MS = 40_000
"""The producer's transaction timeout."""

CHECK_MS = 200
"""The interval of the search for overdue transactions."""


class Scene:
    """A producer with an open transaction, whose coordinator has died. The clocks of the other
    nodes are an hour ahead."""

    def __init__(self, name: str) -> None:
        self.may_end = False
        self.codes: list[ErrorCode] = []
        self.committed: list[bytes] = []
        self._is_open = False
        self.cluster = in_service(
            name,
            **{
                "transaction.state.log.num.partitions": 1,
                "transaction.state.log.replication.factor": 3,
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": CHECK_MS,
            },
        )
        self.writing = self.client("w", self._script())
        self.cluster.run_until(lambda: self._is_open, 20_000, "an open transaction")
        coordinator = self.leader_of(TRANSACTIONS_TOPIC)
        for node in self.cluster.nodes:
            if node is not coordinator:
                node.kill()
                node.skew_ms = AHEAD_MS
                node.start()
                self.cluster.run_until(lambda: is_in_service(self.cluster), 20_000, "it is back")
                self.cluster.run_until(self._is_in_sync, 20_000, "all copies are in sync")
        assert self.leader_of(TRANSACTIONS_TOPIC) is coordinator
        coordinator.kill()
        self.cluster.run_until(
            lambda: self._leader_id(TRANSACTIONS_TOPIC) not in (NO_NODE, coordinator.node_id),
            5_000,
            "another coordinator",
        )

    def client(self, host: str, script: Script) -> Client:
        brokers = {node.node_id: Address(node.host, HOST_PORT) for node in self.cluster.nodes}
        return Client(self.cluster.network, host, brokers, script, self._find)

    def leader_of(self, topic: str) -> WholeBroker:
        return self.cluster.nodes[self._leader_id(topic) - 1]

    def _leader_id(self, topic: str) -> int:
        images = [node.metadata.image for node in self.cluster.running if node.metadata is not None]
        newest = max(images, key=lambda image: image.end_offset)
        known = newest.topics.get(topic)
        return known.partitions[0].leader if known is not None else NO_NODE

    def _is_in_sync(self) -> bool:
        image = self.cluster.running[0].metadata.image
        return all(
            len(one.in_sync_replicas) == len(one.replicas)
            for topic in image.topics.values()
            for one in topic.partitions
        )

    def _find(self, request: Message) -> int:
        is_data = isinstance(request, (ProduceRequest, FetchRequest))
        leader_id = self._leader_id(TOPIC if is_data else TRANSACTIONS_TOPIC)
        return self.cluster.running[0].node_id if leader_id == NO_NODE else leader_id

    def _script(self) -> Script:
        yield from topic_made(TOPIC, 1, replication_factor=3)
        yield from coordinator_found(NAME, TRANSACTION)
        for value in (b"first", b"second"):
            producer = yield from producer_of(NAME, TIMEOUT_MS)
            code = yield from self._transaction(value, producer)
            self.codes.append(code)
            if code is ErrorCode.NONE:
                self.committed.append(value)

    def _transaction(self, value: bytes, producer: tuple[int, int]) -> Asking:
        producer_id, epoch = producer
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        yield from settled(added, added_code)
        batch = batch_of(value, (producer_id, epoch, 0), is_transactional=True)
        yield from written(TOPIC, 0, batch, NAME)
        self._is_open = True
        while not self.may_end:
            yield 10
        ended = EndTxnRequest(
            transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        answer = yield from settled(
            ended,
            lambda answer: answer.error_code,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
        return ErrorCode(answer.error_code)

    def finished(self) -> list[bytes]:
        """Let the producer finish. Return the values that a read_committed consumer gets then."""
        self.may_end = True
        self.cluster.run_until(lambda: self.writing.is_done, 60_000, "two transactions")
        # Wait for the markers, which are written after the response.
        self.cluster.run_for(2_000)
        read = Read(TOPIC, 0, IsolationLevel.READ_COMMITTED)
        read.is_to_end = True
        reading = self.client("r", read.script())
        self.cluster.run_until(lambda: reading.is_done, 20_000, "all has been read")
        return [value for _, value in read.records]


@pytest.mark.parametrize("number", range(3))
def test_a_young_transaction_is_committed_under_a_clock_that_is_ahead(number: int) -> None:
    scene = Scene(f"young {number}")
    scene.cluster.run_for(TIMEOUT_MS // 2)
    assert scene.finished() == [b"first", b"second"]
    assert scene.codes == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("number", range(3))
def test_one_that_is_open_for_longer_is_aborted_and_nothing_else_is_lost(number: int) -> None:
    scene = Scene(f"older {number}")
    scene.cluster.run_for(TIMEOUT_MS + 10 * CHECK_MS)
    seen = scene.finished()
    assert scene.codes[0] is not ErrorCode.NONE, "its producer knows"
    assert seen == scene.committed == [b"second"]
