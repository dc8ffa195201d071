"""Metadata nodes that also register with the controller and send heartbeats. The controller fences
silent nodes.

At every commit `MemberCluster` checks that the broker epochs of an id's registrations increase, and
that an ended registration never comes back into service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.cluster.leader_watcher import LeaderWatcher
from broker.cluster.liveness_driver import LivenessDriver
from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.messenger import LinkMessenger
from broker.cluster.probes import Probes
from broker.config import BROKER_LISTENER
from broker.interbroker.membership import membership_handlers
from broker.interbroker.partitions import partition_handlers
from broker.metadata.features import supported_features
from broker.metadata.image import MetadataImage
from broker.quorum.ready import RoleChange
from broker.sessions.dispatch import Handler
from broker.sessions.peers import LinkKind, Peers
from broker.world import End
from protocol.messages.api import ApiKey
from protocol.messages.membership import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegistrationListener,
)
from protocol.types import Uuid
from tests.sim.metadata_nodes import (
    CLUSTER_ID,
    PORT,
    MetadataCluster,
    MetadataNode,
    key_of,
)


@dataclass
class Life:
    """One broker process, and what the membership driver has told it."""

    incarnation_id: Uuid
    node: MemberNode
    broker_epoch: int | None = None
    may_stop: bool = False
    refusal: str = ""

    def registered(self, broker_epoch: int) -> None:
        assert self.broker_epoch is None, "registered twice"
        self.broker_epoch = broker_epoch
        self.node.membership.ready()

    def unfenced(self) -> None:
        self.node.told("unfenced")

    def fenced(self) -> None:
        self.node.told("fenced")

    def may_stop_now(self) -> None:
        self.may_stop = True

    def refused(self, text: str) -> None:
        self.refusal = text
        self.node.members.refusals.append(text)
        # A real process ends when its registration is refused.
        self.node.world.later(0, self.node.kill)


class Joined:
    """Passes role changes and images on to the membership driver, and checks every image."""

    def __init__(
        self, cluster: MemberCluster, watcher: LeaderWatcher, membership: MembershipDriver
    ) -> None:
        self._cluster = cluster
        self._watcher = watcher
        self._membership = membership

    def role_changed(self, role: RoleChange) -> None:
        self._watcher.role(role)
        self._membership.role(role)

    def image_moved(self, image: MetadataImage) -> None:
        self._cluster.check(image)
        self._membership.moved(image)


class MemberNode(MetadataNode):
    """One node with all components of its cluster membership."""

    def __init__(self, cluster: MemberCluster, node_id: int) -> None:
        super().__init__(cluster, node_id)
        self.members = cluster
        self.life: Life | None = None
        self.heard: list[tuple[int, str]] = []
        """The notices about its membership, with their times, over all processes of this node."""

    def handlers(self, messenger: LinkMessenger) -> dict[ApiKey, Handler]:
        cluster, metadata = self.members, self.metadata
        assert metadata is not None
        world = self.world = cluster.network._lives[self.host]
        peers = messenger._peers
        probes = Probes(world)
        driver = metadata.quorum
        watcher = LeaderWatcher(world, probes, peers.address_of, driver.leader_dead)
        messenger.serve(driver, watcher)
        cluster.incarnations += 1
        incarnation_id = Uuid(int=0xABC000 + cluster.incarnations)
        life = self.life = Life(incarnation_id, self)
        request = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation_id,
            listeners=[RegistrationListener(name=BROKER_LISTENER, host=self.host, port=PORT)],
            features=supported_features(),
            log_dirs=[key_of(self.node_id).directory_id],
        )
        self.liveness = LivenessDriver(
            self.node_id,
            CLUSTER_ID,
            metadata.controller,
            lambda: driver.quorum.replica.voters.latest,
            probes,
            world,
        )
        self.membership = MembershipDriver(
            request, MembershipCallbacks(life), metadata.controller, self.liveness, peers, world
        )

        def link_ended(node_id: int, kind: LinkKind, end: End) -> None:
            watcher.link_ended(node_id, kind, end)
            self.membership.link_ended(node_id, kind, end)

        peers._on_end = link_ended
        metadata.join(metadata.controller, Joined(cluster, watcher, self.membership))
        return {
            **super().handlers(messenger),
            **membership_handlers(self.liveness, metadata.controller),
            **partition_handlers(metadata.controller),
        }

    def told(self, what: str) -> None:
        self.heard.append((self.members.now_ms, what))

    @property
    def is_in_service(self) -> bool:
        """Return True if this process believes that it is in service."""
        own = None if self.metadata is None else self.metadata.image.brokers.get(self.node_id)
        return (
            own is not None
            and self.life is not None
            and own.incarnation_id == self.life.incarnation_id
            and not own.is_fenced
        )


class MembershipCallbacks:
    """The callbacks of the driver, which it forwards to a `Life`."""

    def __init__(self, life: Life) -> None:
        self.registered = life.registered
        self.unfenced = life.unfenced
        self.fenced = life.fenced
        self.may_stop = life.may_stop_now
        self.refused = life.refused


class MemberCluster(MetadataCluster):
    """Three `MemberNode`s."""

    def __init__(self, seed: str) -> None:
        self.incarnations = 0
        self.epochs: dict[int, dict[int, Uuid]] = {}
        """By id: the broker epochs of its registrations in order, each with the incarnation that
        registered."""
        self.refusals: list[str] = []
        self._in_service: set[tuple[int, int]] = set()
        self.fenced: set[tuple[int, int]] = set()
        """The ids and broker epochs that were in service and were then fenced."""
        super().__init__(seed)

    def node(self, node_id: int) -> MemberNode:
        return MemberNode(self, node_id)

    @property
    def members(self) -> list[MemberNode]:
        return [node for node in self.nodes if isinstance(node, MemberNode)]

    @property
    def now_ms(self) -> int:
        return self.network.timeline.clock.monotonic_ms()

    def check(self, image: MetadataImage) -> None:
        """Check the invariants of registrations in one image. Call this for every image of every
        node."""
        for node_id, broker in image.brokers.items():
            one = (node_id, broker.broker_epoch)
            if not broker.is_fenced:
                self._in_service.add(one)
            elif one in self._in_service:
                self.fenced.add(one)
            known = self.epochs.setdefault(node_id, {})
            of = known.setdefault(broker.broker_epoch, broker.incarnation_id)
            assert of == broker.incarnation_id, "an epoch belongs to one incarnation"
            assert len(set(known.values())) == len(known), (
                f"an incarnation of broker {node_id} was registered twice: {known}"
            )

    def image(self) -> MetadataImage:
        """Return the controller's image."""
        active = self.active()
        assert active is not None and active.metadata is not None, "no controller is active"
        return active.metadata.image

    def in_service(self) -> set[int]:
        """Return the ids of the brokers that the controller has in service. Without a controller
        return an empty set."""
        if self.active() is None:
            return set()
        return {one.node_id for one in self.image().brokers.values() if not one.is_fenced}

    def pass_until(self, condition: Any, limit_ms: int, what: str) -> int:
        """Let time pass until the condition holds. Return the ms that this took, in steps of 5."""
        began_ms = self.now_ms
        while not condition():
            assert self.now_ms - began_ms < limit_ms, f"not after {limit_ms} ms: {what}"
            self.network.timeline.run_for(5)
        return self.now_ms - began_ms

    def is_settled(self) -> bool:
        """Return True if all nodes are in service and know it, and every decision is committed.

        The last part matters, because a controller that was cut off can have decided to fence a
        broker. That decision is committed later, when the controller is connected again.
        """
        if self.in_service() != {one.node_id for one in self.nodes}:
            return False
        controller = self.leader().metadata
        assert controller is not None
        ends = {one.metadata.image.end_offset for one in self.members if one.metadata}
        return ends == {controller.quorum.end_offset} and all(
            one.is_in_service and one.membership.may_read for one in self.members
        )

    def settle(self) -> None:
        """Let time pass until all nodes run, are in service, and know it."""
        self.pass_until(
            lambda: len(self.running) == len(self.nodes) and self.is_settled(),
            10_000,
            f"all in service: {[one.life for one in self.members]}",
        )

    def misbehave(self) -> None:
        """Start one random fault, or end one."""
        node = self.chance.choice(self.members)
        if node.metadata is not None and node.world.held is not None:
            self.network.thaw(node.host)
        elif node.metadata is not None and self.chance.random() < 0.2:
            self.network.freeze(node.host)
        else:
            super().misbehave()

    def mend(self) -> None:
        """End all faults."""
        for node in self.members:
            if node.metadata is not None and node.world.held is not None:
                self.network.thaw(node.host)
        super().mend()

    def follower(self) -> MemberNode:
        """Return a node that is not the controller."""
        active = self.active()
        return next(one for one in self.members if one is not active and one.metadata)

    def leader(self) -> MemberNode:
        active = self.active()
        assert isinstance(active, MemberNode)
        return active


class Stranger:
    """Another process that registers with a node's id and a copy of its directory."""

    def __init__(self, cluster: MemberCluster, node_id: int, number: int = 0) -> None:
        self._cluster = cluster
        self._world = cluster.network.world(f"stranger {number} of {node_id}")
        self._peers = Peers(self._world, "stranger", cluster.addresses)
        self._request = BrokerRegistrationRequest(
            broker_id=node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(int=0xBAD + number),
            features=supported_features(),
            log_dirs=[key_of(node_id).directory_id],
        )

    def register(self) -> BrokerRegistrationResponse:
        """Send BrokerRegistration to the controller. Return its response."""
        answers: list[BrokerRegistrationResponse] = []
        self._peers.ask(
            self._cluster.leader().node_id,
            LinkKind.CONTROL,
            self._request,
            self._cluster.now_ms + 5_000,
            answers.append,
            lambda end: None,
        )
        self._cluster.pass_until(lambda: bool(answers), 1_000, "an answer")
        return answers[0]
