"""Reads the reports of the collectors of other hosts. Each cycle reads only the new reports."""

import logging
from collections.abc import Mapping

from monitor.state.collectors import Heard, ReportMemory
from protocol.client.cluster import Cluster
from protocol.client.errors import UnreadableBatch, is_transient
from protocol.client.fetcher import Fetcher
from protocol.client.reading import OutOfRange
from protocol.collector_report import COLLECTORS_TOPIC
from protocol.errors import ApiError, CorruptBatch
from protocol.log import fields
from protocol.types import TopicPartition

POLL_MS = 100
POLLS_MAX = 20
"""The most polls in one cycle. The next cycle continues after them."""

DECOMPRESSED_BYTES_MAX = 1 << 20
"""The largest decompressed size of a batch of reports. Larger batches are skipped."""

logger = logging.getLogger(__name__)


class CollectorReports:
    """A reader of the topic `millrace.collectors`, without a group."""

    def __init__(self) -> None:
        self._memory = ReportMemory()
        self._fetcher: Fetcher | None = None
        self._is_complete = False
        self._failure = ""

    async def read(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> tuple[Heard, ...] | None:
        """Read up to the ends. Return the last report of each collector.

        Return None if there is no such topic, and until the whole topic was read once. Before that,
        an old report could be taken for the last one. Also return None if the topic may not be read
        or is damaged, so that the other readings of the cycle are kept. Raises transient errors.
        """
        wanted = {tp: end for tp, end in ends.items() if tp.topic == COLLECTORS_TOPIC}
        if not wanted:
            await self.close()
            return None
        fetcher = await self._fetcher_of(cluster, starts, wanted)
        try:
            await self._read_new(fetcher, wanted)
        except (ApiError, CorruptBatch) as error:
            if is_transient(error):
                raise
            if str(error) != self._failure:
                logger.warning("reports of collectors not read", extra=fields(reason=error))
            self._failure = str(error)
            await self.close()
            return None
        return tuple(self._memory.heard.values()) if self._is_complete else None

    async def _read_new(self, fetcher: Fetcher, wanted: Mapping[TopicPartition, int]) -> None:
        for _ in range(POLLS_MAX):
            if all(fetcher.position(tp) >= end for tp, end in wanted.items()):
                self._is_complete = True
                return
            try:
                batches = await fetcher.poll(POLL_MS)
            except UnreadableBatch as error:
                if error.next_offset is None:
                    raise
                # A captured host can write such a batch, which must not hide other collectors.
                fetcher.seek(error.tp, error.next_offset)
                continue
            for batch in batches:
                for record in batch.records:
                    self._memory.take(
                        None if record.key is None else bytes(record.key),
                        None if record.value is None else bytes(record.value),
                        record.timestamp_ms,
                    )

    async def close(self) -> None:
        """Forget everything, and end the requests that are under way."""
        fetcher, self._fetcher = self._fetcher, None
        self._memory, self._is_complete = ReportMemory(), False
        if fetcher is not None:
            await fetcher.close()

    async def _fetcher_of(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, int],
        wanted: Mapping[TopicPartition, int],
    ) -> Fetcher:
        """Return the fetcher of these partitions. A topic that was made again is read again."""
        known = self._fetcher
        if known is not None:
            is_same = known.assignment.keys() == wanted.keys()
            if is_same and all(known.position(tp) <= end for tp, end in wanted.items()):
                return known
            await self.close()
        self._fetcher = Fetcher(
            cluster,
            out_of_range=OutOfRange.EARLIEST,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )
        self._fetcher.assign({tp: starts.get(tp, 0) for tp in wanted})
        return self._fetcher
