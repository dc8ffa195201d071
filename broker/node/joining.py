"""Joins a broker to its cluster.

The steps read the disk, get the first voter set, start the quorum and register the broker. A broker
that is configured alone has joined when `start` returns. It needs no threads and no membership. A
broker of a cluster waits for other brokers, and always writes to its disk in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.cluster import moved_disk, quorum_state
from broker.cluster.birth_driver import BirthDriver, Voters
from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.duties import InlineJobs
from broker.cluster.leader_watcher import LeaderWatcher
from broker.cluster.liveness_driver import LivenessDriver
from broker.cluster.loader import Loader
from broker.cluster.membership import damaged_topics
from broker.cluster.membership_driver import MembershipDriver, MembershipListener
from broker.cluster.messenger import LinkMessenger
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import DiskWorkers, MetadataLog
from broker.cluster.orders import OrderForwarder
from broker.cluster.probes import Probes
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshotter import Snapshotter
from broker.cluster.voter_address import VoterAddress
from broker.config import BROKER_LISTENER, BrokerConfig, InForce
from broker.controller.active import OrderLimits
from broker.controller.controller import Controller
from broker.metadata.features import supported_features
from broker.metadata.image import MetadataImage
from broker.node.leaving import ClusterLeave
from broker.quorum.quorum import Quorum
from broker.quorum.ready import RoleChange
from broker.quorum.voters import Endpoint, ReplicaKey, VoterSet
from broker.security.broker_identity import broker_name
from broker.sessions.peers import LinkKind, Peers
from broker.storage.disk import Disk
from broker.storage.log_manager import LogManager
from broker.world import Address, End, World
from protocol.messages.membership import (
    BrokerRegistrationRequest,
    RegistrationListener,
)
from protocol.types import random_uuid


@dataclass(frozen=True, slots=True)
class OwnDisk:
    """The folder, the logs and the threads with which a node uses its disk."""

    disk: Disk
    logs: LogManager
    metadata_log: MetadataLog
    workers: DiskWorkers


class ClusterJoin:
    """Runs the steps of joining for one process, and calls either `joined` or `refused` once."""

    def __init__(
        self,
        settings: InForce,
        world: World,
        own: OwnDisk,
        controller: Controller,
        joined: Callable[[Metadata], None],
        listener: MembershipListener,
    ) -> None:
        """Read the state of the quorum from the disk. Raises FolderError if the disk is damaged.

        `joined` is called with the metadata when they have been replayed. `listener` is notified of
        the membership, and of the reason if the cluster refuses this process.
        """
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
        # Other brokers recognise the connections of this broker by this name.
        self.peers = Peers(world, broker_name(config.node_id), others, self._link_ended)
        self.probes = Probes(world)
        self.messenger = LinkMessenger(self.peers, world.clock)
        found, self._state = quorum_state.look(
            own.disk,
            own.logs,
            own.metadata_log,
            self._me,
            quorum_state.Identity(config.cluster_id, config.configured_ids, config.joins),
        )
        self.moves = moved_disk.look(own.disk, own.metadata_log, self._state, self._me, config)
        """The brokers that are configured at other addresses than this disk knows."""
        self.birth = BirthDriver(
            found,
            self.peers,
            world,
            InlineJobs() if self._is_alone else own.workers.own,
            partial(quorum_state.keep, own.disk, own.metadata_log, addresses=_addresses_in(config)),
            self._voters_known,
            listener.refused,
        )
        self.membership: MembershipDriver | None = None
        self.liveness: LivenessDriver | None = None
        """The watch over brokers while this node is the controller; None if it is configured
        alone."""
        self.leaving: ClusterLeave | None = None
        """The stop procedure; None for a broker that is configured alone."""
        self._listener = listener
        self._watcher: LeaderWatcher | None = None
        self._address: VoterAddress | None = None

    @property
    def other_ids(self) -> list[int]:
        """The ids of all other configured brokers."""
        return [one for one in self._config.configured_ids if one != self._config.node_id]

    def start(self) -> None:
        """Start the first step."""
        self.birth.start()

    def stop(self) -> None:
        """Stop the steps, and close all links to other brokers."""
        self.birth.stop()
        for part in (self._watcher, self._address, self.liveness, self.membership):
            if part is not None:
                part.stop()
        self.probes.close()
        self.peers.close()

    def _voters_known(self, voters: Voters) -> None:
        own, world = self._own, self._world
        log = own.metadata_log
        state = self._state or quorum_state.recover(own.disk, log)
        assert state is not None, "the birth has written the voters to the disk"
        quorum = Quorum(
            self._me,
            self._config.cluster_id,
            election=state.election,
            log=state.log,
            voters=state.voters,
            chance=world.chance,
            now_ms=world.clock.monotonic_ms(),
            bootstrap=self._config.configured_ids,
            must_catch_up=self.moves.own is not None,
        )
        driver = QuorumDriver(
            quorum, log, world, self.messenger, partial(moved_disk.forget, own.disk, log)
        )
        self.peers.look_in(lambda node_id: _address_in(driver.voters, node_id))
        watcher = LeaderWatcher(world, self.probes, self.peers.address_of, driver.leader_dead)
        self._watcher = watcher
        self.messenger.serve(driver, watcher)
        limits = OrderLimits(
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
        if not self._is_alone:
            self._become_member(metadata, watcher)
            log.work_in(own.workers)
        metadata.start(state.snapshot)
        self._joined(metadata)

    def _become_member(self, metadata: Metadata, watcher: LeaderWatcher) -> None:
        """Create the membership of a broker in a cluster, in which any node can become the
        controller."""
        config, driver, controller = self._config, metadata.quorum, metadata.controller
        orders = OrderForwarder(
            controller, lambda: driver.leader_id, self.peers, self._world, self._settings
        )
        liveness = self.liveness = LivenessDriver(
            config.node_id,
            config.cluster_id,
            controller,
            lambda: driver.voters,
            self.probes,
            self._world,
        )
        request = self.registration()
        membership = self.membership = MembershipDriver(
            request, self._listener, controller, liveness, self.peers, self._world
        )
        own = config.listeners[BROKER_LISTENER]
        address = self._address = VoterAddress(
            self._me,
            Endpoint(BROKER_LISTENER, own.advertised_host, own.advertised_port),
            request.incarnation_id,
            driver,
            membership.ask_controller,
            self._world,
        )
        leaving = self.leaving = ClusterLeave(config.node_id, membership, driver, self._world)
        member = _ClusterMember(watcher, membership, leaving, orders, address, self._world)
        metadata.join(orders, member)

    def registration(self) -> BrokerRegistrationRequest:
        """Return the registration request of this process, with a new incarnation id."""
        config, marks = self._config, self._own.logs.marks
        can_be_old_copy = self.moves.own is not None
        # A folder can be copied while its broker runs, so the mark of a running process says
        # nothing about a copy.
        previous = marks.clean_broker_epoch if can_be_old_copy else marks.previous_broker_epoch
        return BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=config.cluster_id,
            incarnation_id=random_uuid(self._world.chance.randbytes(16)),
            listeners=[
                RegistrationListener(name=name, host=one.advertised_host, port=one.advertised_port)
                for name, one in config.listeners.items()
            ],
            rack=config.rack,
            features=supported_features(),
            log_dirs=[self._me.directory_id],
            previous_broker_epoch=previous,
            damaged=damaged_topics(self._own.logs.offline),
            can_be_old_copy=can_be_old_copy,
        )

    def _link_ended(self, node_id: int, kind: LinkKind, end: End) -> None:
        if self._watcher is not None:
            self._watcher.link_ended(node_id, kind, end)
        if self.membership is not None:
            self.membership.link_ended(node_id, kind, end)


def _addresses_in(config: BrokerConfig) -> dict[int, Endpoint]:
    """Return the configured addresses of the brokers for each other."""
    return {node_id: Endpoint(BROKER_LISTENER, *where) for node_id, where in config.voters.items()}


def _address_in(voters: VoterSet, node_id: int) -> Address | None:
    """Return the address of a voter for other brokers, as the voter set names it."""
    voter = voters.voter(node_id)
    for one in voter.endpoints if voter is not None else ():
        if one.name == BROKER_LISTENER:
            return Address(one.host, one.port)
    return None


@dataclass(frozen=True, slots=True)
class _ClusterMember:
    """The parts of a broker in a cluster that are notified of the quorum's leader and the image."""

    watcher: LeaderWatcher
    membership: MembershipDriver
    leaving: ClusterLeave
    orders: OrderForwarder
    address: VoterAddress
    world: World

    def role_changed(self, role: RoleChange) -> None:
        self.watcher.role(role)
        self.membership.role(role)
        self.leaving.role(role)
        # Notify these in the next iteration of the event loop, when the quorum knows the leader.
        self.world.soon(self.orders.leader_changed)
        self.world.soon(self.address.leader_changed)

    def image_moved(self, image: MetadataImage) -> None:
        self.membership.moved(image)
        self.address.moved(image)
