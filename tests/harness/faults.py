"""A cluster of real brokers used by recorded clients: faults, and the check of the result.

with (
    ClusterProcesses(folder, SETTINGS, with_links=True) as cluster,
    Faults(cluster, chance) as faults,
):
    faults.cut(faults.role("leader"), "both ways", 3)
    faults.wait_until_whole("a cut")
    faults.judge("one cut")
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.coordinators.placing import shard_of
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.harness.chaos import pause
from tests.harness.checker import check
from tests.harness.cluster import ClusterProcesses
from tests.harness.mounts import Ext4Image
from tests.harness.recorded import (
    Recorded,
    RecordedCommitter,
    RecordedConsumer,
    RecordedProducer,
    read_everything,
)
from tests.harness.recorded_transformer import RecordedTransformer
from tests.harness.tally import tell
from tests.harness.wait import wait_until

PARTITIONS = 3
SHARDS = 3
GROUP, WORKER, COMMITTED = "group", "worker", "committed"
TOPICS = ("in", "out")
SETTINGS = {
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": SHARDS,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": SHARDS,
    "transaction.state.log.replication.factor": 3,
    "log.segment.bytes": 1 << 20,
}
CALL_S = 5.0

WHOLE_S = 45.0
"""Within this time after a fault all brokers must be in service, all replicas in sync, and all
clients must make progress."""

CUTS = (
    "both ways",
    "what it says",
    "what it hears",
    "one other",
    "one other, one way",
    "late",
    "reset",
)
"""The kinds of faults of a broker's links."""

LATE_S = (0.05, 1.0)

DOWN_S_MAX = 2.0
"""Brokers that have ended are started again after a random time, at most this one."""


