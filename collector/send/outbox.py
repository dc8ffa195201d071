"""Lines to send: batches being filled, and a bounded window of batches without acknowledgement.

This module is pure. A queue holds the lines for one partition of an input's topic, together with
the dead letters of the same files. The driver offers blocks with `fit` and `put`, which accept the
part that fits. `take` returns the batches for the open transaction. The driver reports each batch
as `acknowledged`. Then it reports it as `settled` after a commit, or as `given_back` after an
abort. A batch stays in memory until it is settled, so an abort loses nothing. Batches that were
given back are sent before all others of their queue, so the order is kept. A queue that made a
transaction fail is `suspect`. The other queues continue without it, and it is tried again in
transactions of its own.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from collector.config.input_section import LINE_BYTES_MIN
from collector.config.settings import BACKFILL_WINDOW, PARTITION_WINDOW, RETRY_MS
from collector.text.encode import (
    RECORDS_MAX,
    Piece,
    encoded_size_max,
    fitting_count,
    header_octets,
    record_overhead_max,
)
from collector.text.lines import Block, LineRules, Overlong, RecordKind, single_block, split_lines
from collector.timing.schedule import DoublingWait, ReadQueue
from protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class BatchedPiece:
    """A piece in a batch, and the name of the generation to which it belongs."""

    generation: str
    piece: Piece


@dataclass(slots=True)
class SendBatch:
    """Pieces that are sent together to one partition. `place` identifies their queue."""

    number: int
    partition: TopicPartition
    place: TopicPartition
    entries: list[BatchedPiece] = field(default_factory=list)
    encoded_bytes_max: int = 0
    record_count: int = 0
    raw_bytes: int = 0
    """The number of bytes of the files' lines that the batch keeps in memory."""

    def add(self, entry: BatchedPiece, encoded_bytes: int) -> None:
        """Add one piece to the batch."""
        self.entries.append(entry)
        self.encoded_bytes_max += encoded_bytes
        self.record_count += entry.piece.block.count
        self.raw_bytes += len(entry.piece.block.data)


@dataclass(slots=True)
class _PartitionQueue:
    """The batches of one queue: open ones, full ones and those given back.

    In flight is a number.
    """

    open: dict[TopicPartition, SendBatch] = field(default_factory=dict)
    full: deque[SendBatch] = field(default_factory=deque)
    back: list[SendBatch] = field(default_factory=list)
    in_flight: int = 0
    is_suspect: bool = False
    retry_at_ms: int = 0
    backoff: DoublingWait = field(default_factory=lambda: DoublingWait(*RETRY_MS))

    @property
    def window(self) -> int:
        """The number of full batches that are not acknowledged yet."""
        return len(self.full) + self.in_flight


