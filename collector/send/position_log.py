"""Reads the stored positions of one instance from the partitions that have them."""

from collections.abc import Mapping, Sequence

from collector.send.position_topics import GROUP_PARTITIONS, group_partition, positions_topic
from protocol.client.admin import Admin
from protocol.client.cluster import GENERAL, Cluster
from protocol.client.errors import raise_for
from protocol.client.fetch_core import IsolationLevel
from protocol.client.fetcher import Fetcher
from protocol.errors import ApiError, ErrorCode
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

POLL_MS = 50
"""The longest time in milliseconds for which a broker holds a Fetch that finds no records. Such a
Fetch is sent to a leader that has sent all its positions, while another leader still sends some. A
broker answers the later requests of this connection after it."""


class PositionLog:
    """The partitions of the positions topic that one collector uses."""

    def __init__(self, cluster: Cluster, admin: Admin, group: str | None):
        self.topic = positions_topic(group)
        self._cluster = cluster
        self._admin = admin
        self._is_grouped = group is not None

    async def partitions(self, instance: str, *, refresh: bool = False) -> list[TopicPartition]:
        """Return the partitions with positions of an instance; none if the topic does not exist.

        Raises ClientError or ApiError.
        """
        known = self._cluster.current.topics.get(self.topic)
        if known is None or not known.partitions or refresh:
            metadata = await self._cluster.metadata([self.topic], refresh=True)
            known = metadata.topics[self.topic]
        if known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        raise_for(known.error, self.topic)
        if not self._is_grouped:
            return [TopicPartition(self.topic, number) for number in sorted(known.partitions)]
        if len(known.partitions) < GROUP_PARTITIONS:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {self.topic} has {len(known.partitions)} partitions, but needs"
                f" {GROUP_PARTITIONS}",
            )
        return [TopicPartition(self.topic, group_partition(instance))]

    async def read(
        self, ends: Mapping[TopicPartition, int]
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Return the keys and values of all committed position records below `ends`."""
        starts = await self._offsets(list(ends), EARLIEST_TIMESTAMP)
        open_ends = {tp: end for tp, end in ends.items() if starts[tp] < end}
        # The records are there already, so a Fetch delays the other requests of a connection for
        # at most POLL_MS. A separate connection would cost a TLS handshake and a login.
        fetcher = Fetcher(
            self._cluster, isolation_level=IsolationLevel.READ_COMMITTED, purpose=GENERAL
        )
        fetcher.assign({tp: starts[tp] for tp in open_ends})
        found: list[tuple[bytes | None, bytes | None]] = []
        try:
            while any(fetcher.position(tp) < end for tp, end in open_ends.items()):
                for fetched in await fetcher.poll(POLL_MS):
                    for record in fetched.records:
                        if record.offset < open_ends[fetched.tp]:
                            found.append((_octets(record.key), _octets(record.value)))
        finally:
            await fetcher.close()
        return found

    async def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each log, as a reader of committed records sees it."""
        return await self._offsets(partitions, LATEST_TIMESTAMP)

    async def _offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        found = await self._admin.list_offsets(
            dict.fromkeys(partitions, timestamp), isolation_level=IsolationLevel.READ_COMMITTED
        )
        for at in found.values():
            raise_for(at.error)
        return {tp: at.offset for tp, at in found.items()}


def _octets(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
