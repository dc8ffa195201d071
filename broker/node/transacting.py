"""The parts of one broker that serve transactions: coordinators, markers and verification.

A broker that is configured alone sends no markers and no verification requests to other brokers.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.config import InForce
from broker.interbroker.transactions import transaction_handlers
from broker.produce.verification import Verifier
from broker.sessions.dispatch import Handler
from broker.sessions.peers import Peers
from broker.shards.groups import GroupCoordinator
from broker.shards.loaded_shard import ShardPorts
from broker.shards.marker_sender import MarkerSender
from broker.shards.markers import Markers
from broker.shards.transactions import TxnCoordinator, leader_of
from broker.shards.verifier import ClusterVerifier, LocalVerifier
from broker.world import World
from protocol.messages.api import ApiKey


class Transacting:
    """The parts of one broker that serve transactions."""

    def __init__(
        self,
        ports: ShardPorts,
        settings: InForce,
        groups: GroupCoordinator,
        world: World,
        peers: Peers | None,
    ) -> None:
        """`peers` has the links to other brokers. It is None for a broker that is configured
        alone."""
        self.groups = groups
        self._ports = ports
        self.markers = Markers(ports, groups)
        self._sender = None
        if peers is not None:
            self._sender = MarkerSender(
                world, peers, lambda one: leader_of(ports.metadata.image, one)
            )
        self.transactions = TxnCoordinator(ports, settings, self.markers, self._sender)
        self.verifier: Verifier = LocalVerifier(self.transactions)
        if peers is not None:
            node_id = settings.config.node_id
            self.verifier = ClusterVerifier(self.transactions, node_id, peers, world.clock)

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """Return the handlers for other brokers."""
        ports = self._ports
        return transaction_handlers(ports.replicas, self.markers, self.transactions, ports.clock)

    def stop(self) -> None:
        """Stop to send markers to other brokers."""
        if self._sender is not None:
            self._sender.stop()
