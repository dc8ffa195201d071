"""One broker, put together: the only place that constructs its parts.

Floor: node. `start` goes from the data folder to open listeners, `stop` the way back; the
process around it is `lifecycle`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from random import Random

from broker.clock import Clock
from broker.cluster.metadata_driver import METADATA_PARTITION, METADATA_TOPIC_ID, MetadataDriver
from broker.config import BrokerConfig, LogConfig
from broker.controller.controller import Controller
from broker.controller.outcome import RegisterBroker
from broker.fetch.fetches import Fetches
from broker.fetch.listing import Listings
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, MetadataDelta
from broker.metadata.records import BROKER_RESOURCE
from broker.metrics.metrics import Metrics
from broker.node.services import Services
from broker.node.tables import HANDLERS
from broker.produce.produces import Produces
from broker.real.listening import ClientListener, bind
from broker.real.loop_timer import LoopTimer
from broker.real.warmer import Warmer
from broker.real.workers import Worker
from broker.replicas.flusher import Flusher
from broker.replicas.housekeeping import Housekeeping
from broker.replicas.replica_manager import Partition, ReplicaManager
from broker.sessions.dispatch import Dispatcher
from broker.sessions.sessions import Connections
from broker.shards.groups import GroupCoordinator
from broker.shards.markers import Markers
from broker.shards.producer_ids import ProducerIds
from broker.shards.transactions import TxnCoordinator
from broker.storage.disk import Disk
from broker.storage.errors import FolderError
from broker.storage.log import Log
from broker.storage.log_manager import LogManager, OpenReport
from protocol.log import fields
from protocol.types import random_uuid

logger = logging.getLogger(__name__)


class Broker:
    """All parts of one node."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
        die: Callable[[str], None],
    ) -> None:
        """Binds the listeners. Raises PortTaken. `die(reason)` must end the process at once."""
        self.config = config
        self.clock = clock
        self._disk = disk
        self._die = die
        self._random = Random(os.urandom(32))
        self._bound = {
            name: bind(f"listener {name}", address.host, address.port)
            for name, address in config.listeners.items()
        }
        self.connections = Connections(config)
        self.listeners: list[ClientListener] = []
        self.worker = Worker(loop, "files", self.disk_failed)
        self.warmer = Warmer(loop)
        self.services = Services()
        metrics = self.services.metrics = Metrics()
        self.flusher = Flusher(
            loop,
            self.on_flushed,
            lambda error: die(f"sync failed: {error}"),
            metrics.flushes.add,
        )
        self.services.config = config
        self.services.clock = clock
        self.services.loop = loop
        self.services.warmer = self.warmer
        self.services.die = die
        self.services.timer = LoopTimer(loop, clock, self.on_time, metrics.loop_lateness.add)
        self.is_serving = False
        self._logs: LogManager | None = None
        self._metadata_log: Log | None = None

    # Starting.

    def recover(self) -> OpenReport:
        """Take the data folder and open every log in it; meant for a thread, it may take long.

        Raises FolderError, CorruptionError or DiskError.
        """
        self._logs = LogManager(self._disk, self.config)
        report = self._logs.open_all(self.clock.now_ms())
        known = self._logs.logs.keys() | self._logs.offline.keys()
        if known and METADATA_PARTITION not in known:
            raise FolderError(
                self.config.log_dir,
                "there are partitions but no __cluster_metadata-0, which says whose they are; "
                "put it back, or use an empty folder",
            )
        # Settings of its own: those of the node are about what clients write.
        own = LogConfig()
        self._metadata_log = self._logs.create(
            METADATA_PARTITION, METADATA_TOPIC_ID, own, self.clock.now_ms()
        )
        self._metadata_log.config = own
        return report

    async def start(self, report: OpenReport) -> None:
        """Replay the metadata, register, open all partitions, then the listeners."""
        assert self._logs is not None and self._metadata_log is not None
        services = self.services
        controller = self._controller = Controller(self.config, self._random)
        services.metadata = MetadataDriver(
            controller,
            self.clock,
            self._metadata_log,
            self.flusher,
            lambda *commit: services.replicas.apply(*commit),
            self._on_image,
            services.write_failed,
            self.config.max_pending_metadata_orders,
            self.config.max_pending_metadata_orders_per_ip,
        )
        services.metadata.load()
        controller.config = services.config = self._config_in_force()
        broker_epoch = services.metadata.submit_now(
            RegisterBroker(
                self.config.node_id,
                random_uuid(self._random.randbytes(16)),
                {
                    name: (address.advertised_host, address.advertised_port)
                    for name, address in self.config.listeners.items()
                },
            )
        )
        services.produces = Produces(services)
        services.fetches = Fetches(services)
        services.listings = Listings(services)
        services.groups = GroupCoordinator(services)
        services.transactions = TxnCoordinator(services)
        services.markers = Markers(services)
        services.producer_ids = ProducerIds(services, broker_epoch)
        services.replicas = ReplicaManager(
            services.config,
            self.clock,
            self._logs,
            self.flusher,
            self.worker,
            self._advanced,
            self._gone,
        )
        dropped = services.replicas.open_all(services.metadata.image, services.metadata.removed_ids)
        self.housekeeping = Housekeeping(services, self.connections, self.worker, self.flusher)
        for files in [*dropped, *([report.dropped] if report.dropped is not None else [])]:
            self.housekeeping.unlink(files)
        services.groups.follow()
        services.transactions.follow()
        self.dispatcher = Dispatcher(services, HANDLERS)
        self.connections.config = services.config
        for name, address in self.config.listeners.items():
            listener = ClientListener(
                name, address, self._bound[name], services, self.dispatcher, self.connections
            )
            self.listeners.append(listener)
            await listener.open()
        services.timer.wake_by(self.housekeeping.next_deadline_ms)
        self.is_serving = True

    # What happens inside.

    def _config_in_force(self) -> BrokerConfig:
        """The node's configuration under the settings that the metadata holds."""
        image = self.services.metadata.image
        return self.config.with_dynamic(
            image.settings(BROKER_RESOURCE, ""),
            image.settings(BROKER_RESOURCE, str(self.config.node_id)),
        )

    def _reconfigure(self) -> None:
        """Hand the settings that were changed at run time to everything that keeps a copy."""
        services = self.services
        config = services.config = self._controller.config = self._config_in_force()
        services.replicas.reconfigure(config, services.metadata.image)
        self.connections.config = config

    def _on_image(self, delta: MetadataDelta) -> None:
        if delta.changes_nodes:
            self._reconfigure()
        if delta.removed:
            names = {topic.name for topic in delta.removed}
            self.services.groups.topics_removed(names)
            self.services.produces.topics_removed(names)
        if OFFSETS_TOPIC in delta.touched:
            self.services.groups.follow()
        if TRANSACTIONS_TOPIC in delta.touched:
            self.services.transactions.follow()

    def disk_failed(self, error: Exception) -> None:
        """A sync has failed, or the disk takes no more writes: no answer may follow."""
        self._die(f"the disk has failed: {error}")

    def on_flushed(self, log: Log) -> None:
        """A log's recovery point has moved."""
        if log is self._metadata_log:
            self.services.metadata.flushed()
        else:
            self.services.replicas.flushed(log)

    def _advanced(self, partition: Partition) -> None:
        if partition.is_internal:
            self.services.groups.advanced(partition)
            self.services.transactions.advanced(partition)
        self.services.markers.advanced(partition)
        self.services.produces.advanced(partition)
        self.services.fetches.advanced(partition)

    def _gone(self, partition: Partition) -> None:
        self.services.markers.gone(partition)
        self.services.produces.gone(partition)
        self.services.fetches.gone(partition)

    def on_time(self, now_ms: int) -> int:
        """Do what is due by the monotonic clock; returns the next deadline."""
        services = self.services
        services.produces.expire(now_ms)
        services.fetches.expire(now_ms)
        services.groups.on_time(now_ms)
        self.housekeeping.run_due(now_ms)
        deadlines = (
            services.produces.next_deadline_ms,
            services.fetches.next_deadline_ms,
            services.groups.next_deadline_ms,
            self.housekeeping.next_deadline_ms,
        )
        return min(one for one in deadlines if one is not None)

    # Stopping.

    def stop_serving(self) -> None:
        """Accept and read no more, and answer the fetches and group members that are parked."""
        self.is_serving = False
        for listener in self.listeners:
            listener.close()
        if not self.listeners:
            for bound in self._bound.values():
                bound.close()
            return
        for connection in list(self.connections.open):
            connection.stop_reading()
        self.services.fetches.complete_all()
        self.services.groups.stop()
        self.services.replicas.flush_all()

    @property
    def is_quiet(self) -> bool:
        """Whether everything accepted has been synced and answered."""
        return self.flusher.is_idle and all(one.is_idle for one in self.connections.open)

    def close(self) -> None:
        """Close the connections, write checkpoints and the marker of a clean stop."""
        self.services.timer.stop()
        for connection in list(self.connections.open):
            connection.close("the broker stops", is_logged=False)
        is_synced = self.worker.stop() and self.flusher.stop()
        self.warmer.stop()
        if not is_synced:
            # Their reports cannot be heard any more, and the marker would vouch for all data.
            self._die("a sync has failed, or did not end, while the broker stopped")
            return
        if self._logs is not None:
            self._logs.close_clean()
            logger.info("stopped cleanly", extra=fields(log_dir=self.config.log_dir))
