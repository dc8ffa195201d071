"""Chooses the partition of a record: by the owner's partitioner, the key, or the open batch.

`partitioner` has the arithmetic; this module applies it to a topic's metadata.
"""

from protocol.client.cluster import Cluster
from protocol.client.partitioner import StickyPartitioner, partition_for_key
from protocol.client.producer_core import ProducerCore
from protocol.client.producer_hooks import Partitioner, checked_partition
from protocol.types import TopicPartition


class ProducerPartitions:
    """The choice for one producer's records. `partitioner` is the owner's, if any."""

    def __init__(
        self, cluster: Cluster, core: ProducerCore, partitioner: Partitioner | None
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._partitioner = partitioner
        self._sticky = StickyPartitioner(cluster.rng)

    async def learn(self, topic: str) -> None:
        """Return when the topic's partitions are known. Errors as `Cluster.topic`."""
        known = self._cluster.current.topics.get(topic)
        if known is None or not known.partitions:
            await self._cluster.topic(topic)

    def choose(self, topic: str, key: bytes | None, size_bytes: int) -> TopicPartition:
        """Return the partition of a record. The caller must queue the record without an await."""
        known = self._cluster.current.topics.get(topic)
        if known is None or not known.partitions:
            # The topic was deleted during the wait for room. The sender finds that and reports it.
            return TopicPartition(topic, 0)
        if self._partitioner is not None:
            chosen = self._partitioner(
                topic, key, tuple(known.partitions), known.available_partitions
            )
            if chosen is not None:
                return checked_partition(topic, chosen)
        if key is not None:
            return TopicPartition(topic, partition_for_key(key, len(known.partitions)))
        available = known.available_partitions
        tp = TopicPartition(topic, self._sticky.current(topic, available))
        if self._core.would_open_batch(tp, size_bytes):
            tp = TopicPartition(topic, self._sticky.switch(topic, available))
        return tp
