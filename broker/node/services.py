"""What handlers and connections work with: the broker's parts, made once by `broker.py`.

Floor: node. The parts know each other through here, so an attribute may be read only
once the broker is put together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.config import BrokerConfig
from broker.storage.errors import DiskError
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from broker.cluster.metadata_driver import MetadataDriver
    from broker.fetch.fetches import Fetches
    from broker.fetch.listing import Listings
    from broker.metrics.metrics import Metrics
    from broker.produce.produces import Produces
    from broker.real.loop_timer import LoopTimer
    from broker.real.warmer import Warmer
    from broker.replicas.replica_manager import ReplicaManager
    from broker.shards.groups import GroupCoordinator
    from broker.shards.markers import Markers
    from broker.shards.producer_ids import ProducerIds
    from broker.shards.transactions import TxnCoordinator


@dataclass(slots=True, init=False)
class Services:
    """Handed to everything that serves requests."""

    config: BrokerConfig
    clock: Clock
    loop: asyncio.AbstractEventLoop
    metrics: Metrics
    metadata: MetadataDriver
    replicas: ReplicaManager
    produces: Produces
    fetches: Fetches
    listings: Listings
    groups: GroupCoordinator
    transactions: TxnCoordinator
    markers: Markers
    producer_ids: ProducerIds
    timer: LoopTimer
    warmer: Warmer
    die: Callable[[str], None]
    """Ends the process at once, for the reason given."""

    def write_failed(self, topic_partition: TopicPartition, error: DiskError, now_ms: int) -> None:
        """The disk has refused a write, and whoever wanted it is told to retry.

        A full disk may have room later. One that has failed will not come back under this process:
        it ends, as after a failed sync, so that whoever watches over it sees more than retries.
        """
        self.metrics.write_failed(topic_partition, error, now_ms)
        if error.is_gone:
            self.die(f"the disk has failed: {error}")
