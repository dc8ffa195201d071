"""Nodes that replicate: real logs on simulated disks, real roles, followers, fetches and proposals
over sessions and links of a simulated network, under a controller that never fails (S2's data).

`ReplicatedCluster` writes with acks=all at whoever leads, lets everything fail for a while, and
checks what must hold: what is acknowledged is durable on every member of the committed in-sync
replicas, logs are equal below their high watermarks, no high watermark falls within an epoch, and
after the healing all logs are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from broker.budget import TurnBudget
from broker.config import InForce, Listener
from broker.fetch.replica_fetch import ReplicaFetches, ReplicaFetchPorts
from broker.metadata.image import (
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from broker.metadata.records import TOPIC_RESOURCE
from broker.metrics.metrics import Metrics
from broker.metrics.warnings import Warnings
from broker.replicas.flusher import Flusher
from broker.replicas.folders import Folders
from broker.replicas.followers import FollowerPorts, Followers
from broker.replicas.isr_driver import IsrDriver
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.replication.follower_session import Fetcher
from broker.sessions.call import Call
from broker.sessions.dispatch import Dispatcher
from broker.sessions.peers import Peers
from broker.sessions.reception import BROKER_LISTENER, Reception
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.world import Address, End
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import BETWEEN_BROKERS, ApiKey, request_class
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.headers import decode_request_header, encode_request
from protocol.messages.membership import (
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from protocol.types import NO_NODE, NO_OFFSET, TopicPartition, Uuid
from protocol.wire.records import iterate_batches
from tests.sim.disk import SimDisk
from tests.sim.network import Mix, Network
from tests.sim.replication.controller import AlterPartition, Batch, Controller, Part
from tests.unit.storage.kit import append, batch, broker_config

PORT = 9095
TOPIC = "replicated"
TOPIC_ID = Uuid(int=77)
SETTINGS = {"segment.bytes": "1500", "file.delete.delay.ms": "0"}
JOB_MS = (0, 6)
TICK_MS = 250
CHECKPOINT_MS = 400
ASK_MS = 600
WRITE_MS = 4_000
HEAL_MS = 30_000
LOOK_MS = 100
EVERYTHING = 2**62
NO_SHORT_WAY: Any = SimpleNamespace(start=lambda *asked: False)


class Violation(AssertionError):
    """An invariant does not hold."""


def host_of(node_id: int) -> str:
    return f"n{node_id}"


def batches_of(log: Log, start_offset: int, end_offset: int) -> list[tuple[int, bytes]]:
    """What a log holds from one offset to another, batch by batch."""
    found: list[tuple[int, bytes]] = []
    while start_offset < end_offset:
        read = log.read(start_offset, 1 << 20, end_offset)
        if read.region is None:
            break
        for header, view in iterate_batches(read.region.read()):
            found.append((header.base_offset, bytes(view)))
            start_offset = header.last_offset + 1
    return found


class Write:
    """A client's batch with acks=all; it ends once."""

    def __init__(self, node: ReplicatedNode, replica: Replica, offset: int) -> None:
        self.end: str | None = None
        self._node = node
        self._replica = replica
        self._offset = offset
        ((_, self._content),) = batches_of(replica.log, offset, offset + 1)

    def reached(self) -> None:
        self._ended("acknowledged")
        self._node.advanced(self._replica)
        self._node.cluster.acknowledged(self._replica.index, self._offset, self._content)

    def lost(self, code: ErrorCode) -> None:
        self._ended(code.name)

    def _ended(self, how: str) -> None:
        assert self.end is None, f"a wait ended twice: {self.end}, {how}"
        self.end = how


