"""Fetches the timestamps of the next records of groups whose commits do not move.

Each timestamp is fetched once from the partition's leader. For a commit that moves, the age of the
next record is computed from the history of log end offsets. That is exact to within a polling
cycle. To fetch the record in each cycle would cost a batch per partition and be hardly more exact.
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
"""The most fetches of one cycle."""

LOOKUPS_OF_PLACE_MAX = 8
"""The most fetches for one place in one cycle. The next cycle continues after them."""

KEPT_MAX = 10_000
FETCH_BYTES = 16 << 10
"""The size of one fetch: about two hundred markers, or the first batch, even if it is larger."""

DECOMPRESSED_BYTES_MAX = 32 << 20
"""The largest decompressed size of a batch. The records of a larger batch have no known age."""

Place = tuple[TopicPartition, int]
"""A partition, and an offset in it."""


class Leaders(Protocol):
    """The requests that the search needs: a `Cluster`, or a test's script."""

    async def leader(self, tp: TopicPartition) -> int:
        """Return the id of the broker that leads a partition."""
        ...

    async def request(self, node_id: int | None, message: FetchRequest) -> Any:
        """Send a request to a broker, and return the answer."""
        ...


class RecordSearch(NamedTuple):
    """The progress of a search for the first record at or after a committed offset.

    `written_ms` is the record's timestamp; None if there is no record before the offset
    `searched_to`. Unless `is_final` is true, the search is repeated in the next cycle.
    """

    searched_to: int
    written_ms: int | None = None
    is_final: bool = False


class RecordTimes:
    """The searches of all groups. A group that is not polled in a cycle keeps its searches.

    A place is a group, a partition and an offset. After a call of `read`, `only_markers` holds the
    places after which there are only transaction markers and no records.
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
        """Return the timestamp of the next record of each reader of these groups that does not
        move.

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
            # Search new places first, so that repeated searches do not use up the fetches of this
            # cycle.
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
        """Return each place whose commit has not moved although the log has offsets after it.

        The commit is compared with the last poll of the group.
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
    """Return whether a search is complete: it found a record, or it reached the log's end."""
    return search.is_final or (search.written_ms is None and search.searched_to >= end)


class _Seeker:
    """Makes the fetches of one cycle, up to LOOKUPS_MAX."""

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
                # A record of an open transaction can still be aborted, so search again in the next
                # cycle.
                is_final = level is IsolationLevel.READ_COMMITTED
                return RecordSearch(position, written_ms, is_final)
            if next_offset > position:
                position = next_offset
                search = RecordSearch(position)
            elif level is IsolationLevel.READ_COMMITTED:
                # There are no more committed records. The offsets after this one belong to an open
                # transaction.
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
