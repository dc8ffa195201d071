"""The timestamps of the records at which readers stand still, each read from its leader once.

The age of what a moving reader has not read comes from the history of log ends, to within a cycle.
Reading a record for it in each cycle would cost a batch per partition for nothing.
"""

import asyncio
from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from monitor.asking.brokers import FAILURES
from monitor.lag.columns import Partitions, signed
from monitor.state.reading import GroupReading
from protocol.client.fetch_core import IsolationLevel, first_timestamp
from protocol.errors import WireError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.types import TopicPartition

LOOKUPS_MAX = 64
"""Fetches of one cycle."""

LOOKUPS_OF_PLACE_MAX = 8
"""Fetches for one place in one cycle; the next cycle goes on behind them."""

KEPT_MAX = 10_000
FETCH_BYTES = 16 << 10
"""Of one fetch: about two hundred markers, or the first batch, whatever its size."""

DECOMPRESSED_BYTES_MAX = 32 << 20
"""Of one batch; the records of a larger one have no known age."""

Place = tuple[TopicPartition, int]
"""A partition and an offset in it."""


class Leaders(Protocol):
    """The cluster to ask: a client, or a test's script."""

    async def leader(self, tp: TopicPartition) -> int:
        """Return the node that leads a partition."""
        ...

    async def request(self, node_id: int | None, message: FetchRequest) -> Any:
        """Return the answer to a request."""
        ...


class RecordSearch(NamedTuple):
    """The progress of a search for the first record from a place on.

    `written_ms` is the record's timestamp; None if there is no record before `searched_to`. A
    search that is not final is made again in the next cycle.
    """

    searched_to: int
    written_ms: int | None = None
    is_final: bool = False


class RecordTimes:
    """The searches of each group. A group that is not polled in a cycle keeps its own.

    After a call of `read`, `only_markers` holds the places from which on no record waits.
    """

    def __init__(self) -> None:
        self.only_markers: frozenset[Place] = frozenset()
        self._commits: dict[str, tuple[Partitions, array[int]]] = {}
        self._known: dict[str, dict[Place, RecordSearch]] = {}

    async def read(
        self,
        cluster: Leaders,
        groups: Iterable[GroupReading],
        group_ids: Collection[str],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[Place, int]:
        """Return the timestamps of the records at which these groups stand.

        `group_ids` names all groups of the cluster; the searches of others are dropped.
        """
        self._forget_all_but(frozenset(group_ids))
        looked_up: dict[Place, RecordSearch | None] = {}
        found: dict[Place, RecordSearch] = {}
        seeker = _Seeker(cluster)
        room = KEPT_MAX - sum(map(len, self._known.values()))
        for group in groups:
            wanted = self._stands(group, starts, ends)
            before = self._known.pop(group.group_id, {})
            room += len(before)
            new_max = room - sum(place in before for place in wanted)
            known: dict[Place, RecordSearch] = {}
            # New places first: searches that are made again must not use up all fetches.
            for place in sorted(wanted, key=before.__contains__):
                if place not in before and len(known) >= new_max:
                    continue
                if place not in looked_up:
                    search, end = before.get(place), ends[place[0]]
                    is_done = search is not None and _is_done(search, end)
                    looked_up[place] = search if is_done else await seeker.seek(place, search, end)
                search = looked_up[place]
                if search is not None:
                    known[place] = search
            room -= len(known)
            self._known[group.group_id] = known
            found |= known
        self.only_markers = frozenset(
            place
            for place, search in found.items()
            if not search.is_final and _is_done(search, ends[place[0]])
        )
        return {
            place: search.written_ms
            for place, search in found.items()
            if search.written_ms is not None
        }

    def _forget_all_but(self, group_ids: frozenset[str]) -> None:
        for gone in [one for one in self._commits if one not in group_ids]:
            del self._commits[gone]
            self._known.pop(gone, None)

    def _stands(
        self,
        group: GroupReading,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[Place]:
        """Return the places where a group's commit has not moved since the last poll and offsets
        wait.
        """
        before = dict(zip(*self._commits.get(group.group_id, ((), ())), strict=True))
        wanted = []
        for row, commit in group.commits.items():
            offset = max(commit.offset, starts.get(row, 0))
            if before.get(row) == commit.offset and offset < ends.get(row, -1):
                wanted.append((row, offset))
        offsets = signed(one.offset for one in group.commits.values())
        self._commits[group.group_id] = (Partitions(group.commits), offsets)
        return sorted(wanted)


def _is_done(search: RecordSearch, end: int) -> bool:
    """Return whether a search has found a record, or that there is none up to the log's end."""
    return search.is_final or (search.written_ms is None and search.searched_to >= end)


class _Seeker:
    """The fetches of one cycle."""

    def __init__(self, cluster: Leaders) -> None:
        self._cluster = cluster
        self._lookups_left = LOOKUPS_MAX

    async def seek(
        self, place: Place, before: RecordSearch | None, end: int
    ) -> RecordSearch | None:
        """Continue a search; return `before` if no leader answers or the fetches are used up."""
        row, offset = place
        search = before
        position = before.searched_to if before else offset
        level = IsolationLevel.READ_COMMITTED
        for _ in range(LOOKUPS_OF_PLACE_MAX):
            if self._lookups_left <= 0 or position >= end:
                break
            self._lookups_left -= 1
            data = await self._fetch(row, position, level)
            if data is None:
                return search
            try:
                written_ms, next_offset = await asyncio.to_thread(
                    first_timestamp, data, position, level,
                    decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
                )  # fmt: skip
            except WireError:
                return RecordSearch(position, is_final=True)
            if written_ms is not None:
                # A record of an open transaction may still be aborted: look again next time.
                is_final = level is IsolationLevel.READ_COMMITTED
                return RecordSearch(position, written_ms, is_final)
            if next_offset > position:
                position = next_offset
                search = RecordSearch(position)
            elif level is IsolationLevel.READ_COMMITTED:
                # Committed records end here. What waits behind belongs to an open transaction.
                level = IsolationLevel.READ_UNCOMMITTED
            else:
                break
        return search

    async def _fetch(self, row: TopicPartition, offset: int, level: int) -> PartitionData | None:
        part = FetchPartition(
            partition=row.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=level,
            topics=[FetchTopic(topic=row.topic, partitions=[part])],
        )
        try:
            leader = await self._cluster.leader(row)
            answer = await self._cluster.request(leader, request)
        except FAILURES:
            return None
        for topic in answer.responses:
            for data in topic.partitions:
                return data if not data.error_code else None
        return None
