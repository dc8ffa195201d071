"""Three whole brokers with their clients, from one seed. Acknowledged records stay, once and in
order, whichever broker dies or loses its power, its links or its disk space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from broker.world import Address
from protocol.client.fetch_core import IsolationLevel
from protocol.wire.schema import Message
from tests.sim.clients import Client, Produced, Read, Script, topic_made
from tests.sim.many_lives import live, parts_of
from tests.sim.replicated_node import batches_of
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import HOST_PORT, WholeCluster

TOPIC = "t"
PARTITIONS = 3
RECORDS = 40
SETTINGS = {"log.segment.bytes": 700}
END_MS_MAX = 120_000
READY_MS_MAX = 60_000
LIVES = 40
LIVES_IN_ONE = 10
"""The lives that each run of the tests includes."""


KINDS = ("kill", "power", "stop", "freeze", "lose", "cut", "heal", "heal", "full", "room")
"""The kinds of faults, of a broker or of its links."""


@dataclass
class Leader:
    """A partition's leader as its clients know it. Like Kafka's clients, they never return to a
    leader of an older epoch (KIP-320)."""

    node_id: int = -1
    epoch: int = -1

    def told(self, node_id: int, epoch: int) -> None:
        if epoch >= self.epoch:
            self.node_id, self.epoch = node_id, epoch


class Life:
    """One run: the cluster, its clients, and what the clients have recorded."""

    copies = 3
    """The number of replicas of each partition at the beginning."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self.cluster = WholeCluster(seed, 3, SETTINGS)
        self.clients: list[Client] = []
        self.produced = Produced("p", TOPIC, RECORDS)
        self.leaders = [Leader() for _ in range(PARTITIONS)]
        self.readers = [
            Read(TOPIC, partition, IsolationLevel.READ_UNCOMMITTED, self.epoch_of(partition))
            for partition in range(PARTITIONS)
        ]

    def begin(self) -> None:
        """Start the brokers, and make the topic."""
        cluster = self.cluster
        for node in cluster.nodes:
            node.start()
        cluster.run_until(lambda: is_in_service(cluster), READY_MS_MAX, "all are in service")
        making = self.client(
            topic_made(TOPIC, PARTITIONS, replication_factor=self.copies, min_insync_replicas="2"),
            None,
        )
        cluster.run_until(lambda: making.is_done, END_MS_MAX, "the topic is made")

    def run(self) -> None:
        cluster = self.cluster
        self.begin()
        partitions = range(PARTITIONS)
        working = [self.client(self.produced.script(one), one) for one in partitions]
        reading = [self.client(one.script(), one.partition) for one in self.readers]
        self.suffer()
        self.mend()
        cluster.run_until(
            lambda: all(one.is_done for one in working), END_MS_MAX, "all has been written"
        )
        # Wait before the readers end. A new leader below min ISR can have more records than its
        # high watermark lets them read.
        cluster.run_until(self.is_whole, READY_MS_MAX, "all replicas are in sync and alike")
        for one in self.readers:
            one.is_to_end = True
        cluster.run_until(
            lambda: all(one.is_done for one in reading), END_MS_MAX, "all has been read"
        )
        self.judge()

    def client(self, script: Script, partition: int | None) -> Client:
        """Return a client of the partition's leader, or without a partition of any broker."""
        brokers = {node.node_id: Address(node.host, HOST_PORT) for node in self.cluster.nodes}

        def find(request: Message) -> int:
            known = [
                one
                for one in self.cluster.running
                if one.metadata is not None and TOPIC in one.metadata.image.topics
            ]
            if partition is None or not known:
                return self.chance.choice(list(brokers))
            newest = max(known, key=lambda one: one.metadata.image.end_offset)
            told = newest.metadata.image.topics[TOPIC].partitions[partition]
            leader = self.leaders[partition]
            leader.told(told.leader, told.leader_epoch)
            # Without a leader use the broker with the newest metadata. Another broker could still
            # lead in an older epoch, and clients do not return to such a leader.
            return leader.node_id if leader.node_id in brokers else newest.node_id

        host = f"c{len(self.clients)}"
        made = Client(self.cluster.network, host, brokers, script, find)
        self.clients.append(made)
        return made

    def epoch_of(self, partition: int) -> Callable[[], int]:
        return lambda: self.leaders[partition].epoch

    def suffer(self) -> None:
        """Let time pass, with random faults."""
        for _ in range(self.chance.randint(6, 30)):
            self.cluster.run_for(self.chance.randint(1, 300))
            self.misbehave()

    def misbehave(self) -> None:
        """Start one random fault, or end one."""
        chance, network = self.chance, self.cluster.network
        node = chance.choice(self.cluster.nodes)
        if node.broker is None:
            node.start()
            return
        if node.is_frozen:
            node.thaw()
            return
        hosts = [one.host for one in self.cluster.nodes]
        match chance.choice(KINDS):
            case "kill":
                node.kill()
            case "stop" if not node.is_stopping:
                node.stop()
            case "freeze":
                node.freeze()
            case "power":
                node.cut_power(chance)
            case "lose":
                network.lose_links(*chance.sample(hosts, 2))
            case "cut":
                network.cut(*chance.sample(hosts, 2))
            case "heal":
                network.heal()
            case "full":
                node.disk.refuses = lambda path, operation: operation == "write"
            case "room":
                node.disk.refuses = None

    def mend(self) -> None:
        self.cluster.network.heal()
        for node in self.cluster.nodes:
            node.disk.refuses = None
            if node.is_frozen:
                node.thaw()
        # Wait for brokers that are stopping, and start them again afterwards.
        self.cluster.run_until(
            lambda: not any(node.is_stopping for node in self.cluster.nodes), END_MS_MAX, "stopped"
        )
        for node in self.cluster.nodes:
            if node.broker is None:
                node.start()

    def is_whole(self) -> bool:
        """Return True if all brokers are in service, and all replicas are in sync and equal byte
        for byte, and the leaders' high watermarks are at the log end."""
        if not is_in_service(self.cluster):
            return False
        for partition in range(PARTITIONS):
            contents = set()
            for node in self.cluster.nodes:
                seen = node.metadata.image.topics[TOPIC].partitions[partition]
                if seen.is_moving or len(seen.in_sync_replicas) < len(seen.replicas):
                    return False
                if node.node_id not in seen.replicas:
                    continue
                assert node.broker is not None
                log = next(
                    one.log
                    for one in node.broker.parts.replicas
                    if (one.topic, one.index) == (TOPIC, partition)
                )
                if node.node_id == seen.leader and log.high_watermark < log.log_end_offset:
                    return False
                contents.add(tuple(batches_of(log, log.log_start_offset, log.log_end_offset)))
            if len(contents) > 1:
                return False
        return True

    def judge(self) -> None:
        """Check that each partition has every acknowledged record, once, in order and at its
        offset."""
        for one in self.readers:
            told = self.produced.values[one.partition]
            assert [value for _, value in one.records] == told, "lost, doubled or out of order"
            standing = dict(one.records)
            offsets = self.produced.offsets[one.partition]
            for value, offset in zip(told, offsets, strict=True):
                assert standing[offset] == value, "not where it was acknowledged"


@pytest.mark.parametrize("first", range(0, LIVES, LIVES_IN_ONE))
def test_acknowledged_records_stay_whichever_broker_dies(first: int) -> None:
    live("three brokers", (first, LIVES_IN_ONE), lambda seed: Life(seed).run())


@pytest.mark.slow
@pytest.mark.parametrize("part", parts_of(2_000), ids=str)
def test_a_great_many_lives(part: tuple[int, int]) -> None:
    live("three brokers, many lives", part, lambda seed: Life(seed).run())


DIGEST = """
from tests.sim.test_three_brokers import Life
life = Life("the same")
life.run()
print(life.cluster.network.trace_digest)
"""


def test_one_seed_is_one_life_to_the_byte_under_two_hash_seeds() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST],
            capture_output=True, text=True, check=True, env=environment, timeout=120,
        )  # fmt: skip
        digests.add(done.stdout.split()[-1])
    assert len(digests) == 1
