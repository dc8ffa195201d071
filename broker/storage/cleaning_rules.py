"""The rules by which the cleaner removes records: transactions, tombstones, producers.

This module is pure. The rules are Kafka's (KIP-98, KIP-354, KIP-534). The newest record of a key
stays. A tombstone stays until its delete horizon, which the first cleaning sets. Aborted data is
removed. A marker stays while any batch of its transaction is left, and then until its own horizon.
The last batch of every remembered producer stays, without records if necessary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from broker.storage import rewrite
from broker.storage.markers import marker_of
from broker.storage.offset_map import OffsetMap
from broker.storage.txn_index import AbortedEntry
from protocol.errors import WireError
from protocol.wire.records import BatchHeader, iterate_records

LastBatches = Mapping[int, tuple[int, Collection[int]]]
"""The last batches of each producer, by producer id: the producer epoch, and last offsets of
batches.

The batches have the producer's last sequence. They are the newest batch, and the newest batch that
a power cut cannot remove. The collection is empty if there is no batch.
"""


class TransactionFilter:
    """Decides for each batch whether it belongs to an aborted transaction. The batches must come in
    log order."""

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self, aborted: Sequence[AbortedEntry]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedEntry, bool]] = {}
        """The transaction of each producer that will be aborted, and True if one of its batches was
        seen."""
        self._committed: set[int] = set()
        """The producers that have written data since their last marker in a transaction that is not
        aborted."""
        self.kept: list[AbortedEntry] = []
        """The entries whose marker stays in the log.

        The caller removes them from this list at the end of each segment.
        """

    def is_aborted(self, header: BatchHeader) -> bool:
        """Process a data batch. Return True if the batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        met = self._aborted.get(header.producer_id)
        if met is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = met[0], True
        return True

    def is_marker_idle(self, header: BatchHeader, batch: memoryview) -> bool:
        """Process a control batch.

        Return True if no batch of its transaction is left in the log.
        """
        self._advance(header.last_offset)
        if not header.record_count:
            return True
        try:
            marker = marker_of(batch)
        except WireError:
            marker = None
        if marker is None:
            return False
        if marker.is_commit:
            was_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_met
        entry, was_met = self._aborted.pop(header.producer_id, (None, False))
        if entry is not None and was_met:
            self.kept.append(entry)
            return False
        return True

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))


class CleaningRules:
    """The decisions of one cleaning about every batch of a log."""

    __slots__ = ("_horizon_ms", "_last_batches", "_newest", "_now_ms", "transactions")

    def __init__(
        self,
        newest: OffsetMap,
        transactions: TransactionFilter,
        last_batches: LastBatches,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._newest = newest
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.transactions = transactions

    def cleaned(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Return the cleaned batch: the same view if nothing is removed, a rewritten batch, or None
        if nothing remains."""
        if header.is_control:
            return self._cleaned_marker(header, batch)
        is_aborted = self.transactions.is_aborted(header)
        if header.base_offset >= self._newest.end_offset:
            return batch
        if is_aborted or not header.record_count:
            return self._without_records(header)
        return self._cleaned_data(header, batch)

    def _cleaned_marker(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        is_idle = self.transactions.is_marker_idle(header, batch)
        if header.base_offset >= self._newest.end_offset or not is_idle:
            return batch
        if not header.record_count:
            return self._without_records(header)
        horizon_ms = rewrite.delete_horizon(header)
        if horizon_ms is None:
            return rewrite.with_horizon(header, list(iterate_records(batch)), self._horizon_ms)
        return self._without_records(header) if horizon_ms <= self._now_ms else batch

    def _cleaned_data(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        horizon_ms = rewrite.delete_horizon(header)
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        newest, end_offset = self._newest.newest, self._newest.end_offset
        has_tombstones = False
        try:
            records = list(iterate_records(batch))
        except WireError:
            # The batch has records without keys, because it was written before the topic was
            # compacted. It cannot be cleaned, so keep it.
            return batch
        kept = []
        for record in records:
            if record.offset >= end_offset:
                stays = True
            elif record.key is None or record.offset < newest(record.key):
                stays = False
            else:
                stays = record.value is not None or keeps_tombstones
            kept.append(stays)
            has_tombstones = has_tombstones or (stays and record.value is None)
        if not any(kept):
            return self._without_records(header)
        if has_tombstones and horizon_ms is None:
            left = [record for record, stays in zip(records, kept, strict=True) if stays]
            return rewrite.with_horizon(header, left, self._horizon_ms)
        if all(kept):
            return batch
        return rewrite.without(header, rewrite.payload_of(header, batch), records, kept)

    def _without_records(self, header: BatchHeader) -> bytes | memoryview | None:
        known = self._last_batches.get(header.producer_id)
        if header.producer_id < 0 or known is None:
            return None
        producer_epoch, last_offsets = known
        if last_offsets:
            is_last = header.last_offset in last_offsets
        else:
            is_last = header.is_control and header.producer_epoch == producer_epoch
        return rewrite.emptied(header) if is_last else None
