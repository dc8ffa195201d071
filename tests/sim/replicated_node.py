"""A node that replicates. It has real logs on a simulated disk. Its roles, followers, fetches and
proposals are real, too, and use sessions and links of a simulated network. `replicated_nodes` runs
several such nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from broker.budget import TurnBudget
from broker.config import BROKER_LISTENER, InForce, Listener
from broker.fetch.replica_fetch import ReplicaFetches
from broker.fetch.replica_ports import ReplicaFetchPorts
from broker.interbroker.versions import version_handlers
from broker.metadata.image import MetadataDelta, MetadataImage
from broker.metrics.metrics import Metrics
from broker.metrics.warnings import Warnings
from broker.replicas.copy_limit import CopyLimit
from broker.replicas.flusher import Flusher
from broker.replicas.folders import Folders
from broker.replicas.follower_logs import FollowerPorts
from broker.replicas.followers import Followers
from broker.replicas.isr_driver import IsrDriver
from broker.replicas.place import Alone
from broker.replicas.replica import Replica
from broker.replicas.replica_listener import BaseReplicaListener
from broker.replicas.replicas import Replicas
from broker.replication.follower_session import FollowerIdentity
from broker.sessions.call import Call
from broker.sessions.dispatch import Dispatcher, Handler
from broker.sessions.peers import Peers
from broker.sessions.reception import Reception
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from broker.sessions.versions import OWN_VERSIONS
from broker.storage.errors import DiskError
from broker.storage.folder import parse_folder_name
from broker.storage.folder_jobs import DELETE_SUFFIX
from broker.storage.identity import read_topic_id
from broker.storage.log import Log
from broker.storage.retention import drop_below
from broker.world import End
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey, request_class
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.headers import decode_request_header, encode_request
from protocol.messages.membership import (
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from protocol.types import NO_OFFSET, TopicPartition, Uuid
from protocol.wire.records import iterate_batches
from tests.sim.replication.controller import AlterPartition
from tests.sim.violation import Violation
from tests.sim.watched import WatchedDisk, WatchedLogs
from tests.unit.storage.kit import FOLDER, append, batch, broker_config

if TYPE_CHECKING:
    from tests.sim.replicated_nodes import ReplicatedCluster

PORT = 9095
TOPIC = "replicated"
JOB_MS = (0, 6)
TICK_MS = 250
CHECKPOINT_MS = 400
ASK_MS = 600
WRITE_MS = 4_000
NO_SHORT_WAY: Any = SimpleNamespace(start=lambda *asked: False)


def host_of(node_id: int) -> str:
    return f"n{node_id}"


def batches_of(log: Log, start_offset: int, end_offset: int) -> list[tuple[int, bytes]]:
    """Return the offset and the bytes of each batch of a log between two offsets."""
    found: list[tuple[int, bytes]] = []
    while start_offset < end_offset:
        read = log.read(start_offset, 1 << 20, end_offset)
        if read.region is None:
            break
        for header, view in iterate_batches(read.region.read()):
            found.append((header.base_offset, bytes(view)))
            start_offset = header.last_offset + 1
    return found


class Watermarks(BaseReplicaListener):
    """A listener that checks every change of a high watermark."""

    def __init__(self, node: ReplicatedNode) -> None:
        self._node = node

    def moved(self, replica: Replica) -> None:
        self._node.advanced(replica)


class Write:
    """A client's batch with acks=all. Its wait must end only once."""

    def __init__(self, node: ReplicatedNode, replica: Replica, offset: int) -> None:
        self.end: str | None = None
        self.life = node.world
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
    """One node. Its disk outlives its processes."""

    def __init__(self, cluster: ReplicatedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host_of(node_id)
        self.disk = WatchedDisk(self._renames)
        self.incarnation = 0
        self.replays_from: int | None = None
        """The number of metadata records that the next process has replayed when it registers. None
        means a random number."""
        self.is_up = False
        self.is_cut_off = False
        """True if this node and the controller do not reach each other."""
        self.durable_ends: dict[int, int] = {}
        """The durable end of each partition when the last process ended."""

    # Start and end of a process.

    def start(self) -> None:
        """Start a new process with the data on the node's disk."""
        self.incarnation += 1
        self.is_up = True
        world = self.world = self.cluster.network.world(self.host)
        world.job_ms = JOB_MS
        address = {"host": self.host, "port": PORT}
        address |= {"advertised_host": self.host, "advertised_port": PORT}
        self.config = broker_config(
            node_id=self.node_id,
            listeners={BROKER_LISTENER: address},
            settings={"log.flush.interval.messages": 1},
        )
        self.settings = InForce(self.config)
        self.logs = WatchedLogs(self.disk, self.config, Uuid(int=1_000 + self.node_id))
        self.left_over = self.logs.open_all(world.clock.now_ms()).dropped
        assert not self.logs.offline, f"{self.host}: {self.logs.offline}"
        self.replicas: Replicas | None = None
        self.image = MetadataImage()
        self.seen: dict[tuple[int, int], int] = {}
        """(partition, leader epoch) -> the highest high watermark that this process has seen."""
        self.checked: dict[int, int] = {}
        world.later(world.chance.randint(0, 30), self._register)

    def kill(self) -> None:
        """Kill the process. Written data survives in the page cache."""
        self._ends()
        self.cluster.network.kill(self.host)
        self.disk.locked.clear()

    def cut_power(self) -> None:
        """Cut the power of the machine. Unsynced data is lost."""
        self._ends()
        self.cluster.network.cut_power(self.host)
        self.disk.crash(self.cluster.chance)

    def _ends(self) -> None:
        self.durable_ends = {
            tp.partition: self.logs.durable_end(log) for tp, log in self.logs.logs.items()
        }
        self.is_up = False

    def durable_end(self, index: int) -> int:
        if not self.is_up:
            return self.durable_ends.get(index, 0)
        log = self.logs.get(TopicPartition(TOPIC, index))
        return 0 if log is None else self.logs.durable_end(log)

    # The components of the process.

    def _register(self) -> None:
        if self.is_cut_off:
            self.world.later(TICK_MS, self._register)
            return
        controller = self.cluster.controller
        broker_epoch = controller.register(self.node_id, self.incarnation, self.cluster.now_ms)
        self.me = FollowerIdentity(self.node_id, broker_epoch)
        self._put_together()
        # The metadata that it has replayed so far can be older than its registration.
        self.replayed = self.cluster.chance.randint(0, len(controller.log))
        if self.replays_from is not None:
            self.replayed, self.replays_from = self.replays_from, None
        if self.replayed:
            self.image = self.cluster.images[self.replayed - 1]
        assert self.replicas is not None
        dropped = self.replicas.open_all(self.image, set())
        for files in [*dropped, *([self.left_over] if self.left_over is not None else [])]:
            self.files.run(files.perform, lambda _: None, lambda error: None)
        self.isr_driver.start()
        self._heartbeat()
        self._checkpoint()
        self._replay()

    def _put_together(self) -> None:
        world, settings = self.world, self.settings
        self.files = world.jobs("files", lambda error: world.die(str(error)))
        flusher = Flusher(world, lambda error: world.die(str(error)))
        lived_ms = world.clock.monotonic_ms
        replicas = self.replicas = Replicas(
            settings,
            self.me.broker_epoch,
            world.clock,
            self.logs,
            flusher,
            Folders(settings, world.clock, self.logs, self.files, self.me.broker_epoch),
            Alone(world.clock),
        )
        replicas.listen(Watermarks(self))
        self.peers = Peers(world, self.host, self.cluster.addresses)
        self.isr_driver = IsrDriver(world, self.me, replicas, self._ask_controller, lived_ms)
        warnings = Warnings(world.clock)
        self.fetches = ReplicaFetches(
            ReplicaFetchPorts(
                world,
                replicas,
                warnings,
                lived_ms,
                self.isr_driver.heard,
                CopyLimit.of_leader(settings, world.clock),
            )
        )
        ports = FollowerPorts(
            world,
            self.peers,
            replicas,
            self.files,
            warnings,
            lambda *refusal: None,
            self._trim,
            CopyLimit.of_follower(settings, world.clock),
        )
        self.followers = Followers(ports, self.me, self.logs.directory_id)
        replicas.listen(self.followers, self.fetches)
        self._listen(settings, warnings)

    def _listen(self, settings: InForce, warnings: Warnings) -> None:
        world = self.world
        handlers: dict[ApiKey, Handler] = {
            ApiKey.FETCH: self._fetch,
            **version_handlers(OWN_VERSIONS),
        }
        reception = Reception(
            BROKER_LISTENER,
            settings,
            world.clock,
            world.turn_ns,
            world.soon,
            world.later,
            TurnBudget(world.turn_ns, world.soon),
            Sessions(settings),
            Dispatcher(
                handlers,
                {one: OWN_VERSIONS[one] for one in handlers},
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
            # A real session would only log this error and close, so keep it to fail the test.
            self.cluster.broken.append(error)
            raise

    def _trim(
        self, log: Log, start_offset: int, durable: Callable[[], None] = lambda: None
    ) -> None:
        """Delete the segments below the log start offset, as housekeeping does."""

        def drop(_: None) -> None:
            durable()
            dropped = drop_below(log, start_offset, self.world.clock.now_ms())
            if dropped is not None:
                self.files.run(dropped.perform, lambda _: None, lambda error: None)

        self.files.run(self.logs.checkpoint(frees_room=True).perform, drop, lambda error: None)

    def _checkpoint(self) -> None:
        assert self.replicas is not None
        self.replicas.retry(lambda: None)
        self.files.run(self.logs.checkpoint().perform, lambda _: None, lambda error: None)
        self.world.later(CHECKPOINT_MS, self._checkpoint)

    # Requests to the controller, and its metadata.

    def _heartbeat(self) -> None:
        if not self.is_cut_off:
            self.cluster.controller.heartbeat(
                self.node_id, self.me.broker_epoch, self.image.end_offset, self.cluster.now_ms
            )
        self.world.later(TICK_MS, self._heartbeat)

    def _replay(self) -> None:
        """Replay the next metadata record after a delay."""
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
        is_late = chance.random() < self.cluster.late_news
        delay_ms = chance.randint(20, 300) if is_late else chance.randint(0, 4)
        self.world.later(delay_ms, self._replay)

    def _ask_controller(
        self,
        request: Any,
        answered: Callable[[Any], None],
        failed: Callable[[End], None],
    ) -> None:
        """Send a request to the controller. The request or its response can be lost."""
        chance, world = self.cluster.chance, self.world
        version = OWN_VERSIONS[request.api_key][-1]
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
        # The request can arrive after the process that sent it has ended.
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

    # Requests of clients.

    def find(self, index: int) -> Replica | None:
        if not self.is_up or self.replicas is None:
            return None
        return self.replicas.get(TOPIC, index)

    def write(self, index: int, value: bytes) -> Write | None:
        """Append a client's batch if this node believes that it is the leader."""
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
        replica.on_written()
        return write

    def trim(self, index: int, offset: int) -> None:
        """Handle DeleteRecords if this node is the leader."""
        replica = self.find(index)
        if replica is not None and self.replicas is not None:
            start_offset = min(offset, replica.log.high_watermark)
            replica.log.advance_log_start(start_offset)
            replica.on_trimmed()
            self._trim(replica.log, start_offset)

    def folders_of(self, index: int) -> list[str]:
        """Return the names of the folders that this partition has on the node's disk.

        Leave out folders without a topic id. A full disk left them unfinished, and the next start
        removes them.
        """
        names = self.disk.list_folder(FOLDER)
        found = [name for name in names if name.startswith(f"{TOPIC}-{index}")]
        return [name for name in found if read_topic_id(self.disk, f"{FOLDER}/{name}") is not None]

    # Invariants.

    def _renames(self, path: str, target: str) -> None:
        """When a folder is renamed for deletion, check that this process has seen metadata without
        its replica (I17)."""
        if not target.endswith(DELETE_SUFFIX):
            return
        place = parse_folder_name(path.rpartition("/")[2])
        assert place is not None, path
        known = self.image.end_offset
        seen = [
            image.topics[TOPIC].partitions[place.partition]
            for image in self.cluster.images
            if self.me.broker_epoch < image.end_offset <= known
        ]
        if all(self.node_id in partition.replicas for partition in seen):
            raise Violation(f"I17: {self.node_id} deletes {place}, and is its replica")

    def look_at_sessions(self) -> None:
        """Check that no partition is in both sessions of a follower (trap 36)."""
        lines = self.fetches._lines
        for name, line in lines.items():
            other = lines.get(name.other)
            if other is not None and line.session.partitions.keys() & other.session.partitions:
                raise Violation(f"{name} at {self.node_id}: a partition is in two sessions")

    def advanced(self, replica: Replica) -> None:
        """Check after a move of the high watermark that all logs are equal below it."""
        index, log = replica.index, replica.log
        committed = self.cluster.committed[index]
        start_offset = max(self.checked.get(index, 0), log.log_start_offset)
        for offset, content in batches_of(log, start_offset, log.high_watermark):
            if not replica.is_led and offset not in committed:
                raise Violation(f"I3: follower {self.node_id} of {index} is first to know {offset}")
            if committed.setdefault(offset, content) != content:
                raise Violation(f"I3: {self.node_id} of {index} differs at {offset}")
        self.checked[index] = log.high_watermark
        if replica.is_led:
            self.cluster.advanced(index, log.high_watermark)
        self.look(replica)

    def look(self, replica: Replica) -> None:
        """Check that a high watermark never falls within a leader epoch."""
        key = replica.index, replica.leader_epoch
        mark = replica.state.high_watermark
        if mark < self.seen.get(key, NO_OFFSET):
            raise Violation(f"I5: {self.node_id} of {key} falls from {self.seen[key]} to {mark}")
        self.seen[key] = mark
