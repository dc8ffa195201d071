"""The parts of one broker that serve requests.

`broker` creates them. `serving`, `tables` and `status` use them, and give each handler only the
parts that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.fetch.fetches import Fetches
from broker.fetch.listing import Listings
from broker.handlers.lost_leaders import LostLeaders
from broker.metrics.metrics import Metrics
from broker.node.transacting import Transacting
from broker.produce.batch_validator import BatchValidator
from broker.produce.produces import Produces
from broker.produce.proving import Proving
from broker.produce.verification import Verifier
from broker.purgatory import Purgatory
from broker.replicas.checkpoint_queue import CheckpointQueue
from broker.replicas.folders import Folders
from broker.replicas.refusals import WriteFailed
from broker.replicas.replicas import Replicas
from broker.sessions.audit import AuditLog
from broker.sessions.peers import Peers
from broker.shards.groups import GroupCoordinator
from broker.shards.markers import Markers
from broker.shards.producer_ids import ProducerIds
from broker.shards.transactions import TxnCoordinator
from broker.world import Clock, World


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts that `create_parts` has created."""

    settings: InForce
    world: World
    clock: Clock
    metrics: Metrics
    metadata: Metadata
    waits: Purgatory
    folders: Folders
    checkpoints: CheckpointQueue
    replicas: Replicas
    validator: BatchValidator
    produces: Produces
    fetches: Fetches
    listings: Listings
    groups: GroupCoordinator
    transactions: TxnCoordinator
    markers: Markers
    verifier: Verifier
    producer_ids: ProducerIds
    lost_leaders: LostLeaders
    audit: AuditLog


def create_parts(
    settings: InForce,
    world: World,
    metrics: Metrics,
    metadata: Metadata,
    waits: Purgatory,
    folders: Folders,
    checkpoints: CheckpointQueue,
    replicas: Replicas,
    transacting: Transacting,
    producer_ids: ProducerIds,
    write_failed: WriteFailed,
    peers: Peers | None,
    audit: AuditLog,
) -> BrokerParts:
    """Create the parts that serve requests for the given partitions.

    `peers` has the links to other brokers. It is None for a broker that is configured alone.
    """
    verifier = transacting.verifier
    validator = BatchValidator(settings, metrics, replicas, verifier)
    fetches = Fetches(settings, world.clock, waits, world.chance, metrics, replicas)
    return BrokerParts(
        settings,
        world,
        world.clock,
        metrics,
        metadata,
        waits,
        folders,
        checkpoints,
        replicas,
        validator,
        Produces(world, waits, validator, Proving(verifier, replicas), replicas, write_failed),
        fetches,
        Listings(replicas, world.soon, world.turn_ns),
        transacting.groups,
        transacting.transactions,
        transacting.markers,
        verifier,
        producer_ids,
        LostLeaders(world, metadata, peers),
        audit,
    )
