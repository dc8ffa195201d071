"""Rare sequences of events in transactions over several brokers. Each needs a particular guard.

Each of three whole brokers has one role: the controller, the coordinator of a transactional id, or
the leader of the written partition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from broker.coordinators.placing import shard_of
from broker.coordinators.txn_state import TxnState
from broker.metadata.image import TRANSACTIONS_TOPIC
from broker.replicas.replica import Replica
from broker.shards.marker_sender import ANSWER_MS_MAX
from protocol.client.fetch_core import IsolationLevel
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
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
from tests.sim.test_transactions import SPREAD, TransactedLife
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeBroker

PATIENCE_MS = 30_000


class Stage(TransactedLife):
    """Three brokers with their roles, and a producer whose requests a script sends one by one."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        cluster = self.cluster
        for node in cluster.nodes:
            node.start()
        cluster.run_until(lambda: is_in_service(cluster), PATIENCE_MS, "all are in service")
        self.do(topic_made(SPREAD, 3, replication_factor=3))
        self.do(coordinator_found("any", TRANSACTION))
        cluster.run_until(self.is_settled, PATIENCE_MS, "all are in sync")
        controller = cluster.active()
        assert controller is not None
        self.controller = controller
        self.coordinator, self.leader = (one for one in cluster.nodes if one is not controller)
        topics = controller.metadata.image.topics
        shards = topics[TRANSACTIONS_TOPIC].partitions
        self.transactional_id = next(
            name
            for name in (f"id-{number}" for number in count())
            if shards[shard_of(name, len(shards))].leader == self.coordinator.node_id
        )
        self.partition = next(
            index
            for index, one in enumerate(topics[SPREAD].partitions)
            if one.leader == self.leader.node_id
        )
        self.producer = (-1, -1)
        self.sequence = 0
        self.do(self._begin())

    # Steps.

    def do(self, asking: Asking, *, is_awaited: bool = True) -> Client:
        """Run a client's requests, and wait until they have ended unless `is_awaited` is False."""

        def script() -> Script:
            yield from asking

        client = self.at_its_place(script())
        if is_awaited:
            self.until(lambda: client.is_done, "it is done")
        return client

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        for _ in range(PATIENCE_MS):
            if is_so():
                return
            self.cluster.run_for(1)
        raise AssertionError(f"not after {PATIENCE_MS} ms: {what}")

    def _begin(self) -> Asking:
        self.producer = yield from producer_of(self.transactional_id)

    def add(self) -> Asking:
        """Add the partition to the transaction (AddPartitionsToTxn)."""
        producer_id, epoch = self.producer
        topic = AddPartitionsToTxnTopic(name=SPREAD, partitions=[self.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        yield from settled(request, added_code)

    def write(self, value: bytes) -> Asking:
        """Produce the next record of the transaction."""
        batch = batch_of(value, (*self.producer, self.sequence), is_transactional=True)
        self.sequence += 1
        yield from written(SPREAD, self.partition, batch, self.transactional_id)

    def end(self, *, is_commit: bool) -> Asking:
        """Commit or abort the transaction (EndTxn)."""
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )
        yield from settled(request, lambda answer: answer.error_code)

    # The state of the brokers.

    def replica(self, node: WholeBroker) -> Replica:
        """Return the partition's replica on a node."""
        assert node.broker is not None
        return next(
            one
            for one in node.broker.parts.replicas
            if (one.topic, one.index) == (SPREAD, self.partition)
        )

    def state(self, node: WholeBroker) -> TxnState | None:
        """Return the transaction's state on a node, or None if the node does not coordinate it."""
        assert node.broker is not None
        for shard in node.broker.parts.transactions.shards():
            if self.transactional_id in shard.transactions:
                return shard.transactions[self.transactional_id].state
        return None

    def believes_to_coordinate(self, node: WholeBroker) -> bool:
        """Return True if, by the node's own metadata, the node coordinates the transaction."""
        shards = node.metadata.image.topics[TRANSACTIONS_TOPIC].partitions
        leader: int = shards[shard_of(self.transactional_id, len(shards))].leader
        return leader == node.node_id

    def cut_off(self, node: WholeBroker, *others: WholeBroker) -> None:
        """Cut these nodes off from each other, in both directions."""
        for other in others:
            self.cluster.network.cut(node.host, other.host)
            self.cluster.network.cut(other.host, node.host)

    def join(self, one: WholeBroker, other: WholeBroker) -> None:
        """Connect these nodes again."""
        self.cluster.network.heal(one.host, other.host)
        self.cluster.network.heal(other.host, one.host)

    def read(self) -> list[bytes]:
        """Return the committed values of the partition."""
        one = Read(SPREAD, self.partition, IsolationLevel.READ_COMMITTED)
        one.is_to_end = True
        self.do(one.script())
        return [value for _, value in one.records]

    def settle(self) -> None:
        """End all faults. Wait until no transaction is open and every replica is in sync."""
        self.mend()
        self.cluster.run_until(self.is_settled, PATIENCE_MS, "nothing is open or out of sync")


def decided(seed: str) -> Stage:
    """Return a stage whose coordinator has decided to commit, but whose marker cannot reach the
    partition's leader."""
    stage = Stage(seed)
    stage.do(stage.add())
    stage.do(stage.write(b"first"))
    stage.do(stage.end(is_commit=True), is_awaited=False)
    stage.until(lambda: stage.state(stage.coordinator) is TxnState.PREPARE_COMMIT, "it is decided")
    stage.cluster.network.cut(stage.coordinator.host, stage.leader.host)
    return stage


def a_leader_dies_before_its_marker_comes() -> None:
    """The partition's leader dies before it gets the marker. The coordinator must send the marker
    to the next leader. NOT_LEADER_OR_FOLLOWER does not mean that the partition was deleted."""
    stage = decided("dies")
    stage.leader.kill()
    stage.until(
        lambda: stage.state(stage.coordinator) is TxnState.COMPLETE_COMMIT, "it is complete"
    )
    assert stage.read() == [b"first"]
    stage.settle()


def deposed(seed: str) -> Stage:
    """Return a stage whose coordinator was replaced. The producer has already opened its next
    transaction at the new coordinator."""
    stage = decided(seed)
    stage.cut_off(stage.coordinator, stage.leader, stage.controller)
    others = (stage.leader, stage.controller)
    stage.until(
        lambda: TxnState.COMPLETE_COMMIT in [stage.state(one) for one in others],
        "another coordinator has ended it",
    )
    stage.do(stage.add())
    stage.do(stage.write(b"second"))
    return stage


def a_deposed_coordinator_sends_its_markers_before_it_knows() -> None:
    """The deposed coordinator still sends its commit markers. They must be rejected, because they
    would commit the producer's next transaction, which the producer aborts."""
    stage = deposed("before it knows")
    stage.join(stage.coordinator, stage.leader)
    stage.cluster.run_for(2_000)
    end_aborted(stage)


def a_deposed_coordinator_sends_its_markers_when_it_knows() -> None:
    """As before, but the deposed coordinator already knows the new leader epoch from the metadata.
    It must not put that epoch into its markers."""
    stage = deposed("when it knows")
    stage.join(stage.coordinator, stage.controller)
    stage.until(lambda: not stage.believes_to_coordinate(stage.coordinator), "it knows")
    # Wait until the coordinator has given up the requests that were under way.
    stage.cluster.run_for(2 * ANSWER_MS_MAX)
    stage.join(stage.coordinator, stage.leader)
    stage.cluster.run_for(2_000)
    end_aborted(stage)


def end_aborted(stage: Stage) -> None:
    stage.do(stage.end(is_commit=False))
    stage.settle()
    assert stage.read() == [b"first"], "a transaction was committed that was aborted"


def a_batch_arrives_when_its_transaction_has_ended() -> None:
    """A batch arrives after its transaction has ended. It must be rejected, because it would open a
    transaction that no client ends."""
    stage = Stage("late")
    stage.do(stage.add())
    stage.do(stage.write(b"first"))
    stage.do(stage.end(is_commit=True))
    stage.until(lambda: stage.state(stage.coordinator) is TxnState.COMPLETE_COMMIT, "it is over")
    told: list[int] = []

    def send() -> Asking:
        writing = stage.write(b"late")
        answer: Any = yield next(writing)
        told.append(answer.responses[0].partition_responses[0].error_code)

    stage.do(send())
    stage.settle()
    assert stage.read() == [b"first"]
    assert told[0], "it was taken"


def a_marker_is_not_committed_yet() -> None:
    """A marker that is not committed can still be lost with its leader. So a read_committed
    consumer must not read past it."""
    stage = decided("not committed")
    for other in (stage.coordinator, stage.controller):
        # The marker must reach the leader, but no follower can write it.
        other.disk.refuses = lambda path, operation: (
            operation == "write" and f"/{SPREAD}-{stage.partition}/" in path
        )
    stage.cluster.network.heal()
    log = stage.replica(stage.leader).log
    stage.until(lambda: not log.producer_state.transactions.open, "the marker is written")
    assert log.high_watermark < log.log_end_offset
    assert log.last_stable_offset == 0, "read on before the marker was committed"
    stage.settle()
    assert stage.read() == [b"first"]


SCRIPTS: tuple[Callable[[], None], ...] = (
    a_leader_dies_before_its_marker_comes,
    a_deposed_coordinator_sends_its_markers_before_it_knows,
    a_deposed_coordinator_sends_its_markers_when_it_knows,
    a_batch_arrives_when_its_transaction_has_ended,
    a_marker_is_not_committed_yet,
)
