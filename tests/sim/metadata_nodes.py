"""The metadata components of a cluster's nodes, which form one quorum. Logs, files, sessions and
links are real, on simulated disks and a simulated network.

`MetadataCluster` sends orders, causes faults for a while, and checks these invariants: committed
batches are equal on all nodes and stay; an epoch has one leader; no answered order is lost or
executed twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

from broker.budget import TurnBudget
from broker.cluster import quorum_state
from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.loader import Loader
from broker.cluster.messenger import LinkMessenger
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import DiskWorkers, MetadataLog
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshotter import SnapshotLimits, Snapshotter
from broker.config import BROKER_LISTENER, InForce, Listener, LogConfig
from broker.controller.active import OrderLimits
from broker.controller.controller import Controller
from broker.controller.outcome import AllocateProducerIds
from broker.interbroker.quorum import quorum_handlers
from broker.interbroker.versions import version_handlers
from broker.metadata.image import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    MetadataDelta,
    MetadataImage,
)
from broker.metrics.metrics import Metrics
from broker.metrics.warnings import Warnings
from broker.quorum.quorum import Quorum
from broker.quorum.ready import LeadsEpoch, RoleChange
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from broker.sessions.dispatch import Dispatcher, Handler
from broker.sessions.peers import Peers
from broker.sessions.reception import Reception
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from broker.sessions.versions import OWN_VERSIONS, Versions
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.retention import drop_below
from broker.world import Address
from protocol.errors import ApiError
from protocol.messages.api import ApiKey
from protocol.types import Uuid
from protocol.wire.records import read_header
from tests.sim.disk import SimDisk
from tests.sim.network import Mix, Network
from tests.sim.world import SimWorld
from tests.unit.broker.security.acls import NotedDenials
from tests.unit.storage.kit import broker_config

PORT = 9095
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
SNAPSHOTS = SnapshotLimits(records=12)
LOG_CONFIG = LogConfig(segment_bytes=600, segment_ms=2**62)
NOW_MS = 2**40
JOB_MS = (0, 12)
"""The time of a sync and similar jobs."""
NO_SHORT_WAY: Any = SimpleNamespace(start=lambda *asked: False)


def key_of(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(int=1_000 + node_id))


class Publisher:
    """Applies committed metadata, sometimes after a delay, as if it created folders."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world

    def apply(self, delta: MetadataDelta, image: MetadataImage, done: Any) -> None:
        if image.end_offset % 3:
            done()
        else:
            self._world.later(self._world.chance.randint(0, 5), done)

    def published(self, delta: MetadataDelta) -> None:
        pass


