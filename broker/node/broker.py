"""One broker: the only place that creates all its parts.

Room: node. `start` goes from the data folder to open listeners, `stop` goes back. The process
around it is `real/process`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from broker.alarm import Alarm
from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import Hands, MetadataLog
from broker.cluster.snapshotter import SNAPSHOT_BYTES
from broker.config import BrokerConfig, InForce, LogConfig
from broker.controller.controller import Controller
from broker.controller.registration import Registration
from broker.metadata.image import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
)
from broker.metrics.metrics import Metrics
from broker.node.joining import ClusterJoin, OwnDisk
from broker.node.leaving import ClusterLeave
from broker.node.listeners import Listeners
from broker.node.parts import BrokerParts, put_together
from broker.node.publisher import NodePublisher, reconfigure
from broker.node.replication import Replication
from broker.node.serving import Serving
from broker.node.tables import client_table, controller_table, quorum_table
from broker.node.transacting import Transacting
from broker.produce.fast_path import QuickProduces
from broker.purgatory import Purgatory
from broker.replicas.checkpoint_queue import CheckpointQueue
from broker.replicas.flusher import STOP_S_MAX, Flusher
from broker.replicas.folders import Folders
from broker.replicas.housekeeping import Housekeeping
from broker.replicas.place import Alone
from broker.replicas.refusals import note_refusals
from broker.replicas.replicas import Replicas
from broker.replication.follower_session import FollowerIdentity
from broker.settings import LONG_MAX
from broker.shards.groups import GroupCoordinator
from broker.shards.loaded_shard import ShardPorts
from broker.shards.producer_ids import ProducerIds
from broker.storage.disk import Disk
from broker.storage.errors import DiskError, FolderError
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.open_report import OpenReport
from broker.world import World
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.types import NO_BROKER_EPOCH, random_uuid

logger = logging.getLogger(__name__)

METADATA_CONFIG = LogConfig(segment_bytes=SNAPSHOT_BYTES, segment_ms=LONG_MAX)
"""The node's settings are for client data. A segment is removed when two snapshots are above it.
Its age does not count, because quorum records have no timestamps.
"""


class Broker:
    """All parts of one node."""

    def __init__(self, config: BrokerConfig, world: World, disk: Disk) -> None:
        """Binds the listeners. Raises PortTaken."""
        self.config = config
        self.clock = world.clock
        self._world = world
        self._disk = disk
        self.settings = InForce(config)
        self.metrics = Metrics(world.turn_ns, world.clock)
        self.listeners = Listeners(self.settings, world, self.metrics)
        self.worker = world.jobs("files", self.disk_failed)
        self._metadata_worker = world.jobs("metadata", self.disk_failed)
        self.flusher = Flusher(
            world,
            lambda error: self._disk_died(f"sync failed: {error}"),
            self.metrics.flushes.add,
            lambda log, error: self.write_failed(log.topic_partition, error, self.clock.now_ms()),
        )
        self.alarm = Alarm(
            world, lambda now_ms: self.serving.on_time(now_ms), self.metrics.loop_lateness.add
        )
        self.write_failed = note_refusals(self.metrics, self._disk_died)
        self.is_serving = False
        self.joining: ClusterJoin | None = None
        self._metadata: Metadata | None = None
        self._replication: Replication | None = None
        """None for a broker without others."""
        self._transacting: Transacting | None = None
        self._is_starting = False
        self._are_clients_in = False
        self._broker_epoch = NO_BROKER_EPOCH
        self._logs: LogManager | None = None
        self._metadata_log: Log | None = None

    @property
    def joined(self) -> Metadata | None:
        """The cluster metadata; None before the broker has joined."""
        return self._metadata

    @property
    def metadata(self) -> Metadata:
        """The cluster metadata. The broker must have joined."""
        assert self._metadata is not None, "not joined yet"
        return self._metadata

    # Starting.

    def recover(self) -> OpenReport:
        """Lock the data folder and open every log in it. Call it in a thread: it can take long."""
        new_directory_id = random_uuid(self._world.chance.randbytes(16))
        self._logs = LogManager(self._disk, self.config, new_directory_id)
        report = self._logs.open_all(self.clock.now_ms())
        known = self._logs.logs.keys() | self._logs.offline.keys()
        if known and METADATA_PARTITION not in known:
            raise FolderError(
                self.config.log_dir,
                "there are partitions but no __cluster_metadata-0, which lists their topics; "
                "put it back, or use an empty folder",
            )
        self._metadata_log = self._logs.create(
            METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_CONFIG, self.clock.now_ms()
        )
        return report

    def start(self, report: OpenReport, ready: Callable[[], None] = lambda: None) -> None:
        """Join the cluster, register, open all partitions and the listeners, then call `ready`.

        A broker that is configured alone is ready when this returns. Raises the error that prevents
        the start. If a broker of a cluster is refused later, its process ends.
        """
        assert self._logs is not None and self._metadata_log is not None
        self._report, self._ready = report, ready
        log = MetadataLog(
            self._disk,
            self._logs,
            self._metadata_log,
            self._world,
            self.write_failed,
            self.metrics.flushes.add,
        )
        own = OwnDisk(self._disk, self._logs, log, Hands(self._metadata_worker, self.worker))
        self._controller = Controller(self.config, self._world.chance)
        joining = self.joining = ClusterJoin(
            self.settings,
            self._world,
            own,
            self._controller,
            self._joined,
            self,
        )
        # Do this first, because no cluster can begin unless the brokers reach each other.
        self.listeners.serve_brokers(quorum_table(joining.messenger, joining.birth))
        self.listeners.open_to_brokers()
        self._is_starting = True
        joining.start()
        self._is_starting = False

    def _joined(self, metadata: Metadata) -> None:
        """Continue with the metadata, which are known up to the last commit."""
        self._metadata = metadata
        reconfigure(self.config, metadata.image, self.settings, self._controller)
        assert self.joining is not None
        liveness = self.joining.liveness
        if liveness is not None:
            self.listeners.serve_brokers(controller_table(metadata, liveness))
            return
        registered = metadata.submit_now(Registration(self.joining.registration()))
        self._serve(registered.broker_epoch)
        self._let_clients_in()
        self._ready()

    # Notifications about membership, for a broker of a cluster.

    def registered(self, broker_epoch: int) -> None:
        """The broker is registered, and the metadata refer to this process."""
        # Continue in the next turn, because the caller must first finish its own state.
        self._world.soon(self._serve_as_member, broker_epoch)

    def _serve_as_member(self, broker_epoch: int) -> None:
        assert self.joining is not None and self.joining.membership is not None
        self._serve(broker_epoch)
        assert self._replication is not None and self._logs is not None
        try:
            self._logs.marks.running(broker_epoch)
        except DiskError as error:
            # Continue: without this mark the next start only trusts less data.
            if error.is_final:
                self.disk_failed(error)
        self._replication.start()
        self.joining.membership.ready()

    def unfenced(self) -> None:
        """The broker is in service: open the client listeners."""
        self._let_clients_in()
        ready, self._ready = self._ready, lambda: None
        ready()

    def fenced(self) -> None:
        """The broker was taken out of service. Others lead its partitions."""
        level = logging.INFO if self._leaving.has_begun else logging.WARNING
        logger.log(level, "taken out of service", extra=fields(node_id=self.config.node_id))

    def may_stop(self) -> None:
        """The broker may stop, because no other broker depends on it."""
        self._leaving.may_stop()

    @property
    def _leaving(self) -> ClusterLeave:
        assert self.joining is not None and self.joining.leaving is not None, "no other brokers"
        return self.joining.leaving

    def refused(self, text: str) -> None:
        """The cluster refuses this process: end it."""
        if self._is_starting:
            raise FolderError(self.config.log_dir, text)
        self._world.die(f"{self.config.log_dir}: {text}")

    def _serve(self, broker_epoch: int) -> None:
        """Open all partitions, and get ready for clients."""
        self._broker_epoch = broker_epoch
        report, parts = self._report, self._put_together(broker_epoch)
        reconfigure(self.config, parts.metadata.image, self.settings, self._controller)
        dropped = parts.replicas.open_all(parts.metadata.image, parts.metadata.removed_ids)
        self._keep_house(parts)
        for files in [*dropped, *([report.dropped] if report.dropped is not None else [])]:
            self.housekeeping.unlink(files)
        parts.groups.follow()
        parts.transactions.follow()
        self.fast_path = QuickProduces(parts.produces, self.metrics.times_of(ApiKey.PRODUCE))
        self.alarm.wake_by(self.housekeeping.next_deadline_ms)
        self.is_serving = True

    def _let_clients_in(self) -> None:
        """Open the client listeners once, unless the broker is already stopping.

        A broker of a cluster does so only when it is in service. After all brokers have died, each
        is fenced until then, so Metadata would name none. librdkafka (2.16) forgets brokers that an
        answer does not name, and would then never connect again.
        """
        if self.is_serving and not self._are_clients_in:
            self._are_clients_in = True
            parts = self.parts
            self.listeners.open_to_clients(
                client_table(parts), self.fast_path, parts.produces.settle
            )

    def _replicate(self, membership: MembershipDriver, broker_epoch: int) -> None:
        """Set up the replication between brokers, before any partition is opened."""
        assert self.joining is not None
        replication = self._replication = Replication(
            FollowerIdentity(self.config.node_id, broker_epoch),
            self._world,
            self.joining.peers,
            membership,
            self.replicas,
            self.worker,
            self.metrics.warnings,
            self.write_failed,
            lambda log, start_offset, durable: self.housekeeping.trim(log, start_offset, durable),
        )
        self.listeners.serve_brokers(replication.handlers(self.joining.messenger))

    def _put_together(self, broker_epoch: int) -> BrokerParts:
        """Create everything that serves clients."""
        assert self._logs is not None
        world, settings, alarm, metrics = self._world, self.settings, self.alarm, self.metrics
        metadata = self.metadata
        assert self.joining is not None
        membership = self.joining.membership
        waits = Purgatory(alarm.wake_by)
        folders = Folders(settings, world.clock, self._logs, self.worker)
        replicas = self.replicas = Replicas(
            settings,
            broker_epoch,
            world.clock,
            self._logs,
            self.flusher,
            folders,
            Alone(world.clock) if membership is None else membership,
        )
        if membership is not None:
            self._replicate(membership, broker_epoch)
        ports = ShardPorts(
            world.clock, world.soon, lambda: metadata.image, replicas, waits, self.write_failed
        )
        groups = GroupCoordinator(ports, settings, alarm, world.chance, metrics.warnings)
        peers = None if membership is None else self.joining.peers
        transacting = self._transacting = Transacting(ports, settings, groups, world, peers)
        self.parts = put_together(
            settings,
            world,
            metrics,
            metadata,
            waits,
            folders,
            CheckpointQueue(self._logs, self.worker),
            replicas,
            transacting,
            ProducerIds(metadata, self.config.node_id, broker_epoch),
            self.write_failed,
            peers,
        )
        self.serving = Serving(self.parts, self.listeners, self._replication)
        metadata.serve(
            NodePublisher(self.config, self._controller, self.parts),
            Hands(self._metadata_worker, self.worker),
        )
        if membership is not None:
            self.listeners.serve_brokers(transacting.handlers())
        return self.parts

    def _keep_house(self, parts: BrokerParts) -> None:
        house = self.housekeeping = Housekeeping(
            self.settings,
            self._world,
            self.alarm,
            self.metrics,
            parts.replicas,
            parts.folders,
            parts.checkpoints,
            self.worker,
        )
        self.serving.keep(house)

    # Internal failures.

    def disk_failed(self, error: Exception) -> None:
        """End the process after a failed sync or a dead disk, so that no answer follows."""
        self._disk_died(f"the disk has failed: {error}")

    def _disk_died(self, reason: str) -> NoReturn:
        if self._logs is not None:
            self._logs.marks.distrust_cache()
        self._world.die(reason)

    # Stopping.

    def hand_over(self, done: Callable[[], None]) -> None:
        """Hand over the leaderships while still serving, then call `done`: at once without other
        brokers, after a few seconds if no other broker can take them.
        """
        leaving = self.joining.leaving if self.joining is not None else None
        if leaving is None or not self.is_serving:
            done()
        else:
            leaving.begin(done)

    def stop_serving(self) -> None:
        """Accept and read nothing more, and answer parked fetches and waiting group members."""
        was_serving, self.is_serving = self.is_serving, False
        self.listeners.close()
        if not was_serving:
            if self.joining is not None:
                self.joining.stop()
            return
        self.serving.stop()

    @property
    def is_quiet(self) -> bool:
        """True if everything accepted has been synced and answered."""
        return (
            self.flusher.is_idle
            and (self._metadata is None or self._metadata.is_quiet)
            and all(one.is_idle for one in self.listeners.sessions.open)
        )

    def close(self) -> None:
        """Close the connections, write checkpoints and the marker of a clean stop."""
        self.alarm.stop()
        for session in list(self.listeners.sessions.open):
            session.close("the broker stops", is_logged=False)
        self.metrics.warnings.close_all()
        if self._replication is not None:
            self._replication.stop()
        if self._transacting is not None:
            self._transacting.stop()
        if self.joining is not None:
            self.joining.stop()
        if self._metadata is not None:
            self._metadata.stop()
        is_synced = (
            self._metadata_worker.stop(STOP_S_MAX) and self.worker.stop() and self.flusher.stop()
        )
        if not is_synced:
            # Clients can no longer get the errors. A marker would claim that all is durable.
            self._disk_died("a sync has failed, or did not end, while the broker stopped")
        if self._logs is not None:
            self._logs.close_clean(self._broker_epoch)
            logger.info("stopped cleanly", extra=fields(log_dir=self.config.log_dir))
