"""Transactions on three whole brokers whose leaders and coordinators die, from one seed.

Producers write to several partitions. Workers copy records and their offsets from one topic to
another. All of them use transactions, which they commit or abort. Read_committed consumers must get
exactly the committed records, complete and in order. At the end no open transaction may block them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from random import Random

import pytest

from broker.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE
from broker.coordinators.placing import shard_of
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.world import Address
from protocol.client.fetch_core import IsolationLevel
from protocol.messages.fetch import FetchRequest
from protocol.messages.offsets import OffsetFetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from protocol.types import TopicPartition
from protocol.wire.schema import Message
from tests.harness.seed import seeded
from tests.sim.clients import (
    Client,
    Produced,
    Read,
    Script,
    Transacted,
    Transformed,
    producer_of,
    topic_made,
)
from tests.sim.many_lives import live, parts_of
from tests.sim.test_three_brokers import END_MS_MAX, READY_MS_MAX, Leader, Life
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeCluster

SOURCE, TARGET, SPREAD = "in", "out", "t"
PARTITIONS = {SOURCE: 2, TARGET: 2, SPREAD: 3}
RECORDS = 16
TRANSACTIONS = 12
GROUP_ID = "g"
SETTINGS = {
    "log.segment.bytes": 700,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
}


class TransactedLife(Life):
    """One run of the cluster with transactional clients."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self.cluster = WholeCluster(seed, 3, SETTINGS)
        self.clients: list[Client] = []
        self.produced = Produced("p", SOURCE, RECORDS)
        self.transacted = [
            Transacted(f"tx{number}", SPREAD, PARTITIONS[SPREAD], list(self.outcomes()))
            for number in range(2)
        ]
        self.transformed = [
            Transformed(
                f"w{index}",
                GROUP_ID,
                TopicPartition(SOURCE, index),
                TopicPartition(TARGET, index),
                RECORDS,
                chain(self.outcomes(), repeat(True)),
            )
            for index in range(PARTITIONS[SOURCE])
        ]
        self.known_leaders: defaultdict[TopicPartition, Leader] = defaultdict(Leader)
        """The leaders as the readers know them."""
        self.committed = {
            one: Read(*one, IsolationLevel.READ_COMMITTED, self.known_epoch(one))
            for topic in (TARGET, SPREAD)
            for one in (TopicPartition(topic, index) for index in range(PARTITIONS[topic]))
        }

    def known_epoch(self, partition: TopicPartition) -> Callable[[], int]:
        return lambda: self.known_leaders[partition].epoch

    def outcomes(self) -> Iterator[bool]:
        return iter([self.chance.random() < 0.6 for _ in range(TRANSACTIONS)])

    def run(self) -> None:
        cluster = self.cluster
        for node in cluster.nodes:
            node.start()
        cluster.run_until(lambda: is_in_service(cluster), READY_MS_MAX, "all are in service")
        making = [
            self.at_its_place(topic_made(topic, count, replication_factor=3))
            for topic, count in PARTITIONS.items()
        ]
        self.wait_for(making, "the topics are made")
        scripts = [self.produced.script(index) for index in range(PARTITIONS[SOURCE])]
        scripts += [one.script() for one in self.transacted]
        scripts += [one.script() for one in self.transformed]
        working = [self.at_its_place(one) for one in scripts]
        reading = [self.at_its_place(one.script()) for one in self.committed.values()]
        for _ in range(self.chance.randint(6, 30)):
            cluster.run_for(self.chance.randint(1, 300))
            self.misbehave()
        self.mend()
        self.wait_for(working, "all has been written")
        # Wait for the markers, because a client can learn of a commit before they are written.
        cluster.run_until(self.is_settled, READY_MS_MAX, "nothing is open or out of sync")
        for one in self.committed.values():
            one.is_to_end = True
        self.wait_for(reading, "all has been read")
        self.judge()

    def wait_for(self, clients: list[Client], what: str) -> None:
        self.cluster.run_until(lambda: all(one.is_done for one in clients), END_MS_MAX, what)

    def at_its_place(self, script: Script) -> Client:
        """Return a client that sends each request to the leader or coordinator for that request, by
        the newest metadata."""
        brokers = {node.node_id: Address(node.host, HOST_PORT) for node in self.cluster.nodes}

        def find(request: Message) -> int:
            leader = self.leader_of(request)
            return leader if leader in brokers else self.chance.choice(list(brokers))

        made = Client(self.cluster.network, f"c{len(self.clients)}", brokers, script, find)
        self.clients.append(made)
        return made

    def leader_of(self, request: Message) -> int:
        """Return the leader of the request's partition, or -1 if any broker can handle it."""
        place = place_of(request)
        known = [one.metadata.image for one in self.cluster.running if one.metadata is not None]
        if place is None or not known:
            return -1
        topic = max(known, key=lambda image: image.end_offset).topics.get(place[0])
        if topic is None:
            return -1
        where = place[1]
        index = shard_of(where, len(topic.partitions)) if isinstance(where, str) else where
        told = topic.partitions[index]
        if not isinstance(request, FetchRequest):
            return int(told.leader)
        known_leader = self.known_leaders[TopicPartition(place[0], index)]
        known_leader.told(told.leader, told.leader_epoch)
        return known_leader.node_id

    def misbehave(self) -> None:
        """Start or end a fault as in `Life`. In addition freeze a broker now and then, sometimes
        for longer than a session."""
        node = self.chance.choice(self.cluster.nodes)
        if node.broker is None or node.is_frozen or self.chance.random() < 0.9:
            super().misbehave()
            return
        node.freeze()
        self.cluster.run_for(self.chance.choice((100, 1_000, 12_000)))
        node.thaw()

    def is_settled(self) -> bool:
        """Return True if all replicas are in sync, and no open transaction blocks read_committed
        consumers."""
        if not is_in_service(self.cluster):
            return False
        for node in self.cluster.nodes:
            topics = node.metadata.image.topics
            assert node.broker is not None
            for replica in node.broker.parts.replicas:
                if len(topics[replica.topic].partitions[replica.index].in_sync_replicas) < 3:
                    return False
                log = replica.log
                if not log.last_stable_offset == log.high_watermark == log.log_end_offset:
                    return False
        return True

    def judge(self) -> None:
        """Check that read_committed consumers got exactly the committed records, once and in
        order."""
        for (topic, index), one in self.committed.items():
            values = [value for _, value in one.records]
            if topic == TARGET:
                assert values == self.produced.values[index], "not carried over once, in order"
                continue
            for ended in self.transacted:
                mine = [value for value in values if value.startswith(ended.name.encode())]
                assert mine == ended.committed, "not the transactions that were committed"


