"""Lines on their way out: one open batch per partition, and a bounded window of batches in flight.

Floor: above `encode` and `delivery`. Pure. The driver offers blocks with `fit` and `put`, which
take what there is room for; takes batches that are due with `seal`; reports each as `settled` or
`refused`. A refused batch keeps its partition closed until it went through: order holds, nothing
is dropped, and the file waits. There is no other queue.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from collector.config import BACKFILL_WINDOW, LINGER_MS, PARTITION_WINDOW, RETRY_MS
from collector.delivery import Span
from collector.encode import (
    RECORDS_MAX,
    Piece,
    encoded_size_max,
    fitting_count,
    header_octets,
    record_overhead_max,
)
from collector.lines import Block, LineRules, Overlong, split_lines
from collector.schedule import Backoff, Lane
from protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece in a batch, whose it is, and the span that its arrival settles."""

    generation: str
    span: Span
    piece: Piece


@dataclass(slots=True)
class Batch:
    """Pieces that travel together to one partition."""

    number: int
    partition: TopicPartition
    entries: list[Entry]
    encoded_bytes_max: int = 0

    @property
    def record_count(self) -> int:
        """How many records the batch holds."""
        return sum(entry.piece.block.count for entry in self.entries)

    @property
    def raw_bytes(self) -> int:
        """How many bytes of files the batch keeps in memory."""
        return sum(len(entry.piece.block.data) for entry in self.entries)


@dataclass(slots=True)
class _Partition:
    """One partition: the open batch, what is in flight, what was refused."""

    open: Batch
    open_records: int = 0
    is_full: bool = False
    in_flight: int = 0
    last_sent_ms: int = -(10**15)
    refused: list[Batch] = field(default_factory=list)
    retry_at_ms: int = 0
    backoff: Backoff = field(default_factory=lambda: Backoff(*RETRY_MS))


