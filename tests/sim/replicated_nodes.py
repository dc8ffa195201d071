"""Nodes that replicate, and a controller that never fails.

`ReplicatedCluster` writes to the leaders with acks=all and causes all faults for a while. It checks
these invariants: an acknowledged record is durable on every in-sync replica; logs are equal below
their high watermarks; no high watermark falls within an epoch. After the faults have ended, all
logs must become equal byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import METADATA_VERSION, SUPPORTED, LevelRange
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.world import Address
from protocol.types import NO_NODE, TopicPartition, Uuid
from tests.sim.network import Mix, Network
from tests.sim.replicated_node import (
    PORT,
    TICK_MS,
    TOPIC,
    WRITE_MS,
    ReplicatedNode,
    Write,
    batches_of,
    host_of,
)
from tests.sim.replication.controller import Batch, Controller, Part
from tests.sim.violation import Violation

TOPIC_ID = Uuid(int=77)
SETTINGS = {"segment.bytes": "1500", "file.delete.delay.ms": "0"}
HEAL_MS = 30_000
LOOK_MS = 100
EVERYTHING = 2**62

FAULTS = (
    *("kill", "power", "power", "all power", "cut", "cut", "cut", "heal", "heal", "lose"),
    *("full", "room", "room", "cut off", "heard", "heard", "prefer", "prefer", "prefer"),
    *("fence", "trim"),
)
MOVES = (*FAULTS, *("move",) * 6)
"""The same faults, and reassignments, which remove replicas and add them again."""


class ReplicatedCluster:
    """The nodes and their controller. Tests write to the nodes."""

    def __init__(
        self,
        seed: str,
        size: int = 3,
        partition_count: int = 2,
        *,
        leaders: tuple[int, ...] = (),
        levels: Mapping[int, LevelRange] | None = None,
        faults: tuple[str, ...] = FAULTS,
    ) -> None:
        self._faults = faults
        self.chance = Random(seed)
        self.network = Network(seed, Mix(late=0.02))
        self.is_over = False
        self.held: list[Callable[[], object]] | None = None
        ids = tuple(range(1, size + 1))
        self.min_isr = 2 if size > 2 else 1
        self.addresses = {node_id: Address(host_of(node_id), PORT) for node_id in ids}
        self.nodes = {node_id: ReplicatedNode(self, node_id) for node_id in ids}
        self.images: list[MetadataImage] = []
        self.committed: dict[int, dict[int, bytes]] = {p: {} for p in range(partition_count)}
        """By partition: offset -> the batch that is committed there."""
        self.acked: list[tuple[int, int, bytes]] = []
        self.writes: list[Write] = []
        self.levels = dict(levels or {})
        """The feature levels of nodes that run another version."""
        self.late_news = 0.1
        """The probability that a node learns of new metadata much later than the others."""
        self.broken: list[AssertionError] = []
        self.settings = SETTINGS | {
            "min.insync.replicas": str(self.min_isr),
            "flush.messages": "1",
        }
        """The configuration of the topic. Nodes learn of a change with the next decision."""
        self._value = 0
        self.controller = Controller(self._decided)
        for node in self.nodes.values():
            node.start()
        for index in range(partition_count):
            first = leaders[index] - 1 if leaders else index % size
            self.controller.create(index, ids[first:] + ids[:first], self.min_isr)
        self._tick()

    @property
    def now_ms(self) -> int:
        return self.network.timeline.clock.monotonic_ms()

    def note(self, *told: object) -> None:
        """Add one line to the trace."""
        self.network.note(*told)

    def later(self, delay_ms: int, call: Callable[[], object]) -> None:
        """Schedule an event that is independent of all nodes, so no end of a process drops it."""
        self.network.timeline.later(self, delay_ms, call)

    def _tick(self) -> None:
        self.controller.tick(self.now_ms)
        self.later(TICK_MS, self._tick)

    def _decided(self, decided: Batch) -> None:
        """Make a metadata image of the controller's decision, and keep it for the nodes."""
        parts = self.controller.parts
        topics = {}
        if parts:
            images = tuple(_partition(parts[index]) for index in sorted(parts))
            topics[TOPIC] = TopicImage(TOPIC, TOPIC_ID, images)
        self.images.append(
            replace(
                MetadataImage(),
                end_offset=decided.end_offset,
                brokers={
                    node_id: BrokerImage(
                        node_id,
                        Uuid(int=epoch),
                        epoch,
                        {},
                        None,
                        False,
                        features={METADATA_VERSION: self.levels.get(node_id, SUPPORTED)},
                    )
                    for node_id, epoch in decided.brokers.items()
                },
                topics=topics,
                topic_names={TOPIC_ID: TOPIC},
                configs={(TOPIC_RESOURCE, TOPIC): dict(self.settings)},
            )
        )
        self.note("decides", decided.end_offset, decided.parts)

    # Requests of clients.

    def acknowledged(self, index: int, offset: int, content: bytes) -> None:
        self.acked.append((index, offset, content))
        self.note("acknowledges", index, offset)
        if self.committed[index].get(offset) != content:
            raise Violation(f"{offset} of {index} is acknowledged and not committed")

    def advanced(self, index: int, high_watermark: int) -> None:
        """Check that all committed records are durable on every member of the ISR and the ELR."""
        part = self.controller.parts[index]
        for member in (*part.isr, *part.elr):
            end_offset = self.nodes[member].durable_end(index)
            if end_offset < high_watermark:
                raise Violation(
                    f"I2: {high_watermark} of {index} is committed, {member} holds {end_offset}"
                )

    def write(self, index: int) -> Write | None:
        """Write a batch to the first node, in random order, that accepts it. This can be a deposed
        leader. Return None if no node accepts it."""
        nodes = list(self.nodes.values())
        self.chance.shuffle(nodes)
        for node in nodes:
            self._value += 1
            size = self.chance.choice((1, 1, 40, 300))
            write = node.write(index, b"%d " % self._value + b"x" * size)
            if write is not None:
                self.writes.append(write)
                return write
        return None

    def run_for(self, duration_ms: int, *, write_every_ms: int = 15) -> None:
        """Let time pass, and write batches in the meantime."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.network.timeline.run_for(self.chance.randint(1, 2 * write_every_ms))
            self.write(self.chance.randrange(len(self.committed)))
            self._look()

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass without writes."""
        self.network.timeline.run_for(duration_ms)
        self._look()

    def _look(self) -> None:
        if self.broken:
            raise self.broken[0]
        for node in self.nodes.values():
            if node.is_up and node.replicas is not None:
                node.look_at_sessions()
                for replica in node.replicas:
                    node.look(replica)

    # Faults.

    def misbehave(self) -> None:
        """Start one random fault, or end one."""
        chance, network = self.chance, self.network
        node = chance.choice(list(self.nodes.values()))
        hosts = sorted(one.host for one in self.nodes.values())
        if not node.is_up:
            node.disk.refuses = None
            node.start()
            return
        index = chance.randrange(len(self.committed))
        match chance.choice(self._faults):
            case "kill":
                node.kill()
            case "power":
                node.cut_power()
            case "all power":
                for one in self.nodes.values():
                    if one.is_up:
                        one.cut_power()
            case "cut":
                network.cut(*chance.sample(hosts, 2))
            case "heal":
                network.heal()
            case "lose":
                network.lose_links(*chance.sample(hosts, 2))
            case "full":
                node.disk.refuses = lambda path, operation: operation == "write"
            case "room":
                node.disk.refuses = None
            case "cut off":
                node.is_cut_off = True
            case "heard":
                node.is_cut_off = False
            case "prefer":
                self.controller.prefer(index, node.node_id)
            case "fence":
                if node.node_id in self.controller.brokers:
                    self.controller.fence(node.node_id)
            case "move":
                # Keep two replicas, because a single replica commits without telling its listener,
                # and the checks would miss that.
                count = chance.randint(2, len(self.nodes))
                self.controller.reassign(index, tuple(chance.sample(sorted(self.nodes), count)))
            case "trim":
                offsets = sorted(self.committed[index])
                if offsets:
                    node.trim(index, chance.choice(offsets))

    def mend(self) -> None:
        """End all faults."""
        self.network.heal()
        for node in self.nodes.values():
            node.disk.refuses = None
            node.is_cut_off = False
            if not node.is_up:
                node.start()

    def heal(self) -> None:
        """End all faults. Within 30 s all replicas must be in sync and all logs equal."""
        self.mend()
        end_ms = self.now_ms + HEAL_MS
        # Write once more to each partition. A leader whose high watermark could not advance commits
        # its earlier records together with the next one.
        wanting = set(self.committed)
        while (missing := self.missing()) or wanting:
            if self.now_ms > end_ms:
                raise Violation(f"{HEAL_MS} ms after the healing: {missing} {wanting}")
            self.pass_time(LOOK_MS)
            wanting = {index for index in wanting if missing or self.write(index) is None}
        self.pass_time(WRITE_MS + LOOK_MS)
        # A write that a killed process has accepted never ends, so leave it out.
        waiting = [one for one in self.writes if one.end is None and not one.life.is_over]
        assert not waiting, f"{len(waiting)} waits never ended"
        self.judge()

    def missing(self) -> str:
        """Return a text about the first thing that the cluster lacks to be healthy, or ""."""
        for index, part in self.controller.parts.items():
            if part.leader == NO_NODE or len(part.isr) < len(part.replicas):
                return f"{part} of {index}"
            leader = self.nodes[part.leader].find(index)
            if leader is None or leader.leader_epoch != part.leader_epoch:
                return f"{part.leader} does not lead {index} yet"
            end_offset = leader.log.log_end_offset
            if leader.log.high_watermark < end_offset:
                return f"{index} is committed to {leader.log.high_watermark} of {end_offset}"
            for node in self.nodes.values():
                log = node.logs.get(TopicPartition(TOPIC, index))
                if node.node_id not in part.replicas:
                    if node.folders_of(index):
                        return f"{node.node_id} still has {node.folders_of(index)}"
                elif log is None or log.log_end_offset != end_offset:
                    return f"{node.node_id} lags in {index}"
        return ""

    def judge(self) -> None:
        """Check that all logs of a partition are equal and have every acknowledged record."""
        for index, part in self.controller.parts.items():
            leader = self.nodes[part.leader].logs.logs[TopicPartition(TOPIC, index)]
            whole = dict(batches_of(leader, leader.log_start_offset, EVERYTHING))
            for node in (self.nodes[node_id] for node_id in part.replicas):
                log = node.logs.logs[TopicPartition(TOPIC, index)]
                start_offset = max(log.log_start_offset, leader.log_start_offset)
                found = dict(batches_of(log, start_offset, EVERYTHING))
                if found != {o: one for o, one in whole.items() if o >= min(found, default=o)}:
                    raise Violation(f"the log of {index} on {node.node_id} is another")
                if log.log_end_offset != leader.log_end_offset:
                    raise Violation(f"the log of {index} on {node.node_id} ends elsewhere")
            for acked_index, offset, content in self.acked:
                if acked_index == index and offset >= leader.log_start_offset:
                    assert whole[offset] == content, f"{offset} of {index} was acknowledged"


def _partition(part: Part) -> PartitionImage:
    return PartitionImage(
        replicas=part.replicas,
        in_sync_replicas=part.isr,
        leader=part.leader,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        eligible_leader_replicas=part.elr,
    )
