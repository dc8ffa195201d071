"""When the records were written at which readers stand still, each read from its leader once.

A moving reader's age comes from the history of ends, to within a cycle; reading a record for it in
each cycle would cost a batch per partition for nothing.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from monitor.ask_brokers import FAILURES
from monitor.columns import Partitions, signed
from monitor.reading import GroupReading
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.types import TopicPartition
from protocol.wire.records import iterate_batches

LOOKUPS_MAX = 64
KEPT_MAX = 10_000

Place = tuple[TopicPartition, int]
"""A partition and an offset in it."""


class Leaders(Protocol):
    """Who is asked: a client of the cluster, or a test's script."""

    async def leader(self, tp: TopicPartition) -> int:
        """The node that leads a partition."""
        ...

    async def request(self, node_id: int | None, message: FetchRequest) -> Any:
        """Its answer."""
        ...


class RecordTimes:
    """What was read, by group: a group that is not asked for in a cycle keeps what it has."""

    def __init__(self) -> None:
        self._commits: dict[str, tuple[Partitions, array[int]]] = {}
        self._known: dict[str, dict[Place, int]] = {}

    async def read(
        self,
        cluster: Leaders,
        groups: Iterable[GroupReading],
        group_ids: Collection[str],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[Place, int]:
        """The times of the records at which these groups stand; `group_ids` are all there are."""
        self._forget_all_but(frozenset(group_ids))
        found: dict[Place, int] = {}
        lookups = LOOKUPS_MAX
        room = KEPT_MAX - sum(map(len, self._known.values()))
        for group in groups:
            wanted = self._stands(group, starts, ends)
            before = self._known.pop(group.group_id, {})
            room += len(before)
            known = {place: before[place] for place in wanted if place in before}
            for place in wanted:
                if place in known or (place not in found and lookups <= 0) or len(known) >= room:
                    continue
                written_ms = found.get(place)
                if written_ms is None:
                    lookups -= 1
                    written_ms = await _written_ms(cluster, *place)
                if written_ms is not None:
                    known[place] = written_ms
            room -= len(known)
            self._known[group.group_id] = known
            found |= known
        return found

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
        """Where a group has committed what it had at the last look, and something waits."""
        before = dict(zip(*self._commits.get(group.group_id, ((), ())), strict=True))
        wanted = []
        for row, commit in group.commits.items():
            offset = max(commit.offset, starts.get(row, 0))
            if before.get(row) == commit.offset and offset < ends.get(row, -1):
                wanted.append((row, offset))
        offsets = signed(one.offset for one in group.commits.values())
        self._commits[group.group_id] = (Partitions(group.commits), offsets)
        return sorted(wanted)


async def _written_ms(cluster: Leaders, row: TopicPartition, offset: int) -> int | None:
    """First timestamp of the batch that holds `offset`; None where it cannot be read."""
    part = FetchPartition(partition=row.partition, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[FetchTopic(topic=row.topic, partitions=[part])],
    )
    try:
        leader = await cluster.leader(row)
        answer = await cluster.request(leader, request)
    except FAILURES:
        return None
    for topic in answer.responses:
        for found in topic.partitions:
            for header, _ in iterate_batches(found.records or b""):
                if header.last_offset >= offset:
                    return header.base_timestamp
    return None