class ReplicatedNode:
    """One node: its disk outlives its lives."""

    def __init__(self, cluster: ReplicatedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host_of(node_id)
        self.disk = SimDisk()
        self.incarnation = 0
        self.is_up = False
        self.is_cut_off = False
        """Whether the controller and it do not hear each other."""
        self.durable_ends: dict[int, int] = {}
        """By partition, as of its last breath."""

    # Life and death.

    def start(self) -> None:
        """A new life, on what the disk has."""
        self.incarnation += 1
        self.is_up = True
        world = self.world = self.cluster.network.world(self.host)
        world.job_ms = JOB_MS
        address = {"host": self.host, "port": PORT}
        address |= {"advertised_host": self.host, "advertised_port": PORT}
        self.config = broker_config(
            node_id=self.node_id,
            listeners={BROKER_LISTENER: address},
            settings={"log.flush.interval.messages": self.cluster.flush_messages},
        )
        self.logs = LogManager(self.disk, self.config, Uuid(int=1_000 + self.node_id))
        self.logs.open_all(world.clock.now_ms())
        assert not self.logs.offline, f"{self.host}: {self.logs.offline}"
        self.replicas: Replicas | None = None
        self.image = MetadataImage()
        self.seen: dict[tuple[int, int], int] = {}
        """(partition, leader epoch) -> the highest high watermark of this life."""
        self.checked: dict[int, int] = {}
        world.later(world.chance.randint(0, 30), self._register)

    def kill(self) -> None:
        """The process ends; what it has written is in the page cache."""
        self._ends()
        self.cluster.network.kill(self.host)
        self.disk.locked.clear()

    def cut_power(self) -> None:
        """The machine goes off, and forgets what it had not synced."""
        self._ends()
        self.cluster.network.cut_power(self.host)
        self.disk.crash(self.cluster.chance)

    def _ends(self) -> None:
        self.durable_ends = {tp.partition: log.recovery_point for tp, log in self.logs.logs.items()}
        self.is_up = False

    def durable_end(self, index: int) -> int:
        if not self.is_up:
            return self.durable_ends.get(index, 0)
        log = self.logs.get(TopicPartition(TOPIC, index))
        return 0 if log is None else log.recovery_point

    # Its parts.

    def _register(self) -> None:
        if self.is_cut_off:
            self.world.later(TICK_MS, self._register)
            return
        controller = self.cluster.controller
        broker_epoch = controller.register(self.node_id, self.incarnation, self.cluster.now_ms)
        self.me = Fetcher(self.node_id, broker_epoch)
        self._put_together()
        # What it has heard of the metadata so far may be older than its registration.
        self.replayed = self.cluster.chance.randint(0, len(controller.log))
        if self.replayed:
            self.image = self.cluster.images[self.replayed - 1]
        assert self.replicas is not None
        self.replicas.open_all(self.image, set())
        self.isr_driver.start()
        self._heartbeat()
        self._checkpoint()
        self._replay()

    def _put_together(self) -> None:
        world, settings = self.world, InForce(self.config)
        self.files = world.jobs("files", lambda error: world.die(str(error)))
        flusher = Flusher(
            world, lambda log: replicas.flushed(log), lambda error: world.die(str(error))
        )
        lived_ms = world.clock.monotonic_ms
        replicas = self.replicas = Replicas(
            settings,
            self.me.broker_epoch,
            world.clock,
            self.logs,
            flusher,
            Folders(settings, world.clock, self.logs, self.files),
            self.advanced,
            lambda replica: None,
            lived_ms,
        )
        self.peers = Peers(world, self.host, self.cluster.addresses)
        self.isr_driver = IsrDriver(world, self.me, replicas, self._ask_controller, lived_ms)
        warnings = Warnings(world.clock)
        self.fetches = ReplicaFetches(
            ReplicaFetchPorts(world, replicas, warnings, lived_ms, self.isr_driver.heard)
        )
        ports = FollowerPorts(
            world, self.peers, replicas, self.files, warnings, lambda *refusal: None, self._trim
        )
        self.followers = Followers(ports, self.me, self.logs.directory_id)
        replicas.hearers += [self.followers, self.fetches]
        self._listen(settings, warnings)

    def _listen(self, settings: InForce, warnings: Warnings) -> None:
        world = self.world
        handlers = {ApiKey.FETCH: self._fetch}
        reception = Reception(
            BROKER_LISTENER,
            settings,
            world.clock,
            world.turn_ns,
            world.soon,
            TurnBudget(world.turn_ns, world.soon),
            Sessions(settings),
            Dispatcher(
                handlers,
                {ApiKey.FETCH: BETWEEN_BROKERS[ApiKey.FETCH]},
                Metrics(world.turn_ns, world.clock),
                lambda *_: None,
            ),
            NO_SHORT_WAY,
            lambda: None,
            lambda refusal: None,
            warnings,
        )
        at: Listener = self.config.listeners[BROKER_LISTENER]
        world.listen(BROKER_LISTENER, at, lambda: Session(reception)).open()

    def _fetch(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        try:
            return self.fetches.start(call, request)
        except AssertionError as error:
            # A session would log it, and close.
            self.cluster.broken.append(error)
            raise

    def _trim(self, log: Log, start_offset: int) -> None:
        """What housekeeping does."""

        def drop(_: None) -> None:
            dropped = log.drop_below(start_offset, self.world.clock.now_ms())
            if dropped is not None:
                self.files.run(dropped.perform, lambda _: None, lambda error: None)

        self.files.run(self.logs.checkpoint(frees_room=True).perform, drop, lambda error: None)

    def _checkpoint(self) -> None:
        self.files.run(self.logs.checkpoint().perform, lambda _: None, lambda error: None)
        self.world.later(CHECKPOINT_MS, self._checkpoint)

    # The controller.

    def _heartbeat(self) -> None:
        if not self.is_cut_off:
            self.cluster.controller.heartbeat(
                self.node_id, self.me.broker_epoch, self.image.end_offset, self.cluster.now_ms
            )
        self.world.later(TICK_MS, self._heartbeat)

    def _replay(self) -> None:
        """The next of the metadata, after a while."""
        images = self.cluster.images
        if self.replayed < len(images) and not self.is_cut_off:
            image = images[self.replayed]
            delta = MetadataDelta(self.image)
            if image.topics != self.image.topics:
                delta.touched.add(TOPIC)
            self.replayed += 1
            self.image = image
            assert self.replicas is not None
            self.replicas.apply(delta, image, self._replay_later)
        else:
            self.world.later(self.cluster.chance.randint(1, 10), self._replay)

    def _replay_later(self) -> None:
        chance = self.cluster.chance
        delay_ms = chance.randint(0, 4) if chance.random() < 0.9 else chance.randint(20, 300)
        self.world.later(delay_ms, self._replay)

    def _ask_controller(
        self,
        request: Any,
        version: int,
        answered: Callable[[Any], None],
        failed: Callable[[End], None],
    ) -> None:
        """Over the wire, and perhaps lost on either way."""
        chance, world = self.cluster.chance, self.world
        frame = memoryview(encode_request(request, version, 1, "sim")[4:])
        _, position = decode_request_header(frame)
        asked, _ = request_class(request.api_key).decode(frame, version, position)
        ends: list[object] = []

        def once(call: Callable[[Any], None], value: object) -> None:
            if not ends:
                ends.append(value)
                call(value)

        def decide() -> None:
            if self.is_cut_off:
                return
            answer = self._decide(asked)
            if chance.random() > 0.05:
                world.later(chance.randint(0, 10), partial(once, answered, answer))

        world.later(ASK_MS, partial(once, failed, End.TIMED_OUT))
        late = 700 if chance.random() < 0.05 else 10
        # The request may arrive when its sender is no more.
        self.cluster.later(chance.randint(0, late), decide)

    def _decide(self, asked: Any) -> AlterPartitionResponse:
        answer = AlterPartitionResponse()
        for topic in asked.topics:
            told = AlterPartitionResponseTopic(topic_id=topic.topic_id)
            answer.topics.append(told)
            for one in topic.partitions:
                isr = tuple((b.broker_id, b.broker_epoch) for b in one.new_isr_with_epochs)
                code = self.cluster.controller.alter(
                    AlterPartition(
                        asked.broker_id,
                        one.partition_index,
                        one.leader_epoch,
                        one.partition_epoch,
                        isr,
                    )
                )
                told.partitions.append(
                    AlterPartitionResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                )
        return answer

    # Clients.

    def find(self, index: int) -> Replica | None:
        if not self.is_up or self.replicas is None:
            return None
        return self.replicas.get(TOPIC, index)

    def write(self, index: int, value: bytes) -> Write | None:
        """A client's batch, if this node takes itself for the leader."""
        replica = self.find(index)
        if replica is None or replica.state.is_under_min_isr or self.replicas is None:
            return None
        view = batch(value, timestamp_ms=self.world.clock.now_ms())
        now_ms = self.world.clock.now_ms()
        try:
            appended = append(replica.log, view, replica.leader_epoch, now_ms)
            replica.log.write_staged(now_ms)
        except (ApiError, DiskError):
            return None
        self.cluster.note(self.node_id, "writes", index, appended.base_offset)
        write = Write(self, replica, appended.base_offset)
        deadline_ms = self.world.clock.monotonic_ms() + WRITE_MS
        line = replica.committed
        line.await_(appended.last_offset + 1, write, deadline_ms)
        self.world.later(WRITE_MS + 1, lambda: line.expire(self.world.clock.monotonic_ms()))
        self.replicas.written(replica)
        return write

    def trim(self, index: int, offset: int) -> None:
        """DeleteRecords, if this node leads."""
        replica = self.find(index)
        if replica is not None and self.replicas is not None:
            start_offset = min(offset, replica.log.high_watermark)
            replica.log.advance_log_start(start_offset)
            self.replicas.trimmed(replica)
            self._trim(replica.log, start_offset)

    # What must hold.

    def advanced(self, replica: Replica) -> None:
        """A high watermark has moved: below it all logs are one."""
        index, log = replica.index, replica.log
        committed = self.cluster.committed[index]
        start_offset = max(self.checked.get(index, 0), log.log_start_offset)
        for offset, content in batches_of(log, start_offset, log.high_watermark):
            if not replica.is_led and offset not in committed:
                raise Violation(f"I3: follower {self.node_id} of {index} is first to know {offset}")
            if committed.setdefault(offset, content) != content:
                raise Violation(f"I3: {self.node_id} of {index} differs at {offset}")
        self.checked[index] = log.high_watermark
        self.look(replica)

    def look(self, replica: Replica) -> None:
        """No high watermark falls within an epoch."""
        key = replica.index, replica.leader_epoch
        mark = replica.state.high_watermark
        if mark < self.seen.get(key, NO_OFFSET):
            raise Violation(f"I5: {self.node_id} of {key} falls from {self.seen[key]} to {mark}")
        self.seen[key] = mark


class ReplicatedCluster:
    """The nodes, their controller, and who writes."""

    def __init__(
        self,
        seed: str,
        size: int = 3,
        partition_count: int = 2,
        flush_messages: int = 1,
        *,
        leaders: tuple[int, ...] = (),
    ) -> None:
        self.chance = Random(seed)
        self.network = Network(seed, Mix(late=0.02))
        self.is_over = False
        self.flush_messages = flush_messages
        ids = tuple(range(1, size + 1))
        self.min_isr = 2 if size > 2 else 1
        self.addresses = {node_id: Address(host_of(node_id), PORT) for node_id in ids}
        self.nodes = {node_id: ReplicatedNode(self, node_id) for node_id in ids}
        self.images: list[MetadataImage] = []
        self.committed: dict[int, dict[int, bytes]] = {p: {} for p in range(partition_count)}
        """By partition: offset -> the batch that is committed there."""
        self.acked: list[tuple[int, int, bytes]] = []
        self.writes: list[Write] = []
        self.broken: list[AssertionError] = []
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
        """One line of the trace."""
        self.network.note(*told)

    def later(self, delay_ms: int, call: Callable[[], object]) -> None:
        """For what is no node's."""
        self.network.timeline.later(self, delay_ms, call)

    def _tick(self) -> None:
        self.controller.tick(self.now_ms)
        self.later(TICK_MS, self._tick)

    def _decided(self, decided: Batch) -> None:
        """The controller has committed: as an image, all there is."""
        parts = self.controller.parts
        topics = {}
        if parts:
            images = tuple(_partition(parts[index]) for index in sorted(parts))
            topics[TOPIC] = TopicImage(TOPIC, TOPIC_ID, images)
        settings = SETTINGS | {
            "min.insync.replicas": str(self.min_isr),
            "flush.messages": str(self.flush_messages),
        }
        self.images.append(
            replace(
                MetadataImage(),
                end_offset=decided.end_offset,
                brokers={
                    node_id: BrokerImage(node_id, Uuid(int=epoch), epoch, {}, None, False)
                    for node_id, epoch in decided.brokers.items()
                },
                topics=topics,
                topic_names={TOPIC_ID: TOPIC},
                configs={(TOPIC_RESOURCE, TOPIC): settings},
            )
        )
        self.note("decides", decided.end_offset, decided.parts)

    # Clients.

    def acknowledged(self, index: int, offset: int, content: bytes) -> None:
        self.acked.append((index, offset, content))
        self.note("acknowledges", index, offset)
        if self.committed[index].get(offset) != content:
            raise Violation(f"{offset} of {index} is acknowledged and not committed")
        if self.flush_messages != 1:
            return
        for member in self.controller.parts[index].isr:
            end_offset = self.nodes[member].durable_end(index)
            if end_offset <= offset:
                raise Violation(
                    f"I2: {offset} of {index} is acknowledged, {member} in sync holds {end_offset}"
                )

    def write(self, index: int) -> Write | None:
        """A batch to whoever takes it, also to one that only believes that it leads."""
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
        """Let time pass, with writes."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.network.timeline.run_for(self.chance.randint(1, 2 * write_every_ms))
            self.write(self.chance.randrange(len(self.committed)))
            self._look()

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, and nobody writes."""
        self.network.timeline.run_for(duration_ms)
        self._look()

    def _look(self) -> None:
        if self.broken:
            raise self.broken[0]
        for node in self.nodes.values():
            if node.is_up and node.replicas is not None:
                for replica in node.replicas:
                    node.look(replica)

    # Faults.

    def misbehave(self) -> None:
        """One fault, or the end of one."""
        chance, network = self.chance, self.network
        node = chance.choice(list(self.nodes.values()))
        hosts = sorted(one.host for one in self.nodes.values())
        if not node.is_up:
            node.disk.refuses = None
            node.start()
            return
        index = chance.randrange(len(self.committed))
        match chance.choice(FAULTS):
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
            case "trim":
                offsets = sorted(self.committed[index])
                if offsets:
                    node.trim(index, chance.choice(offsets))

    def mend(self) -> None:
        """All faults are over."""
        self.network.heal()
        for node in self.nodes.values():
            node.disk.refuses = None
            node.is_cut_off = False
            if not node.is_up:
                node.start()

    def heal(self) -> None:
        """Everything works again: within 30 s all are in sync, and all logs are one."""
        self.mend()
        end_ms = self.now_ms + HEAL_MS
        # What is written above the high watermark of a leader that stands commits with the next.
        wanting = set(self.committed)
        while (missing := self.missing()) or wanting:
            if self.now_ms > end_ms:
                raise Violation(f"{HEAL_MS} ms after the healing: {missing} {wanting}")
            self.pass_time(LOOK_MS)
            wanting = {index for index in wanting if missing or self.write(index) is None}
        self.pass_time(WRITE_MS + LOOK_MS)
        waiting = [write for write in self.writes if write.end is None]
        # Those of lives that are over have nobody to answer.
        assert not [one for one in waiting if one._node.world.is_over is False], "waits never ended"
        self.judge()

    def missing(self) -> str:
        """What a healthy cluster would have and this one has not; empty when nothing."""
        for index, part in self.controller.parts.items():
            if part.leader == NO_NODE or len(part.isr) < len(self.nodes):
                return f"{part} of {index}"
            leader = self.nodes[part.leader].find(index)
            if leader is None or leader.leader_epoch != part.leader_epoch:
                return f"{part.leader} does not lead {index} yet"
            end_offset = leader.log.log_end_offset
            if leader.log.high_watermark < end_offset:
                return f"{index} is committed to {leader.log.high_watermark} of {end_offset}"
            for node in self.nodes.values():
                log = node.logs.get(TopicPartition(TOPIC, index))
                if log is None or log.log_end_offset != end_offset:
                    return f"{node.node_id} lags in {index}"
        return ""

    def judge(self) -> None:
        """All logs are the same, and hold all that was ever acknowledged."""
        for index, part in self.controller.parts.items():
            leader = self.nodes[part.leader].logs.logs[TopicPartition(TOPIC, index)]
            whole = dict(batches_of(leader, leader.log_start_offset, EVERYTHING))
            for node in self.nodes.values():
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


FAULTS = (
    *("kill", "power", "power", "all power", "cut", "cut", "cut", "heal", "heal", "lose"),
    *("full", "room", "room", "cut off", "heard", "heard", "prefer", "prefer", "prefer"),
    *("fence", "trim"),
)


def _partition(part: Part) -> PartitionImage:
    return PartitionImage(
        replicas=part.replicas,
        in_sync_replicas=part.isr,
        leader=part.leader,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        eligible_leader_replicas=part.elr,
    )
