"""One whole broker with its clients, from one seed. Acknowledged records stay, once and in order.

Idempotent and transactional producers, a group and consumers work while the broker is killed or
loses its power, its links or its disk space. Then the faults end and all clients finish. The test
compares the partitions with the responses that each client got.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from random import Random

import pytest

from broker.world import Address
from protocol.client.fetch_core import IsolationLevel
from tests.sim.clients import Client, Committed, Produced, Read, Script, Transacted, topic_made
from tests.sim.many_lives import live, parts_of
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster

TOPIC = "t"
PARTITIONS = 2
RECORDS = 60
TRANSACTIONS = 30
COMMITS = 80
SETTINGS = {"log.segment.bytes": 700, "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2, "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1}  # fmt: skip
END_MS_MAX = 120_000
LIVES = 60
LIVES_IN_ONE = 20
"""The lives that each run of the tests includes."""
SHORT_LIVES = 20
OPENING = ("open", "list", "sync folder")
"""The operations that need a descriptor."""


class Life:
    """One run: the broker, its clients, and what the clients have recorded."""

    faults: tuple[str, ...] = ("kill", "power", "power", "lose", "cut", "heal", "full", "room")

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self.cluster = WholeCluster(seed, 1, SETTINGS)
        self.node: WholeBroker = self.cluster.nodes[0]
        self.clients: list[Client] = []
        self.produced = [Produced(f"p{number}", TOPIC, RECORDS) for number in range(2)]
        ends = [self.chance.random() < 0.6 for _ in range(TRANSACTIONS)]
        self.transacted = Transacted("tx", TOPIC, PARTITIONS, ends)
        self.committed = Committed("g", TOPIC, COMMITS)
        self.readers = [
            Read(TOPIC, partition, isolation)
            for partition in range(PARTITIONS)
            for isolation in IsolationLevel
        ]

    def run(self) -> None:
        self.node.start()
        making = self.client(topic_made(TOPIC, PARTITIONS))
        self.cluster.run_until(lambda: making.is_done, END_MS_MAX, "the topic is made")
        working = [
            self.client(one.script(partition))
            for one in self.produced
            for partition in range(PARTITIONS)
        ]
        working += [self.client(one.script()) for one in (self.transacted, self.committed)]
        reading = [self.client(one.script()) for one in self.readers]
        for _ in range(self.chance.randint(6, 30)):
            self.cluster.run_for(self.chance.randint(1, 150))
            self.misbehave()
        self.mend()
        self.cluster.run_until(
            lambda: all(one.is_done for one in working), END_MS_MAX, "all has been written"
        )
        for one in self.readers:
            one.is_to_end = True
        self.cluster.run_until(
            lambda: all(one.is_done for one in reading), END_MS_MAX, "all has been read"
        )
        assert all(one.unanswered_count == 0 for one in self.clients)
        self.judge()

    def client(self, script: Script) -> Client:
        host = f"c{len(self.clients)}"
        made = Client(self.cluster.network, host, {1: Address(self.node.host, HOST_PORT)}, script)
        self.clients.append(made)
        return made

    def misbehave(self) -> None:
        """Start one random fault, or end one."""
        chance, network, node = self.chance, self.cluster.network, self.node
        if node.broker is None:
            node.start()
            return
        client = chance.choice(self.clients)
        match chance.choice(self.faults):
            case "kill":
                node.kill()
            case "power":
                node.cut_power(chance)
            case "lose":
                network.lose_links(client.host, node.host)
            case "cut":
                network.cut(*chance.sample([client.host, node.host], 2))
            case "heal":
                network.heal()
            case "full":
                node.disk.refusal = errno.ENOSPC
                node.disk.refuses = lambda path, operation: operation == "write"
            case "short":
                node.disk.refusal = errno.EMFILE
                node.disk.refuses = lambda path, operation: operation in OPENING
            case "room":
                node.disk.refuses = None

    def mend(self) -> None:
        self.cluster.network.heal()
        self.node.disk.refuses = None
        if self.node.broker is None:
            self.node.start()

    def judge(self) -> None:
        """Check that each partition has every acknowledged record, once, in order and at its
        offset, and that read_committed readers see exactly the committed transactions."""
        for partition in range(PARTITIONS):
            everything, committed = (
                {one.isolation: one.records for one in self.readers if one.partition == partition}[
                    isolation
                ]
                for isolation in IsolationLevel
            )
            offsets = [offset for offset, _ in everything]
            assert offsets == sorted(set(offsets))
            standing = dict(everything)
            for one in self.produced:
                told = one.values[partition]
                mine = [value for _, value in everything if value in set(told)]
                assert mine == told, "lost, doubled or out of order"
                for value, offset in zip(told, one.offsets[partition], strict=True):
                    assert standing[offset] == value, "not where it was acknowledged"
            ended = self.transacted
            of_transactions = [value for _, value in committed if value.startswith(b"tx-")]
            assert of_transactions == ended.committed, "not the transactions that were committed"
            written = [value for _, value in everything if value.startswith(b"tx-")]
            assert sorted(written) == sorted(ended.committed + ended.aborted)
            outside = [value for _, value in everything if not value.startswith(b"tx-")]
            assert [value for _, value in committed if not value.startswith(b"tx-")] == outside


class ShortLife(Life):
    """A run in which the process sometimes cannot open a file, for lack of descriptors."""

    faults = ("kill", "power", "lose", "heal", "full", "room", "room", "short", "short", "short")


@pytest.mark.parametrize("first", range(0, LIVES, LIVES_IN_ONE))
def test_what_is_acknowledged_stays_whatever_happens(first: int) -> None:
    live("one broker", (first, LIVES_IN_ONE), lambda seed: Life(seed).run())


@pytest.mark.parametrize("first", range(0, SHORT_LIVES, LIVES_IN_ONE))
def test_nothing_is_lost_for_want_of_descriptors(first: int) -> None:
    live("one broker, short", (first, LIVES_IN_ONE), lambda seed: ShortLife(seed).run())


def test_the_readers_of_committed_data_wait_for_the_last_marker() -> None:
    """With this seed the read_committed consumers read everything else before the last marker is
    committed."""
    Life("0.30016072499869784").run()


@pytest.mark.slow
@pytest.mark.parametrize("part", parts_of(5_000), ids=str)
def test_a_great_many_lives(part: tuple[int, int]) -> None:
    live("one broker, many lives", part, lambda seed: Life(seed).run())


@pytest.mark.slow
@pytest.mark.parametrize("part", parts_of(500), ids=str)
def test_a_great_many_lives_without_descriptors(part: tuple[int, int]) -> None:
    live("one broker, short, many lives", part, lambda seed: ShortLife(seed).run())


DIGEST = """
from tests.sim.test_one_broker import Life
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
