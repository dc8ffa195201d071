"""From files to batches: whose turn it is, what it gives, and where that goes.

Floor: above `reader` and `outbox`. Synchronous and without a socket: the agent asks for batches by
`step`, sends them, and reports each as `delivered` or `refused`. A test can do the same in memory.
"""

from collections.abc import Callable, Iterable

from collector.config import DEAD_LETTERS_TOPIC
from collector.encode import Header, Piece
from collector.files import Unreadable
from collector.generation import Generation
from collector.lines import Block, Kind
from collector.outbox import Batch, Entry, Outbox
from collector.reader import Reader
from collector.schedule import Lane, Schedule
from protocol.types import TopicPartition

LIVE_TURNS = 64  # live files read before one backfill turn and before the loop breathes

UNFINISHED_HEADERS: tuple[Header, ...] = ((b"millrace.unfinished", b"1"),)

Partitioner = Callable[[str, bytes], TopicPartition]
"""The partition of a topic for a key."""

KeyOf = Callable[[Generation], bytes | None]
"""The key of a generation's records."""


def file_key(generation: Generation) -> bytes:
    """The path a generation's records are keyed by; a keyless file still has one partition."""
    return generation.record_key.encode(errors="surrogateescape")


class Feeder:
    """Keeps files and partitions busy, within the outbox's bounds."""

    def __init__(self, reader: Reader, outbox: Outbox, partition_of: Partitioner, key_of: KeyOf):
        self.reader = reader
        self.outbox = outbox
        self.registry = reader.registry
        self.counters = reader.registry.counters
        self._partition_of = partition_of
        self._key_of = key_of
        self._schedule: Schedule[str, TopicPartition] = Schedule()

    def wake(self, generations: Iterable[Generation]) -> None:
        """These may have something to read."""
        for generation in generations:
            self._schedule.ready(generation.name, generation.lane)

    def step(self, now_ms: int, *, flush: bool = False) -> list[Batch]:
        """Give some live files a turn each and one backfill file, and return what is to be sent."""
        self.wake(self._named(self._schedule.expire(now_ms)))
        sealed: list[Batch] = []
        for _ in range(LIVE_TURNS):
            name = self._schedule.next(Lane.LIVE)
            if name is None:
                break
            self._turn(name, Lane.LIVE, now_ms, sealed)
        name = self._schedule.next(Lane.BACKFILL)
        if name is not None:
            self._turn(name, Lane.BACKFILL, now_ms, sealed)
        sealed += self.outbox.seal(now_ms, flush=flush)
        return sealed

    @property
    def is_busy(self) -> bool:
        """Some file is ready for a turn."""
        return any(self._schedule.waiting(lane) for lane in Lane)

    @property
    def deadline_ms(self) -> int | None:
        """When `step` may do something without any other event."""
        times = (self._schedule.deadline_ms, self.outbox.deadline_ms)
        return min((time for time in times if time is not None), default=None)

    def delivered(self, batch: Batch) -> None:
        """The batch is acknowledged: positions move, room is free."""
        self.outbox.settled(batch)
        for entry in batch.entries:
            generation = self.registry.generations[entry.generation]
            assert generation.delivery is not None
            if generation.delivery.acknowledge(entry.span):
                generation.touch()
            block = entry.piece.block
            self.counters["bytes_total"] += block.end - block.start
        if batch.partition.topic == DEAD_LETTERS_TOPIC:
            self.counters["dead_lettered"] += batch.record_count
        else:
            self.counters["lines_total"] += batch.record_count
        self._release()

    def refused(self, batch: Batch, now_ms: int) -> None:
        """The batch was not taken; it will be among those of a later `step`."""
        self.outbox.refused(batch, now_ms)

    def finish(self, generation: Generation, now_ms: int) -> list[Batch]:
        """Send the unfinished last line of a file that no more is expected of."""
        block = self.reader.finish(generation)
        sealed: list[Batch] = []
        if block is not None:
            self._pass_on(generation, block, Lane.LIVE, now_ms, sealed)
        return sealed

    def _turn(self, name: str, lane: Lane, now_ms: int, sealed: list[Batch]) -> None:
        generation = self.registry.generations.get(name)
        if generation is None:
            return
        if generation.partition is None or generation.partition.topic != generation.topic:
            key = self._key_of(generation) or file_key(generation)
            generation.partition = self._partition_of(generation.topic, key)
        if not self.outbox.has_room(generation.partition, lane):
            self._schedule.park(name, generation.partition)
            return
        try:
            turn = self.reader.turn(generation, now_ms)
        except Unreadable as problem:
            generation.error = str(problem)
            self._schedule.delay(name, now_ms + generation.backoff.next_ms())
            return
        for block in turn.blocks:
            if not self._pass_on(generation, block, lane, now_ms, sealed):
                assert generation.tailer is not None
                generation.tailer.rewind()
                return
        if turn.has_more:
            self._schedule.ready(name, generation.lane)

    def _pass_on(
        self, generation: Generation, block: Block, lane: Lane, now_ms: int, sealed: list[Batch]
    ) -> bool:
        """Put a block into batches, sealing those that fill up; False when there is no room."""
        assert generation.tailer is not None
        assert generation.delivery is not None
        partition, piece = self._address(generation, block)
        rest: Block | None = block
        while rest is not None:
            taken, rest = self.outbox.fit(partition, piece._replace(block=rest), lane)
            if taken is not None:
                evidence = generation.tailer.hand_out(taken.block)
                span = generation.delivery.send(evidence, taken.block.count)
                self.outbox.put(partition, Entry(generation.name, span, taken))
                self._count(taken.block)
            if rest is None:
                break
            more = self.outbox.seal(now_ms)
            sealed += more
            if taken is None and not more:
                self._schedule.park(generation.name, partition)
                return False
        return True

    def _address(self, generation: Generation, block: Block) -> tuple[TopicPartition, Piece]:
        """Where a block goes, and under which key and headers."""
        assert generation.partition is not None
        key = self._key_of(generation)
        if block.kind is Kind.UNFINISHED:
            return generation.partition, Piece(key, block, UNFINISHED_HEADERS)
        if block.kind is not Kind.DEAD_LETTER:
            return generation.partition, Piece(key, block)
        is_damaged = generation.archive is not None and generation.archive.damage is not None
        headers = (
            (b"reason", b"damaged_archive" if is_damaged else b"overlong"),
            (b"topic", generation.topic.encode()),
            (b"file", generation.path.encode(errors="surrogateescape")),
            (b"offset", str(block.start).encode()),
            (b"length", str(block.end - block.start).encode()),
        )
        partition = self._partition_of(DEAD_LETTERS_TOPIC, file_key(generation))
        return partition, Piece(file_key(generation), block, headers)

    def _count(self, block: Block) -> None:
        if block.kind is Kind.UNFINISHED:
            self.counters["unfinished_sent"] += 1
        elif block.kind is not Kind.LINES:
            self.counters[f"overlong_{block.kind}"] += 1

    def _release(self) -> None:
        for place in self._schedule.places():
            if self.outbox.has_room(place, Lane.LIVE):
                self.wake(self._named(self._schedule.release(place)))

    def _named(self, names: Iterable[str]) -> list[Generation]:
        known = self.registry.generations
        return [known[name] for name in names if name in known]
