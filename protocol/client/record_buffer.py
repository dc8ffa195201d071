"""Fetched records that have not been returned to the caller yet.

This module is pure. Records of the partitions are returned in turn, so that a full partition does
not starve the others.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from protocol.client.fetch_core import FetchedBatch
from protocol.types import TopicPartition
from protocol.wire.record import Record


@dataclass(slots=True)
class _Chunk:
    """The remaining records of one fetched batch."""

    records: Sequence[Record]
    taken: int = 0


class RecordBuffer:
    """Records by partition, in order of offsets."""

    def __init__(self) -> None:
        self._chunks: dict[TopicPartition, deque[_Chunk]] = {}

    def put(self, batches: Iterable[FetchedBatch]) -> None:
        """Add the batches of a poll."""
        for batch in batches:
            self._chunks.setdefault(batch.tp, deque()).append(_Chunk(batch.records))

    def take(
        self, is_wanted: Callable[[TopicPartition], bool], count_max: int
    ) -> tuple[TopicPartition, list[Record]] | None:
        """Return up to `count_max` records of the next partition; None if none is wanted."""
        for tp in self._chunks:
            if is_wanted(tp):
                break
        else:
            return None
        chunks = self._chunks.pop(tp)
        chunk = chunks[0]
        end = min(chunk.taken + count_max, len(chunk.records))
        records = list(chunk.records[chunk.taken : end])
        chunk.taken = end
        if end == len(chunk.records):
            chunks.popleft()
        if chunks:
            # Put the partition at the end, so that the other partitions come first.
            self._chunks[tp] = chunks
        return tp, records

    def put_back(self, tp: TopicPartition, records: Sequence[Record]) -> None:
        """Put back the last records from `take`.

        They are the next records of the partition again.
        """
        if records:
            chunks = self._chunks.setdefault(tp, deque())
            chunks.appendleft(_Chunk(records))

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return the offset of the partition's first buffered record; None if there is none."""
        chunks = self._chunks.get(tp)
        return chunks[0].records[chunks[0].taken].offset if chunks else None

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        for tp in tps:
            self._chunks.pop(tp, None)

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions with buffered records."""
        return self._chunks.keys()