class SendQueues:
    """All queues of lines to send.

    `batch_limit(topic)` is the most bytes that the records of one batch can take.
    """

    def __init__(self, batch_limit: Callable[[str], int], held_bytes_max: int):
        self.batch_limit = batch_limit
        self._bytes_max = held_bytes_max
        self._places: dict[TopicPartition, _PartitionQueue] = {}
        self._numbers = itertools.count(1)
        self._trial: TopicPartition | None = None
        self._was_trial = False
        self.bytes_held = 0

    @property
    def is_empty(self) -> bool:
        """True if all pieces that were added are committed."""
        return not self.bytes_held

    def has_room(self, place: TopicPartition, read_queue: ReadQueue) -> bool:
        """Tell whether a file that writes to this queue may be read now.

        Live files may fill the whole window. Files of the backfill leave part of it free for live
        files.
        """
        state = self._place(place)
        if state.back or state.is_suspect:
            return False
        if read_queue is ReadQueue.LIVE:
            return self.bytes_held < self._bytes_max and state.window < PARTITION_WINDOW
        return self.bytes_held < self._bytes_max // 2 and state.window < BACKFILL_WINDOW

    def fit(
        self, place: TopicPartition, partition: TopicPartition, piece: Piece, read_queue: ReadQueue
    ) -> tuple[Piece | None, Block | None]:
        """Return the part of the piece for which there is room, and the remaining part of its
        block.

        Nothing is added yet; `put` adds the first part. Offer the remaining part again until
        nothing fits. The remaining records of a group always fit, because its first records are
        already in a batch.
        """
        state = self._place(place)
        window = PARTITION_WINDOW if read_queue is ReadQueue.LIVE else BACKFILL_WINDOW
        is_rest = piece.block.is_rest
        if state.back or state.is_suspect or (state.window > window and not is_rest):
            return None, piece.block
        batch = self._open(state, place, partition)
        fitting = self._fitting(batch, piece)
        if not fitting:
            if state.window >= window and not is_rest:
                return None, piece.block
            state.full.append(state.open.pop(partition))
            fitting = self._fitting(self._open(state, place, partition), piece)
        if fitting == piece.block.count:
            return piece, None
        first, rest = piece.block.split_at(fitting)
        return piece._replace(block=first), rest

    def put(self, place: TopicPartition, partition: TopicPartition, entry: BatchedPiece) -> None:
        """Add a piece that `fit` has just returned to a batch."""
        batch = self._open(self._place(place), place, partition)
        batch.add(entry, encoded_size_max(entry.piece))
        self.bytes_held += len(entry.piece.block.data)

    def begin(self, now_ms: int) -> None:
        """Begin a transaction. Choose whether it is for one suspect queue or for all other queues.

        A transaction of the other queues comes between two trials of suspect queues, if they have
        batches.
        """
        self._trial = None
        if self._was_trial and any(self._sendable()):
            self._was_trial = False
            return
        due = (
            (state.retry_at_ms, place)
            for place, state in self._places.items()
            if state.is_suspect and state.retry_at_ms <= now_ms
        )
        self._trial = min(due, default=(0, None))[1]
        self._was_trial = self._trial is not None

    @property
    def is_full(self) -> bool:
        """True if a queue has so many full batches that files wait until they are sent."""
        return any(len(state.full) >= BACKFILL_WINDOW for _, state in self._sendable())

    @property
    def is_trial(self) -> bool:
        """True if the open transaction is a trial of one suspect queue."""
        return self._trial is not None

    def take(self, *, everything: bool) -> list[SendBatch]:
        """Return the batches for the open transaction: only the full ones, or all."""
        taken: list[SendBatch] = []
        for place, state in self._sendable():
            found = self._again(place, state) if state.back else []
            found += state.full
            state.full.clear()
            if everything:
                found += [batch for batch in state.open.values() if batch.entries]
                state.open.clear()
            for batch in found:
                # Batches are numbered in the order of sending. After an abort they are sorted by
                # these numbers.
                batch.number = next(self._numbers)
            state.in_flight += len(found)
            taken += found
        return taken

    def covers(self, place: TopicPartition) -> bool:
        """Tell whether `take` adds the batches of this queue to the open transaction."""
        if self._trial is not None:
            return place == self._trial
        state = self._places.get(place)
        return state is None or not state.is_suspect

    def acknowledged(self, batch: SendBatch) -> None:
        """Handle the acknowledgement of a batch. The window of its queue has room again."""
        self._places[batch.place].in_flight -= 1

    def settled(self, batch: SendBatch) -> None:
        """Handle the commit of a batch, and free its memory."""
        state = self._places[batch.place]
        state.is_suspect = False
        state.backoff.reset()
        self.bytes_held -= batch.raw_bytes

    def given_back(self, batch: SendBatch, *, was_acknowledged: bool) -> None:
        """Handle the abort of the batch's transaction, so that the batch is sent again."""
        state = self._places[batch.place]
        state.in_flight -= not was_acknowledged
        state.back.append(batch)
        state.back.sort(key=lambda other: other.number)

    def suspect(self, place: TopicPartition, now_ms: int) -> None:
        """Mark a queue as the cause of a failed transaction. It is tried again later, without
        others.
        """
        state = self._places[place]
        state.is_suspect = True
        state.retry_at_ms = now_ms + state.backoff.next_ms()

    @property
    def retry_at_ms(self) -> int | None:
        """The time when the next suspect queue is tried again; None if no queue is suspect."""
        times = [state.retry_at_ms for state in self._places.values() if state.is_suspect]
        return min(times, default=None)

    @property
    def has_given_back(self) -> bool:
        """True if batches were given back that can be sent again at once."""
        return any(state.back and not state.is_suspect for state in self._places.values())

    def suspects(self) -> list[TopicPartition]:
        """Return the queues that wait to be tried again."""
        return [place for place, state in self._places.items() if state.is_suspect]

    def _sendable(self) -> Iterator[tuple[TopicPartition, _PartitionQueue]]:
        for place, state in self._places.items():
            is_wanted = place == self._trial if self._trial is not None else not state.is_suspect
            if is_wanted and (state.back or state.full or state.open):
                yield place, state

    def _again(self, place: TopicPartition, state: _PartitionQueue) -> list[SendBatch]:
        back, state.back = state.back, []
        if all(batch.encoded_bytes_max <= self._limit_of(batch) for batch in back):
            return back
        return self._repack(place, back)

    def _repack(self, place: TopicPartition, back: list[SendBatch]) -> list[SendBatch]:
        """Distribute the lines of batches again because the topic's limit became smaller.

        Lines that no longer fit are split.
        """
        packed: list[SendBatch] = []
        last: dict[TopicPartition, SendBatch] = {}
        for batch in back:
            limit = self._limit_of(batch)
            self.bytes_held -= batch.raw_bytes
            for entry in batch.entries:
                piece = entry.piece
                blocks = _cut(piece, limit) if encoded_size_max(piece) > limit else [piece.block]
                for block in blocks:
                    part = piece._replace(block=block)
                    size = encoded_size_max(part)
                    target = last.get(batch.partition)
                    if target is None or target.encoded_bytes_max + size > limit:
                        target = SendBatch(next(self._numbers), batch.partition, place)
                        last[batch.partition] = target
                        packed.append(target)
                    target.add(BatchedPiece(entry.generation, part), size)
                    self.bytes_held += len(block.data)
        return packed

    def _fitting(self, batch: SendBatch, piece: Piece) -> int:
        room = self._limit_of(batch) - batch.encoded_bytes_max
        count = min(fitting_count(piece, room), RECORDS_MAX - batch.record_count)
        # The key and headers alone can exceed the limit of the topic. Then the brokers refuse the
        # record, and the refusal is reported.
        return count or int(not batch.entries)

    def _limit_of(self, batch: SendBatch) -> int:
        return self.batch_limit(batch.partition.topic)

    def _place(self, place: TopicPartition) -> _PartitionQueue:
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = _PartitionQueue()
        return found

    def _open(
        self, state: _PartitionQueue, place: TopicPartition, partition: TopicPartition
    ) -> SendBatch:
        found = state.open.get(partition)
        if found is None:
            found = SendBatch(next(self._numbers), partition, place)
            state.open[partition] = found
        return found


def _cut(piece: Piece, limit: int) -> list[Block]:
    """Divide the block of a piece into parts that each fit in an empty batch."""
    overhead = record_overhead_max(piece.key) + len(header_octets(piece.headers))
    room = limit - overhead if limit > overhead else LINE_BYTES_MIN
    rules = LineRules(room, piece.block.cut_cr, Overlong.SPLIT)
    parts = []
    is_events = piece.block.kind is RecordKind.EVENTS
    for block in (
        _pieces(piece.block, rules.limit_bytes)
        if is_events
        else split_lines(piece.block.data, 0, rules)
    ):
        rest = block
        while (count := max(1, fitting_count(piece._replace(block=rest), limit))) < rest.count:
            first, rest = rest.split_at(count)
            parts.append(first)
        parts.append(rest)
    return parts


def _pieces(block: Block, limit: int) -> list[Block]:
    """Return each record of a block as a separate block. Records above the limit are split."""
    parts = []
    begin = 0
    for newline in block.newlines.tolist():
        record = block.data[begin:newline]
        for start in range(0, max(1, len(record)), limit):
            parts.append(single_block(record[start : start + limit], 0, 0, RecordKind.PIECE))
        begin = newline + 1
    return parts
