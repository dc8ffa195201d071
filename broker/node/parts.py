"""The parts of one broker that serve requests, once they are made.

Floor: node. Only `broker` makes it, and only `tables` and `status` read it: whoever serves is given
what it uses, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.cluster.metadata import Metadata
from broker.commitments import Waits
from broker.config import InForce
from broker.fetch.fetches import Fetches
from broker.fetch.listing import Listings
from broker.metrics.metrics import Metrics
from broker.produce.judge import Judge
from broker.produce.produces import Produces
from broker.produce.verification import Verifier
from broker.replicas.checkpoint_queue import CheckpointQueue
from broker.replicas.folders import Folders
from broker.replicas.replicas import Replicas
from broker.shards.groups import GroupCoordinator
from broker.shards.markers import Markers
from broker.shards.producer_ids import ProducerIds
from broker.shards.transactions import TxnCoordinator
from broker.world import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """What `node/broker` has put together."""

    settings: InForce
    clock: Clock
    metrics: Metrics
    metadata: Metadata
    waits: Waits
    folders: Folders
    checkpoints: CheckpointQueue
    replicas: Replicas
    judge: Judge
    produces: Produces
    fetches: Fetches
    listings: Listings
    groups: GroupCoordinator
    transactions: TxnCoordinator
    markers: Markers
    verifier: Verifier
    producer_ids: ProducerIds
