"""A broker's way into its cluster: what its disk says, the birth, then a seat in the quorum.

Floor: node. It ends when the node is a replica of the metadata; whether it may serve is another
matter. A broker that is configured alone is there when `start` returns, without any thread; one of
several waits for others, and its disk is waited for in threads from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.cluster import quorum_state
from broker.cluster.birth_driver import BirthDriver, Voters
from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.duties import AtOnce
from broker.cluster.leader_watcher import LeaderWatcher
from broker.cluster.loader import Loader
from broker.cluster.messenger import LinkMessenger
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import Hands, MetadataLog
from broker.cluster.orders import Orders
from broker.cluster.probes import Probes
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshotter import Snapshotter
from broker.config import InForce
from broker.controller.active import Limits
from broker.controller.controller import Controller
from broker.quorum.quorum import Quorum
from broker.quorum.voters import ReplicaKey
from broker.sessions.peers import LinkKind, Peers
from broker.storage.disk import Disk
from broker.storage.log_manager import LogManager
from broker.world import Address, End, World


@dataclass(frozen=True, slots=True)
class OwnDisk:
    """What a node has of its own: folder, logs, and those who wait for the disk."""

    disk: Disk
    logs: LogManager
    metadata_log: MetadataLog
    hands: Hands


class Joining:
    """One process's way. `joined(metadata)` or `refused(why)` comes once."""

    def __init__(
        self,
        settings: InForce,
        world: World,
        own: OwnDisk,
        controller: Controller,
        joined: Callable[[Metadata], None],
        refused: Callable[[str], None],
    ) -> None:
        """Raises FolderError for a disk that is damaged."""
        config = self._config = settings.config
        self._settings = settings
        self._world = world
        self._own = own
        self._controller = controller
        self._joined = joined
        self._is_alone = len(config.configured_ids) == 1
        self._me = ReplicaKey(config.node_id, own.logs.directory_id)
        others = {
            node_id: Address(*where)
            for node_id, where in config.voters.items()
            if node_id != config.node_id
        }
        self.peers = Peers(world, config.part, others, self._link_ended)
        self.probes = Probes(world)
        self.messenger = LinkMessenger(self.peers, world.clock)
        found, self._state = quorum_state.look(
            own.disk,
            own.logs,
            own.metadata_log,
            self._me,
            quorum_state.Identity(config.cluster_id, config.configured_ids),
        )
        self.birth = BirthDriver(
            found,
            self.peers,
            world,
            AtOnce() if self._is_alone else own.hands.own,
            partial(quorum_state.keep, own.disk, own.metadata_log),
            self._born,
            refused,
        )
        self._watcher: LeaderWatcher | None = None

    def start(self) -> None:
        """Set out."""
        self.birth.start()

    def stop(self) -> None:
        """Go no further, and end all links to other brokers."""
        self.birth.stop()
        if self._watcher is not None:
            self._watcher.stop()
        self.probes.close()
        self.peers.close()

    def _born(self, voters: Voters) -> None:
        own, world = self._own, self._world
        log = own.metadata_log
        state = self._state or quorum_state.recover(own.disk, log)
        assert state is not None, "whoever is born has its voters on its disk"
        quorum = Quorum(
            self._me,
            self._config.cluster_id,
            election=state.election,
            log=state.log,
            voters=state.voters,
            chance=world.chance,
            now_ms=world.clock.monotonic_ms(),
        )
        driver = QuorumDriver(quorum, log, world, self.messenger)
        watcher = LeaderWatcher(world, self.probes, self.peers.address_of, driver.leader_dead)
        self._watcher = watcher
        self.messenger.heard = driver.handle
        self.messenger.leader_answered = watcher.answered
        limits = Limits(
            self._config.max_pending_metadata_orders,
            self._config.max_pending_metadata_orders_per_ip,
        )
        metadata = Metadata(
            log,
            driver,
            Loader(log),
            ControllerDriver(self._controller, limits, driver, world),
            Snapshotter(log, driver, world.clock),
        )
        metadata.role_changed = watcher.role
        if not self._is_alone:
            orders = Orders(
                metadata.controller, lambda: driver.leader_id, self.peers, world, self._settings
            )
            metadata.passed_on = orders.submit
        if not self._is_alone:
            log.work_in(own.hands)
        metadata.start(state.snapshot)
        self._joined(metadata)

    def _link_ended(self, node_id: int, kind: LinkKind, end: End) -> None:
        if self._watcher is not None:
            self._watcher.link_ended(node_id, kind, end)