class Outbox:
    """All partitions' lanes. `batch_limit(topic)` is the most a batch's records may take."""

    def __init__(self, batch_limit: Callable[[str], int], in_flight_bytes: int):
        self._batch_limit = batch_limit
        self._bytes_max = in_flight_bytes
        self._states: dict[TopicPartition, _Partition] = {}
        self._numbers = itertools.count(1)
        self.bytes_held = 0

    @property
    def is_empty(self) -> bool:
        """Nothing is open, in flight or refused."""
        return not self.bytes_held

    def has_room(self, partition: TopicPartition, lane: Lane) -> bool:
        """Whether a file of this partition may take its turn.

        Live files may fill the window; backfill leaves part of it free for them.
        """
        state = self._state(partition)
        if state.refused or state.is_full:
            return False
        if lane is Lane.LIVE:
            return self.bytes_held < self._bytes_max
        return self.bytes_held < self._bytes_max // 2 and state.in_flight < BACKFILL_WINDOW

    def fit(
        self, partition: TopicPartition, piece: Piece, lane: Lane
    ) -> tuple[Piece | None, Block | None]:
        """How much of the piece the open batch has room for, and what of its block is left.

        Nothing is taken yet: that is `put`. A rest means that the open batch is full with it; the
        driver seals and offers the rest again, until nothing fits because the window is full.
        """
        state = self._state(partition)
        window = PARTITION_WINDOW if lane is Lane.LIVE else BACKFILL_WINDOW
        if state.is_full or state.refused or state.in_flight > window:
            return None, piece.block
        room = self._batch_limit(partition.topic) - state.open.encoded_bytes_max
        fitting = min(fitting_count(piece, room), RECORDS_MAX - state.open_records)
        if fitting == piece.block.count:
            return piece, None
        state.is_full = True
        if not fitting:
            assert state.open.entries, "a single line always fits an empty batch"
            return None, piece.block
        first, rest = piece.block.split_at(fitting)
        return piece._replace(block=first), rest

    def put(self, partition: TopicPartition, entry: Entry) -> None:
        """Take a piece that was just found to fit."""
        state = self._state(partition)
        state.open.entries.append(entry)
        state.open.encoded_bytes_max += encoded_size_max(entry.piece)
        state.open_records += entry.piece.block.count
        self.bytes_held += len(entry.piece.block.data)

    def seal(self, now_ms: int, *, flush: bool = False) -> list[Batch]:
        """The batches to send at this moment, each of which counts as in flight from here on.

        `flush` sends the open ones too, however short a time ago their partition had one.
        """
        sealed: list[Batch] = []
        for state in self._states.values():
            if state.refused:
                if not state.in_flight and now_ms >= state.retry_at_ms:
                    sealed += self._resend(state)
                continue
            due = state.is_full or flush or now_ms >= state.last_sent_ms + LINGER_MS
            if state.open.entries and due and state.in_flight < PARTITION_WINDOW:
                batch = state.open
                self._open_next(state)
                state.last_sent_ms = now_ms
                state.in_flight += 1
                sealed.append(batch)
        return sealed

    def settled(self, batch: Batch) -> None:
        """The batch was acknowledged: its bytes are free."""
        state = self._states[batch.partition]
        state.in_flight -= 1
        state.backoff.reset()
        self.bytes_held -= batch.raw_bytes

    def refused(self, batch: Batch, now_ms: int) -> None:
        """The batch was not taken: it goes again, before anything else of its partition."""
        state = self._states[batch.partition]
        state.in_flight -= 1
        if not state.refused:
            state.retry_at_ms = now_ms + state.backoff.next_ms()
        state.refused.append(batch)
        state.refused.sort(key=lambda other: other.number)

    @property
    def deadline_ms(self) -> int | None:
        """When `seal` may have something without any other event."""
        times = [
            state.retry_at_ms if state.refused else state.last_sent_ms + LINGER_MS
            for state in self._states.values()
            if (not state.in_flight if state.refused else state.open.entries)
            and state.in_flight < PARTITION_WINDOW
        ]
        return min(times, default=None)

    def refused_partitions(self) -> list[TopicPartition]:
        """The partitions that are closed until a refused batch goes through."""
        return [partition for partition, state in self._states.items() if state.refused]

    def _resend(self, state: _Partition) -> list[Batch]:
        limit = self._batch_limit(state.open.partition.topic)
        if any(batch.encoded_bytes_max > limit for batch in state.refused):
            self._repack(state, limit)
        again = state.refused[:PARTITION_WINDOW]
        del state.refused[:PARTITION_WINDOW]
        state.in_flight += len(again)
        return again

    def _repack(self, state: _Partition, limit: int) -> None:
        """Cut refused batches for a limit that has become smaller; lines beyond it are split."""
        entries = [entry for batch in state.refused for entry in batch.entries]
        state.refused = [Batch(next(self._numbers), state.open.partition, [])]
        for entry in entries:
            piece = entry.piece
            blocks = _cut(piece, limit) if encoded_size_max(piece) > limit else [piece.block]
            entry.span.parts_open += len(blocks) - 1
            self.bytes_held -= len(piece.block.data)
            for block in blocks:
                part = piece._replace(block=block)
                size = encoded_size_max(part)
                batch = state.refused[-1]
                if batch.entries and batch.encoded_bytes_max + size > limit:
                    batch = Batch(next(self._numbers), state.open.partition, [])
                    state.refused.append(batch)
                batch.entries.append(Entry(entry.generation, entry.span, part))
                batch.encoded_bytes_max += size
                self.bytes_held += len(block.data)

    def _state(self, partition: TopicPartition) -> _Partition:
        found = self._states.get(partition)
        if found is None:
            found = _Partition(Batch(next(self._numbers), partition, []))
            self._states[partition] = found
        return found

    def _open_next(self, state: _Partition) -> None:
        state.open = Batch(next(self._numbers), state.open.partition, [])
        state.open_records = 0
        state.is_full = False


def _cut(piece: Piece, limit: int) -> list[Block]:
    """The piece's block in parts that each fit an empty batch."""
    overhead = record_overhead_max(piece.key) + len(header_octets(piece.headers))
    rules = LineRules(limit - overhead, piece.block.cut_cr, Overlong.SPLIT)
    parts = []
    for block in split_lines(piece.block.data, 0, rules):
        rest = block
        while (count := max(1, fitting_count(piece._replace(block=rest), limit))) < rest.count:
            first, rest = rest.split_at(count)
            parts.append(first)
        parts.append(rest)
    return parts