class Trimmer:
    """Deletes segments below the log start offset, as housekeeping does, but at once."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def trim(self, log: Log, start_offset: int) -> None:
        self._logs.checkpoint(frees_room=True).perform()
        dropped = drop_below(log, start_offset, NOW_MS)
        if dropped is not None:
            dropped.perform()


class MetadataNode:
    """One node. Its disk outlives its processes."""

    def __init__(self, cluster: MetadataCluster, node_id: int) -> None:
        self.node_id = node_id
        self._versions = cluster.versions.get(node_id, OWN_VERSIONS)
        self.host = f"n{node_id}"
        self.disk = SimDisk()
        self.metadata: Metadata | None = None
        self._cluster = cluster

    def start(self) -> None:
        """Start a new process with the data on the node's disk."""
        cluster = self._cluster
        world = cluster.network.world(self.host)
        world.job_ms = JOB_MS
        address = {"host": self.host, "port": PORT}
        address |= {"advertised_host": self.host, "advertised_port": PORT}
        config = broker_config(
            node_id=self.node_id, cluster_id=CLUSTER_ID, listeners={BROKER_LISTENER: address}
        )
        now_ms = world.clock.now_ms()
        logs = LogManager(self.disk, config, key_of(self.node_id).directory_id)
        logs.open_all(now_ms)
        log = MetadataLog(
            self.disk,
            logs,
            logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, LOG_CONFIG, now_ms),
            world,
            lambda *refusal: None,
        )
        state = quorum_state.recover(self.disk, log, may_reset=True)
        if state is None:
            quorum_state.keep(self.disk, log, tuple(cluster.voters))
            state = quorum_state.recover(self.disk, log)
        assert state is not None
        peers = Peers(world, self.host, cluster.addresses, versions=self._versions or OWN_VERSIONS)
        messenger = LinkMessenger(peers, world.clock)
        quorum = Quorum(
            key_of(self.node_id),
            CLUSTER_ID,
            election=state.election,
            log=state.log,
            voters=state.voters,
            chance=world.chance,
            now_ms=world.clock.monotonic_ms(),
        )
        driver = QuorumDriver(quorum, log, world, messenger)
        messenger.serve(driver)
        controller = ControllerDriver(
            Controller(config, world.chance, NotedDenials()),
            OrderLimits(1_000, 1_000),
            driver,
            world,
        )
        snapshotter = Snapshotter(log, driver, world.clock, SNAPSHOTS)
        snapshotter.trim_with(Trimmer(logs))
        self.metadata = Metadata(log, driver, Loader(log), controller, snapshotter)
        driver.report_to(CommitWatch(self, self.metadata))
        self._listen(world, config, messenger)
        self.metadata.start(state.snapshot)
        workers = DiskWorkers(world.jobs("metadata"), world.jobs("files"))
        self.metadata.serve(Publisher(world), workers)

    def _listen(self, world: SimWorld, config: Any, messenger: LinkMessenger) -> None:
        settings = InForce(config)
        handlers = self.handlers(messenger)
        versions = self._versions or OWN_VERSIONS
        if self._versions is not None:
            handlers |= version_handlers(versions)
        metrics = Metrics(world.turn_ns, world.clock)
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
                handlers, {one: versions[one] for one in handlers}, metrics, lambda *_: None
            ),
            NO_SHORT_WAY,
            lambda: None,
            lambda refusal: None,
            Warnings(world.clock),
        )
        at: Listener = config.listeners[BROKER_LISTENER]
        world.listen(BROKER_LISTENER, at, lambda: Session(reception)).open()

    def handlers(self, messenger: LinkMessenger) -> dict[ApiKey, Handler]:
        """Return the handlers for requests of other nodes. Each process calls this once, before its
        first event."""
        return dict(quorum_handlers(messenger))

    def kill(self) -> None:
        """Kill the process. Written data survives in the page cache."""
        self._cluster.network.kill(self.host)
        self.disk.locked.clear()
        self.metadata = None

    def cut_power(self, chance: Random) -> None:
        """Cut the power of the machine. Unsynced data is lost."""
        self._cluster.network.cut_power(self.host)
        self.disk.crash(chance)
        self.metadata = None


class CommitWatch:
    """Stands between the quorum and its listener, and checks every committed batch."""

    def __init__(self, node: MetadataNode, metadata: Metadata) -> None:
        self._node = node
        self._metadata = metadata
        self._seen_offset = metadata.log.log.log_start_offset

    def committed(self, offset: int) -> None:
        cluster = self._node._cluster
        while self._seen_offset < offset and not self._metadata.log.is_truncating:
            for batch in self._metadata.log.batches(self._seen_offset, offset, 1 << 20):
                known = cluster.committed.setdefault(self._seen_offset, batch)
                assert known == batch, f"two batches are committed at {self._seen_offset}"
                self._seen_offset = read_header(batch).last_offset + 1
        self._metadata.committed(offset)

    def installed(self, snapshot: Any) -> None:
        self._seen_offset = snapshot.snapshot_id.end_offset
        self._metadata.installed(snapshot)

    def role(self, role: RoleChange) -> None:
        if isinstance(role, LeadsEpoch):
            leaders = self._node._cluster.leaders
            known = leaders.setdefault(role.epoch, self._node.node_id)
            assert known == self._node.node_id, f"epoch {role.epoch} has two leaders"
        self._metadata.role(role)

    def unwritten(self, end_offset: int, error: Exception) -> None:
        self._metadata.unwritten(end_offset, error)


