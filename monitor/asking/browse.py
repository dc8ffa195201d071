"""Reads the records that a user asks to see. It joins no group and commits nothing.

All other pages show what the sampler has read; only this page requests records from brokers. It has
its own client, so the sampler never waits for it. The constants below limit the number of users at
a time, the duration and the bytes.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from monitor.asking.brokers import FAILURES, say
from monitor.asking.messages import (
    SEARCH_BACK_MAX,
    Begin,
    Found,
    Wanted,
    beginnings,
    chosen,
    holds,
)
from protocol.client.cluster import Cluster
from protocol.client.fetch_core import FetchedBatch, IsolationLevel, read_partition
from protocol.client.offsets_by_time import list_offsets
from protocol.client.security import cluster_of
from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.security.cluster_security import ClusterEntry
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from protocol.wire.record import Record

AT_ONCE_MAX = 2
TIMEOUT_S = 6.0
"""The time limit for a whole answer, including the wait for other users' requests."""

READ_S = 3.0
"""The time limit for reading. Records found until then are shown."""

REQUEST_TIMEOUT_MS = 2_000
FETCH_BYTES = 1 << 20
SCAN_BYTES_MAX = 16 << 20
"""The most stored bytes of batches that are read for one answer."""

DECOMPRESSED_BYTES_MAX = 32 << 20
"""The largest decompressed size of a batch. A larger batch counts as unreadable."""


class BrowseFailed(Exception):
    """The error when no records could be read. Its text says why."""


class Reads(Protocol):
    """An object that reads records: `Browser`, or a test's script."""

    async def read(self, wanted: Wanted, partitions: Sequence[int]) -> Found:
        """Return the wanted records of these partitions. Raise BrowseFailed."""
        ...


class Browser:
    """Reads records from the brokers of a cluster, for a few users at a time."""

    def __init__(self, entry: ClusterEntry) -> None:
        self._entry = entry
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def read(self, wanted: Wanted, partitions: Sequence[int]) -> Found:
        """Return the wanted records of these partitions. Raise BrowseFailed."""
        rows = [TopicPartition(wanted.topic, number) for number in partitions]
        try:
            async with asyncio.timeout(TIMEOUT_S), self._gate:
                cluster = cluster_of(
                    self._entry,
                    client_id="millrace-monitor-messages",
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                )
                try:
                    await cluster.start(deadline_ms=REQUEST_TIMEOUT_MS)
                    return await _Reading(cluster, wanted).run(rows)
                finally:
                    await cluster.close()
        except TimeoutError as error:
            raise BrowseFailed(f"nothing was read within {TIMEOUT_S:.0f} s") from error
        except FAILURES as error:
            raise BrowseFailed(say(error)) from error


class _Reading:
    """The state of one user's request while its records are being read."""

    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._isolation = (
            IsolationLevel.READ_COMMITTED
            if wanted.is_committed_only
            else IsolationLevel.READ_UNCOMMITTED
        )
        self._contains = wanted.contains.encode()
        self._bytes_left = SCAN_BYTES_MAX
        self._ends_s = time.monotonic() + READ_S
        self._looked_at = 0
        self._problems: list[str] = []

    async def run(self, rows: Sequence[TopicPartition]) -> Found:
        """Read all partitions, one after the other."""
        starts = await self._offsets(rows, EARLIEST_TIMESTAMP)
        ends = await self._offsets(rows, LATEST_TIMESTAMP)
        by_time = {}
        if self._wanted.begin is Begin.TIME:
            by_time = await self._offsets(rows, self._wanted.at)
        begins = beginnings(self._wanted, starts, ends, by_time)
        found: list[tuple[TopicPartition, Record]] = []
        for row, offset in begins.items():
            if self._is_spent():
                self._problems.append(
                    f"stopped after {READ_S:.0f} s or {SCAN_BYTES_MAX >> 20} MiB: partition"
                    f" {row.partition} and later ones were not read"
                )
                break
            found += [(row, record) for record in await self._partition(row, offset, ends[row])]
        if len(found) < self._wanted.count:
            self._note_what_was_not_searched(starts, begins)
        return Found(
            chosen(found, self._wanted), tuple(self._problems), self._looked_at, starts, ends
        )

    def _note_what_was_not_searched(
        self, starts: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int]
    ) -> None:
        """Report the offsets that a search for the latest records did not search."""
        if not self._wanted.contains or self._wanted.begin is not Begin.LATEST:
            return
        for row, offset in begins.items():
            if offset > starts.get(row, offset):
                self._problems.append(
                    f"partition {row.partition}: searched the last {SEARCH_BACK_MAX:,} offsets"
                    f" only, from {offset:,} on; choose an earlier start to search more"
                )

    async def _offsets(
        self, rows: Sequence[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        answers = await list_offsets(
            self._cluster,
            dict.fromkeys(rows, which),
            isolation_level=self._isolation,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        for row, at in answers.items():
            if at.error is not ErrorCode.NONE and which == LATEST_TIMESTAMP:
                self._problems.append(f"partition {row.partition}: {at.error.description}")
        return {
            row: at.offset
            for row, at in answers.items()
            if at.error is ErrorCode.NONE and at.offset != NO_OFFSET
        }

    async def _partition(self, row: TopicPartition, offset: int, end: int) -> list[Record]:
        """Return the wanted records of one partition between an offset and its end."""
        wanted = self._wanted
        is_latest = wanted.begin is Begin.LATEST
        found: deque[Record] = deque(maxlen=wanted.count if is_latest else None)
        try:
            leader = await self._cluster.leader(row, timeout_ms=REQUEST_TIMEOUT_MS)
            while offset < end and (is_latest or len(found) < wanted.count):
                if self._is_spent():
                    self._problems.append(
                        f"partition {row.partition}: stopped at offset {offset:,}, after"
                        f" {READ_S:.0f} s or {SCAN_BYTES_MAX >> 20} MiB"
                    )
                    break
                batch = await self._fetch(leader, row, offset)
                if batch.next_offset <= offset:
                    self._problems.append(
                        f"partition {row.partition}: the broker sent no batch at offset {offset:,}"
                    )
                    break
                offset = batch.next_offset
                records = [one for one in batch.records if one.offset < end]
                self._looked_at += len(records)
                found.extend(one for one in records if holds(one, self._contains))
        except (*FAILURES, CorruptBatch) as error:
            self._problems.append(f"partition {row.partition}: {say(error)}")
        return list(found)

    async def _fetch(self, leader: int, row: TopicPartition, offset: int) -> FetchedBatch:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(
                    topic=row.topic,
                    partitions=[
                        FetchPartition(
                            partition=row.partition,
                            fetch_offset=offset,
                            partition_max_bytes=FETCH_BYTES,
                        )
                    ],
                )
            ],
        )
        answer = await self._cluster.request(leader, request)
        data = answer.responses[0].partitions[0]
        if code := ErrorCode.of(answer.error_code or data.error_code):
            raise ApiError(code, code.description)
        self._bytes_left -= len(data.records or b"")
        # Decode in a thread, because a large batch would hold up every page.
        return await asyncio.to_thread(
            read_partition,
            row,
            data,
            offset,
            self._isolation,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )

    def _is_spent(self) -> bool:
        return self._bytes_left <= 0 or time.monotonic() >= self._ends_s