def place_of(request: Message) -> tuple[str, int | str] | None:
    """Return the request's topic with its partition, or with the name whose hash gives the
    partition. Return None if any broker can handle the request."""
    match request:
        case ProduceRequest():
            topic = request.topic_data[0]
            return topic.name, topic.partition_data[0].index
        case FetchRequest():
            return request.topics[0].topic, request.topics[0].partitions[0].partition
        case InitProducerIdRequest(transactional_id=str(transactional_id)):
            return TRANSACTIONS_TOPIC, transactional_id
        case AddPartitionsToTxnRequest():
            return TRANSACTIONS_TOPIC, request.v3_and_below_transactional_id
        case AddOffsetsToTxnRequest() | EndTxnRequest():
            return TRANSACTIONS_TOPIC, request.transactional_id
        case TxnOffsetCommitRequest():
            return OFFSETS_TOPIC, request.group_id
        case OffsetFetchRequest():
            return OFFSETS_TOPIC, request.groups[0].group_id
    return None


@pytest.mark.parametrize("number", range(6))
def test_transactions_end_as_decided_whichever_broker_dies(number: int) -> None:
    TransactedLife(str(seeded(f"transactions {number}").random())).run()


def test_a_deposed_coordinator_ends_no_producer_that_it_has_never_heard_of() -> None:
    """With this seed the coordinator is frozen while another one allocates the producer's id. Then
    it gets a request of that producer."""
    TransactedLife("0.9889904957555354").run()


def test_a_deposed_leader_ends_no_producer_whose_batches_it_lacks() -> None:
    """With this seed all other brokers die, and a producer returns to a leader that was deposed
    earlier."""
    TransactedLife("0.793234474894834").run()


def test_the_last_request_of_a_killed_process_takes_no_id_away() -> None:
    """With this seed a controller that was frozen reads the registration of a killed process after
    the registration of its successor."""
    TransactedLife("0.7311102215970062").run()


def test_a_reader_believes_no_leader_older_than_the_last_it_knew() -> None:
    """With this seed only a deposed leader is reachable for a while. It has fewer records than the
    reader has already read."""
    TransactedLife("0.08459717323080562").run()


@pytest.mark.slow
@pytest.mark.parametrize("part", parts_of(1_000), ids=str)
def test_a_great_many_lives(part: tuple[int, int]) -> None:
    live("transactions, many lives", part, lambda seed: TransactedLife(seed).run())


def test_each_broker_gives_out_producer_ids_once_whichever_node_is_controller() -> None:
    cluster = WholeCluster("ids", 3, SETTINGS)
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), READY_MS_MAX, "all are in service")
    given: list[int] = []
    count = PRODUCER_ID_BLOCK_SIZE * 2 // 3

    def taking() -> Script:
        for _ in range(count):
            producer_id, epoch = yield from producer_of(None)
            assert epoch == 0
            given.append(producer_id)

    clients: list[Client] = []
    for _ in range(3):
        for node in cluster.nodes:
            brokers = {node.node_id: Address(node.host, HOST_PORT)}
            clients.append(Client(cluster.network, f"c{len(clients)}", brokers, taking()))
        cluster.run_for(20)
        controller = cluster.active()
        assert controller is not None
        controller.kill()
        cluster.run_for(500)
        controller.start()
        cluster.run_until(lambda: all(one.is_done for one in clients), END_MS_MAX, "all are given")
    assert len(given) == len(set(given)) == len(clients) * count
    assert max(given) >= 4 * PRODUCER_ID_BLOCK_SIZE, "they came out of many blocks"