class MetadataCluster:
    """Three metadata nodes, to which tests send orders."""

    def __init__(
        self, seed: str, size: int = 3, versions: Mapping[int, Versions | None] | None = None
    ) -> None:
        """`versions` has the versions that the nodes of other releases speak; None for a node that
        closes the connection on which it gets ApiVersions, as 1.0.0-rc1 does."""
        self.chance = Random(seed)
        self.network = Network(seed, Mix(late=0.02))
        ids = range(1, size + 1)
        self.voters = VoterSet(Voter(key_of(node_id)) for node_id in ids)
        self.addresses = {node_id: Address(f"n{node_id}", PORT) for node_id in ids}
        self.versions = versions or {}
        self.nodes = [self.node(node_id) for node_id in ids]
        self.committed: dict[int, bytes] = {}
        """Offset -> the batch that is committed there."""
        self.leaders: dict[int, int] = {}
        """Epoch -> the id of its leader."""
        self.given: set[int] = set()
        """The first id of each block of producer ids that was given out."""
        self.refused_count = 0
        for node in self.nodes:
            node.start()

    def node(self, node_id: int) -> MetadataNode:
        """Return a new node. Subclasses override this."""
        return MetadataNode(self, node_id)

    @property
    def running(self) -> list[MetadataNode]:
        return [node for node in self.nodes if node.metadata is not None]

    def order(self, node: MetadataNode) -> None:
        """Order a block of producer ids at a node, and check that no block is given twice."""
        assert node.metadata is not None

        def given(block: range) -> None:
            assert block.start not in self.given, f"block {block} was given twice"
            self.given.add(block.start)

        def refused(error: ApiError) -> None:
            self.refused_count += 1

        node.metadata.submit(AllocateProducerIds(node.node_id, 0), given, refused)

    def active(self) -> MetadataNode | None:
        """Return the active controller's node, or None."""
        return next(
            (one for one in self.running if one.metadata and one.metadata.controller.is_active),
            None,
        )

    def run_for(self, duration_ms: int, *, order_every_ms: int = 40) -> None:
        """Let time pass and send orders to the active controller."""
        for _ in range(duration_ms // order_every_ms):
            self.network.timeline.run_for(order_every_ms)
            if (node := self.active()) is not None:
                self.order(node)

    def run_until_active(self, limit_ms: int) -> MetadataNode:
        """Let time pass until a controller is active."""
        for _ in range(limit_ms // 10):
            self.network.timeline.run_for(10)
            if (node := self.active()) is not None:
                return node
        raise AssertionError(f"no controller leads after {limit_ms} ms")

    def misbehave(self) -> None:
        """Start one random fault, or end one."""
        chance, network = self.chance, self.network
        node = chance.choice(self.nodes)
        if node.metadata is None:
            try:
                node.start()
            except DiskError:
                # A process must create its log again after a power cut. On a full disk it fails and
                # ends, and a later call starts it again.
                assert node.disk.refuses is not None
                node.kill()
            return
        match chance.choice(("kill", "power", "cut", "cut", "heal", "lose", "full", "room")):
            case "kill":
                node.kill()
            case "power":
                node.cut_power(chance)
            case "cut":
                source, target = chance.sample(sorted(one.host for one in self.nodes), 2)
                network.cut(source, target)
            case "heal":
                network.heal()
            case "lose":
                network.lose_links(*chance.sample(sorted(one.host for one in self.nodes), 2))
            case "full":
                node.disk.refuses = lambda path, operation: operation == "write"
            case "room":
                node.disk.refuses = None

    def mend(self) -> None:
        """End all faults."""
        self.network.heal()
        for node in self.nodes:
            node.disk.refuses = None
            if node.metadata is None:
                node.start()

    def judge(self) -> None:
        """Check that all nodes have the same image, and that it includes every block of producer
        ids that was given out."""
        images = []
        for node in self.nodes:
            assert node.metadata is not None
            images.append(node.metadata.image)
        assert images == [images[0]] * len(images), [one.end_offset for one in images]
        assert images[0].next_producer_id > max(self.given), "an order that was answered is lost"
        blocks = range(0, images[0].next_producer_id, 1_000)
        assert self.given <= set(blocks)
