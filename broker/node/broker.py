"""One broker. No other room creates the parts of a broker.

`start` takes the broker from its data folder to open listeners. `hand_over`, `stop_serving` and
`close` stop it in this order. The process around the broker is `real/process`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from broker.alarm import Alarm
from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import DiskWorkers, MetadataLog
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
from broker.node.parts import BrokerParts, create_parts
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
"""The settings of the metadata log. A segment is removed when two snapshots are above it, and not
by its age, because the records of the quorum have no timestamps."""


class Broker:
    """One broker with all its parts."""

    def __init__(self, config: BrokerConfig, world: World, disk: Disk) -> None:
        """Bind the listeners. Raises PortTaken if a port is in use."""
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
            lambda error: self._end_process(f"sync failed: {error}"),
            self.metrics.flushes.add,
            lambda log, error: self.write_failed(log.topic_partition, error, self.clock.now_ms()),
        )
        self.alarm = Alarm(
            world, lambda now_ms: self.serving.on_time(now_ms), self.metrics.loop_lateness.add
        )
        self.write_failed = note_refusals(self.metrics, self._end_process)
        self.is_serving = False
        self.joining: ClusterJoin | None = None
        self._metadata: Metadata | None = None
        self._replication: Replication | None = None
        """The replication between brokers; None for a broker that is configured alone."""
        self._transacting: Transacting | None = None
        self._is_starting = False
        self._is_open_to_clients = False
        self._broker_epoch = NO_BROKER_EPOCH
        self._logs: LogManager | None = None
        self._metadata_log: Log | None = None

    @property
    def joined(self) -> Metadata | None:
        """The metadata of the cluster; None before the broker has joined."""
        return self._metadata

    @property
    def metadata(self) -> Metadata:
        """The metadata of the cluster. The broker must have joined."""
        assert self._metadata is not None, "not joined yet"
        return self._metadata

    # Starting.

    def recover(self) -> OpenReport:
        """Lock the data folder and open its logs. Call it in a thread, because it can take long."""
        new_directory_id = random_uuid(self._world.chance.randbytes(16))
        self._logs = LogManager(self._disk, self.config, new_directory_id)
        report = self._logs.open_all(self.clock.now_ms())
        known = self._logs.logs.keys() | self._logs.offline.keys()
        if known and METADATA_PARTITION not in known:
            raise FolderError(
                self.config.log_dir,
                "the folder has partitions but no __cluster_metadata-0, which lists their topics; "
                "put that folder back, or use an empty data folder",
            )
        self._metadata_log = self._logs.create(
            METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_CONFIG, self.clock.now_ms()
        )
        return report

    def start(self, report: OpenReport, ready: Callable[[], None] = lambda: None) -> None:
        """Join the cluster, register, open all partitions and the listeners, then call `ready`.

        If the broker is configured alone, this method itself calls `ready`. Raises the error that
        prevents the start. If the cluster refuses the broker later, the process ends.
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
        own = OwnDisk(self._disk, self._logs, log, DiskWorkers(self._metadata_worker, self.worker))
        self._controller = Controller(self.config, self._world.chance, self.listeners.audit)
        joining = self.joining = ClusterJoin(
            self.settings,
            self._world,
            own,
            self._controller,
            self._joined,
            self,
        )
        # Open this listener first, because a cluster begins only when its brokers reach each other.
        self.listeners.serve_brokers(quorum_table(joining.messenger, joining.birth))
        self.listeners.open_to_brokers()
        self._is_starting = True
        joining.start()
        self._is_starting = False

    def _joined(self, metadata: Metadata) -> None:
        """Continue the start. The metadata have been replayed up to the last commit."""
        self._metadata = metadata
        reconfigure(self.config, metadata.image, self.settings, self._controller)
        assert self.joining is not None
        liveness = self.joining.liveness
        if liveness is not None:
            self.listeners.serve_brokers(controller_table(metadata, liveness))
            return
        registered = metadata.submit_now(Registration(self.joining.registration()))
        self._serve(registered.broker_epoch)
        self._open_to_clients()
        self._ready()

    # Notifications about the membership of a broker in a cluster with other brokers.

    def registered(self, broker_epoch: int) -> None:
        """Start to serve other brokers, because the controller has registered this process."""
        # Continue in the next iteration of the event loop, because the caller must first finish.
        self._world.soon(self._serve_as_member, broker_epoch)

    def _serve_as_member(self, broker_epoch: int) -> None:
        assert self.joining is not None and self.joining.membership is not None
        self._serve(broker_epoch)
        assert self._replication is not None and self._logs is not None
        try:
            self._logs.marks.running(broker_epoch)
        except DiskError as error:
            # Continue, because without this mark the next start only trusts less of the data.
            if error.is_final:
                self.disk_failed(error)
        self._replication.start()
        self.joining.membership.ready()

    def unfenced(self) -> None:
        """Open the client listeners, because the controller has unfenced this broker."""
        self._open_to_clients()
        ready, self._ready = self._ready, lambda: None
        ready()

    def fenced(self) -> None:
        """Log that the controller has fenced this broker, so others lead its partitions."""
        level = logging.INFO if self._leaving.has_begun else logging.WARNING
        logger.log(level, "this broker is fenced", extra=fields(node_id=self.config.node_id))

    def may_stop(self) -> None:
        """Let the broker stop, because no other broker needs its leaderships any more."""
        self._leaving.may_stop()

    @property
    def _leaving(self) -> ClusterLeave:
        assert self.joining is not None and self.joining.leaving is not None, "no other brokers"
        return self.joining.leaving

    def refused(self, text: str) -> None:
        """End the process, because the cluster refuses it. During `start`, raise FolderError."""
        if self._is_starting:
            raise FolderError(self.config.log_dir, text)
        self._world.die(f"{self.config.log_dir}: {text}")

    def _serve(self, broker_epoch: int) -> None:
        """Open all partitions, and start everything that serves clients except the listeners."""
        self._broker_epoch = broker_epoch
        report, parts = self._report, self._create_parts(broker_epoch)
        reconfigure(self.config, parts.metadata.image, self.settings, self._controller)
        dropped = parts.replicas.open_all(parts.metadata.image, parts.metadata.removed_ids)
        self._start_housekeeping(parts)
        for files in [*dropped, *([report.dropped] if report.dropped is not None else [])]:
            self.housekeeping.unlink(files)
        parts.groups.follow()
        parts.transactions.follow()
        self.fast_path = QuickProduces(parts.produces, self.metrics.times_of(ApiKey.PRODUCE))
        self.alarm.wake_by(self.housekeeping.next_deadline_ms)
        self.listeners.use_quotas(parts.metadata.image.quotas)
        self.is_serving = True

    def _open_to_clients(self) -> None:
        """Open the client listeners once, unless the broker is already stopping.

        A broker of a cluster must be unfenced before. While all brokers are fenced, Metadata would
        name no broker, and librdkafka (2.16) would never connect to them again.
        """
        if self.is_serving and not self._is_open_to_clients:
            self._is_open_to_clients = True
            parts = self.parts
            self.listeners.open_to_clients(
                client_table(parts), self.fast_path, parts.produces.settle
            )
            self.listeners.open_to_users(parts.metadata.image.credentials)

    def _replicate(self, membership: MembershipDriver, broker_epoch: int) -> None:
        """Create the replication between brokers. This happens before any partition is opened."""
        assert self.joining is not None
        replication = self._replication = Replication(
            FollowerIdentity(self.config.node_id, broker_epoch),
            self.settings,
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

    def _create_parts(self, broker_epoch: int) -> BrokerParts:
        """Create the parts that serve clients."""
        assert self._logs is not None
        world, settings, alarm, metrics = self._world, self.settings, self.alarm, self.metrics
        metadata = self.metadata
        assert self.joining is not None
        membership = self.joining.membership
        waits = Purgatory(alarm.wake_by)
        folders = Folders(settings, world.clock, self._logs, self.worker, broker_epoch)
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
        ports = ShardPorts(world.clock, world.soon, metadata, replicas, waits, self.write_failed)
        groups = GroupCoordinator(ports, settings, alarm, world.chance, metrics.warnings)
        peers = None if membership is None else self.joining.peers
        transacting = self._transacting = Transacting(ports, settings, groups, world, peers)
        self.parts = create_parts(
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
            self.listeners.audit,
        )
        self.serving = Serving(self.parts, self.listeners, self._replication)
        metadata.serve(
            NodePublisher(self.config, self._controller, self.parts, self.listeners),
            DiskWorkers(self._metadata_worker, self.worker),
        )
        if membership is not None:
            self.listeners.serve_brokers(transacting.handlers())
        return self.parts

    def _start_housekeeping(self, parts: BrokerParts) -> None:
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

    # Failures of the disk.

    def disk_failed(self, error: Exception) -> None:
        """End the process after a disk failure, so that it acknowledges no more records."""
        self._end_process(f"the disk has failed: {error}")

    def _end_process(self, reason: str) -> NoReturn:
        if self._logs is not None:
            self._logs.marks.distrust_cache()
        self._world.die(reason)

    # Stopping.

    def hand_over(self, done: Callable[[], None]) -> None:
        """Let other brokers take this broker's leaderships while it still serves, then call `done`.

        `done` runs at once if the broker is alone, or after seconds if no other can take over.
        """
        leaving = self.joining.leaving if self.joining is not None else None
        if leaving is None or not self.is_serving:
            done()
        else:
            leaving.begin(done)

    def stop_serving(self) -> None:
        """Accept no more connections or requests, and end the waits of fetches and group
        members."""
        was_serving, self.is_serving = self.is_serving, False
        self.listeners.close()
        if not was_serving:
            if self.joining is not None:
                self.joining.stop()
            return
        self.serving.stop()

    @property
    def is_quiet(self) -> bool:
        """True if every accepted request is answered and all written data is fsynced."""
        return (
            self.flusher.is_idle
            and (self._metadata is None or self._metadata.is_quiet)
            and all(one.is_idle for one in self.listeners.sessions.open)
        )

    def close(self) -> None:
        """Close the connections, and write the checkpoints and the marker of a clean stop."""
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
            # Write no marker of a clean stop, because it says that all data is durable.
            self._end_process("a sync has failed, or did not end, while the broker stopped")
        if self._logs is not None:
            self._logs.close_clean(self._broker_epoch)
            logger.info("the broker stopped cleanly", extra=fields(log_dir=self.config.log_dir))
