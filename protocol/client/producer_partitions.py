"""Chooses the partition of a record: by the caller's partitioner, the key, or the open batch.

`partitioner` has the arithmetic. This module applies it to the metadata of a topic.
"""

from protocol.client.cluster import Cluster
from protocol.client.partitioner import StickyPartitioner, partition_for_key
from protocol.client.producer_core import ProducerCore
from protocol.client.producer_hooks import Partitioner, checked_partition
from protocol.types import TopicPartition


class ProducerPartitions:
    """Chooses partitions for one producer.

    `partitioner` is the function of the caller; can be None.
    """

    def __init__(
        self, cluster: Cluster, core: ProducerCore, partitioner: Partitioner | None
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._partitioner = partitioner
        self._sticky = StickyPartitioner(cluster.rng)

    async def learn(self, topic: str) -> None:
        """Wait until the topic's partitions are known. Raises the errors of `Cluster.topic`."""
        known = self._cluster.current.topics.get(topic)
        if known is None or not known.partitions:
            await self._cluster.topic(topic)

    def choose(self, topic: str, key: bytes | None, size_bytes: int) -> TopicPartition:
        """Return the partition of a record. The caller must queue the record without an await."""
        known = self._cluster.current.topics.get(topic)
        if known is None or not known.partitions:
            # The topic was deleted while the caller waited for room. The sender notices and reports
            # that.
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