class Faults:
    """A cluster used by recorded clients, its faults, and the final check."""

    def __init__(self, cluster: ClusterProcesses, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.whole_s: list[float] = []
        """For each fault the time until all replicas were in sync again and all clients made
        progress."""
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        made = self.admin.create_topics([NewTopic(one, PARTITIONS, 3) for one in TOPICS])
        for future in made.values():
            future.result(30)
        self.places = [("in", number) for number in range(PARTITIONS)]
        self.outputs = [("out", number) for number in range(PARTITIONS)]
        bootstrap = cluster.bootstrap
        self.producers = [
            RecordedProducer(bootstrap, f"p{number}", self.places, chance, per_turn=1)
            for number in range(2)
        ]
        self.consumers = [
            RecordedConsumer(bootstrap, "c-in", self.places),
            RecordedConsumer(
                bootstrap, "c-out", self.outputs, settings={"isolation.level": "read_committed"}
            ),
        ]
        self.committer = RecordedCommitter(bootstrap, COMMITTED, self.places)
        self.transformer = RecordedTransformer(bootstrap, WORKER, GROUP, "in", "out", chance)

    def clients(self) -> list[Recorded]:
        return [*self.producers, *self.consumers, self.committer, self.transformer]

    # The roles of the brokers.

    def leader(self, topic: str, partition: int) -> int:
        def found() -> int:
            known = self.admin.list_topics(topic, timeout=5).topics[topic]
            return max(known.partitions[partition].leader, 0)

        return wait_until(found, WHOLE_S, f"a leader of {topic}-{partition}")

    def role(self, name: str) -> int:
        """Return the broker that currently has a role: controller, coordinator, leader or
        follower."""
        if name == "controller":
            return self.cluster.wait_for_controller().node_id
        if name == "follower":
            leader = self.leader("in", 0)
            return self.chance.choice([one for one in self.cluster.brokers if one != leader])
        topic, partition = {
            "leader": ("in", 0),
            "transaction coordinator": (TRANSACTIONS_TOPIC, shard_of(WORKER, SHARDS)),
            "group coordinator": (OFFSETS_TOPIC, shard_of(GROUP, SHARDS)),
        }[name]
        return self.leader(topic, partition)

    def some(self, count: int, first: int) -> list[int]:
        """Choose this number of brokers at random, including one given broker."""
        others = [one for one in self.cluster.brokers if one != first]
        return [first, *self.chance.sample(others, count - 1)]

    # Faults.

    def end(self, node_ids: list[int], number: signal.Signals) -> None:
        """Send a signal to brokers, wait until they have ended, and start them again."""
        links = self.cluster.links
        ended = [self.cluster.brokers[one] for one in node_ids]
        for one in ended:
            one.send(number)
        for one in ended:
            assert one.wait() == (0 if number is signal.SIGTERM else -number)
            if links is not None:
                links.shut(one.node_id)
        pause(self.chance.uniform(0, DOWN_S_MAX))
        self.chance.shuffle(ended)
        for one in ended:
            if links is not None:
                links.serve(one.node_id)
            one.spawn()
            pause(self.chance.uniform(0, 0.5))
        self.counts[f"{len(node_ids)} {number.name}"] += 1

    def cut_power(self, disk: Ext4Image) -> None:
        """Cut the power of the disk that all brokers share. Start the brokers again when it is
        back."""
        ended = self.cluster.running
        # An fsync during the shutdown of the file system returns a wrong result, so freeze the
        # brokers first: they must acknowledge nothing.
        for one in ended:
            one.freeze()
        disk.cut_power()
        for one in ended:
            one.kill9()
        disk.return_power()
        self.chance.shuffle(ended)
        for one in ended:
            one.spawn()
            pause(self.chance.uniform(0, 0.5))
        self.counts["power cuts"] += 1

    def freeze(self, node_id: int, duration_s: float) -> None:
        """Freeze a broker for a while with SIGSTOP."""
        broker = self.cluster.brokers[node_id]
        broker.freeze()
        pause(duration_s)
        broker.send(signal.SIGCONT)
        self.counts[f"freeze {duration_s:g} s"] += 1

    def cut(self, node_id: int, how: str, duration_s: float) -> None:
        """Apply a fault to the links of a broker for a while."""
        links = self.cluster.links
        assert links is not None
        others = [one for one in self.cluster.brokers if one != node_id]
        other = self.chance.choice(others)
        match how:
            case "both ways":
                links.isolate(node_id)
            case "what it says":
                for one in others:
                    links.cut(node_id, one)
            case "what it hears":
                for one in others:
                    links.cut(one, node_id)
            case "one other":
                links.cut(node_id, other)
                links.cut(other, node_id)
            case "one other, one way":
                links.cut(*self.chance.choice([(node_id, other), (other, node_id)]))
            case "late":
                for one in others:
                    links.delay(node_id, one, self.chance.uniform(*LATE_S))
            case "reset":
                links.reset(node_id, other)
            case _:
                raise ValueError(how)
        pause(duration_s)
        if self.chance.random() < 0.5:
            # A reset loses the bytes that the links hold back. Without it they arrive late.
            for one in others:
                links.reset(node_id, one)
        links.heal()
        self.counts[f"cut: {how}"] += 1

    # Progress.

    def wait_until_whole(self, what: str) -> None:
        """Wait until all brokers are in service and in sync, and every client makes progress."""
        begin = time.monotonic()
        self.cluster.wait_until_ready()
        before = self._progress()

        def is_whole() -> bool:
            assert not self.failures, self.failures[:3]
            now = self._progress()
            standing = {k: before[k] for k in before if now[k] <= before[k]}
            assert not standing, f"{standing} do not go on; at {self.transformer.step}"
            known = self.admin.list_topics(timeout=5).topics.values()
            behind = [
                f"{topic.topic}-{one.id} {one.isrs}"
                for topic in known
                for one in topic.partitions.values()
                if len(one.isrs) < len(one.replicas) or one.leader < 0
            ]
            assert not behind, behind
            return True

        try:
            wait_until(is_whole, WHOLE_S, f"whole again after {what}")
        except AssertionError as error:
            described = self.admin.describe_consumer_groups([GROUP], request_timeout=CALL_S)
            error.add_note(f"{self.transformer.told()}; the group: {_described(described[GROUP])}")
            error.add_note("; ".join(one.told() for one in self.consumers))
            raise
        self.whole_s.append(time.monotonic() - begin)

    def _progress(self) -> dict[str, int]:
        progress = {one.log.process: one.acknowledged for one in self.producers}
        progress |= {one.log.process: one.count for one in self.consumers}
        progress["committer"] = self.committer.acknowledged
        progress["transformer"] = self.transformer.committed
        return progress

    @property
    def failures(self) -> list[str]:
        found = [one.failures for one in self.producers]
        return [*self.transformer.failures, *(failure for one in found for failure in one)]

    # The end.

    def judge(self, what: str) -> None:
        """Check that every reader gets each acknowledged record once and in order."""
        self._finish()
        bootstrap = self.cluster.bootstrap
        last_in = read_everything(bootstrap, self.places)
        last_out = read_everything(bootstrap, self.outputs, name="last", is_read_committed=True)
        read_in, read_out = (one.log for one in self.consumers)
        written = check(
            [one.log for one in self.producers], [read_in, last_in], [self.committer.log]
        )
        # Check the input first, because an error in the input also appears in the output.
        assert written.is_clean, written.text()
        transformed = check([self.transformer.log], [read_out, last_out])
        named = ", ".join(f"{name} × {count}" for name, count in sorted(self.counts.items()))
        tell(f"{what}: {named}; whole again after at most {max(self.whole_s):.1f} s")
        tell(f"  written: {written.line()}, {written.commits} commits")
        tell(
            f"  transformed: {transformed.line()}, {self.transformer.committed} transactions, "
            f"{self.transformer.aborted} aborted, {self.transformer.given_again} given again, "
            f"producers replaced {len(self.transformer.ends)}"
        )
        assert transformed.is_clean, transformed.text()
        assert not self.failures, self.failures[:5]
        assert written.acknowledged == written.sent
        # The output has each input record once and in order, however many attempts there were.
        for place, output in zip(self.places, self.outputs, strict=True):
            wanted = [value for _, value in last_in.records(place)]
            found = [value.rpartition(b"|")[0] for _, value in last_out.records(output)]
            assert found == wanted, _difference(wanted, found)

    def _finish(self) -> None:
        """Stop the clients after every record has a result and has been transformed."""
        for producer in self.producers:
            producer.finish()
        places = [TopicPartition(*place) for place in self.places]
        looking = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": GROUP})

        def left() -> int:
            """Return the number of input records without a transformed copy."""
            ends = [looking.get_watermark_offsets(place, CALL_S)[1] for place in places]
            return sum(ends) - sum(max(one.offset, 0) for one in looking.committed(places, CALL_S))

        wait_until(lambda: left() == 0, WHOLE_S, "all input is transformed", progress=left)
        looking.close()
        reading: list[Recorded] = [self.transformer, *self.consumers, self.committer]
        for one in reading:
            one.finish()

    def __enter__(self) -> Faults:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for one in self.clients():
                one.abandon()


def _described(group: Any) -> str:
    """Return the coordinator's description of a group, or the error."""
    try:
        found = group.result(CALL_S)
    except (KafkaException, TimeoutError) as error:
        return str(error)
    members = {
        one.member_id: [
            f"{place.topic}-{place.partition}" for place in one.assignment.topic_partitions
        ]
        for one in found.members
    }
    return f"{found.state.name}, coordinator {found.coordinator.id}, {members}"


def _difference(wanted: list[bytes], found: list[bytes]) -> str:
    left, right = Counter(wanted), Counter(found)
    doubled = [one[:30] for one, count in right.items() if count > 1]
    lost = [one[:30] for one in left - right]
    return f"wanted {len(wanted)}, found {len(found)}; lost {lost[:5]}, doubled {doubled[:5]}"
