"""Moves lines from files to batches: decides which file is read next, and where its lines go.

The module is synchronous and uses no socket, so tests can run it in memory. `step` reads files and
fills the outbox. The committer sends the content of the outbox.
"""

import heapq
from collections.abc import Callable, Iterable

from collector.config.input_section import DEAD_LETTERS_TOPIC, InputSection
from collector.config.settings import BLOCK_BYTES, COMMIT_MS, SHARED_BLOCK_BYTES
from collector.identity.generation import Generation
from collector.identity.handles import Unreadable
from collector.read.reader import Reader
from collector.read.turn import Turn
from collector.send.addresses import UNFINISHED_HEADERS, Addresses, file_key
from collector.send.dead_letters import dead_letter
from collector.send.lag_windows import LagWindows
from collector.send.outbox import BatchedPiece, SendBatch, SendQueues
from collector.text.encode import Piece
from collector.text.lines import Block, RecordKind
from collector.timing.pace import ReadLimit
from collector.timing.rhythm import Rhythm
from collector.timing.schedule import ReadQueue, Schedule
from protocol.types import TopicPartition

LIVE_TURNS = 64  # live files that are read before one backfill file is read and other tasks run

Partitioner = Callable[[str, bytes], TopicPartition | None]
"""A function that returns the partition for a key; None while the topic must be created."""


class Feeder:
    """Reads one file after the other, as long as the outbox has space."""

    def __init__(
        self,
        reader: Reader,
        outbox: SendQueues,
        rhythm: Rhythm,
        partition_of: Partitioner,
        addresses: Addresses,
    ):
        self.reader = reader
        self.outbox = outbox
        self.rhythm = rhythm
        self.registry = reader.registry
        self.counters = reader.registry.counters
        self._partition_of = partition_of
        self._addresses = addresses
        self.windows = LagWindows()
        self._schedule: Schedule[str, TopicPartition] = Schedule()
        self._held: dict[TopicPartition, dict[str, None]] = {}
        """The files that wait for the lag window of their partition, by partition."""
        self._unmade: dict[str, dict[str, None]] = {}
        """The files that wait for the creation of their topic, by topic."""
        self._paces: dict[int, tuple[InputSection, ReadLimit]] = {}
        self._paced: set[str] = set()
        self._alarms: list[tuple[int, str]] = []
        self._alarm_of: dict[str, int] = {}

    def wake(self, generations: Iterable[Generation]) -> None:
        """Queue files that can have unread lines."""
        for generation in generations:
            self._schedule.ready(generation.name, generation.read_queue)

    def step(self, now_ms: int) -> None:
        """Read the live files that are ready and one backfill file, and put their lines in the
        outbox."""
        expired = self._schedule.expire(now_ms)
        self._paced.difference_update(expired)
        self.wake(self._named(expired))
        while self._alarms and self._alarms[0][0] <= now_ms:
            at_ms, due = heapq.heappop(self._alarms)
            if self._alarm_of.get(due) == at_ms:
                del self._alarm_of[due]
                self.wake(self._named([due]))
        self._let_go_on(now_ms)
        for _ in range(LIVE_TURNS):
            name = self._schedule.next(ReadQueue.LIVE)
            if name is None:
                break
            self._turn(name, ReadQueue.LIVE, now_ms)
        name = self._schedule.next(ReadQueue.BACKFILL)
        if name is not None:
            self._turn(name, ReadQueue.BACKFILL, now_ms)

    @property
    def is_busy(self) -> bool:
        """True if a file is ready to be read."""
        return any(self._schedule.waiting(one) for one in ReadQueue)

    @property
    def held_files(self) -> int:
        """The number of files that wait for the lag window of their partition."""
        return sum(map(len, self._held.values()))

    @property
    def is_waiting(self) -> bool:
        """True if a file waits for a rate limit, the lag window of its partition, or its topic."""
        return bool(self._paced or self._held or self._unmade)

    @property
    def wanted_topics(self) -> list[str]:
        """The topics for which files wait."""
        return list(self._unmade)

    def topic_made(self, topic: str) -> None:
        """Queue the files that waited for this topic."""
        self.wake(self._named(self._unmade.pop(topic, ())))

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `step` must be called again; None if it waits for an event."""
        times = [self._schedule.deadline_ms, self._alarms[0][0] if self._alarms else None]
        return min((time for time in times if time is not None), default=None)

    def committed(self, batch: SendBatch) -> None:
        """Add a committed batch to the counters, and free its space in the outbox."""
        self.outbox.settled(batch)
        for entry in batch.entries:
            block = entry.piece.block
            self.counters["bytes_total"] += block.end - block.start
        if batch.partition.topic == DEAD_LETTERS_TOPIC:
            self.counters["dead_lettered"] += batch.record_count
        else:
            self.counters["lines_total"] += batch.record_count
        if batch.partition == batch.place:
            self.windows.settled(batch.place, batch.record_count)

    def covers(self, generation: Generation) -> bool:
        """Tell whether the open transaction has all lines that were handed out of a file.

        For a copy, it must also have the lines of its original. Otherwise the collector could crash
        before they are sent, and this copy could be the only file that still has them.
        """
        original = generation.copy_of
        if original is not None and (original.has_open_event or not self.covers(original)):
            return False
        if generation.partition is None or generation.is_settled:
            return True
        return self.outbox.covers(generation.partition)

    def release(self) -> None:
        """Queue the files that waited for space in the outbox, if their queue has space again."""
        for place in self._schedule.places():
            if self.outbox.has_room(place, ReadQueue.LIVE):
                self.wake(self._named(self._schedule.release(place)))

    def finish(self, generation: Generation, now_ms: int) -> None:
        """Send the unfinished last line of a file that is not expected to grow."""
        if generation.partition is not None and not generation.unroutable:
            self._give(generation, self.reader.finish(generation), ReadQueue.LIVE, now_ms)

    def _let_go_on(self, now_ms: int) -> None:
        """Queue one waiting file of each partition whose lag window has space again."""
        for place, names in list(self._held.items()):
            name = next(iter(names))
            if self.windows.may_go_on(place, name, now_ms):
                del names[name]
                self.wake(self._named([name]))
            if not names:
                del self._held[place]

    def _turn(self, name: str, read_queue: ReadQueue, now_ms: int) -> None:
        generation = self.registry.generations.get(name)
        self._paced.discard(name)
        if generation is None:
            return
        if generation.unroutable:
            generation.error = generation.unroutable
            return
        if generation.partition is None or generation.partition.topic != generation.topic:
            if not generation.is_settled:
                # Wait until no lines are in flight. They belong to the old topic, and one commit
                # must concern only one topic.
                self._schedule.delay(name, now_ms + COMMIT_MS)
                return
            key = self._addresses.partition_key_of(generation)
            partition = self._partition_of(generation.topic, key)
            if partition is None:
                self._unmade.setdefault(generation.topic, {})[name] = None
                self.reader.keep(generation)
                return
            generation.partition = partition
        if (until_ms := self._wait_until_ms(generation, now_ms)) is not None:
            self._paced.add(name)
            self._schedule.delay(name, until_ms)
            self.reader.keep(generation)
            return
        if not self.outbox.has_room(generation.partition, read_queue):
            self._schedule.park(name, generation.partition)
            self.reader.keep(generation)
            return
        block_bytes = BLOCK_BYTES
        if generation.is_behind and self.windows.is_shared(generation.partition, name, now_ms):
            if not self.windows.may_go_on(generation.partition, name, now_ms):
                self._held.setdefault(generation.partition, {})[name] = None
                self.reader.keep(generation)
                return
            block_bytes = SHARED_BLOCK_BYTES
        try:
            turn = self.reader.turn(generation, now_ms, block_bytes)
        except Unreadable as problem:
            generation.error = str(problem)
            self._schedule.delay(name, now_ms + generation.backoff.next_ms())
            return
        pace = self._pace_of(generation)
        if pace is not None:
            pace.took(sum(block.end - block.start for block in turn.blocks), now_ms)
        if not self._give(generation, turn, read_queue, now_ms):
            return
        generation.was_read(to_its_end=not turn.has_more)
        self.wake(turn.others)
        if turn.wake_at_ms is not None and self._alarm_of.get(name) != turn.wake_at_ms:
            self._alarm_of[name] = turn.wake_at_ms
            heapq.heappush(self._alarms, (turn.wake_at_ms, name))
        if turn.has_more:
            self._schedule.ready(name, generation.read_queue)

    def _pace_of(self, generation: Generation) -> ReadLimit | None:
        """Return the rate limit that all files of the input share; None if there is none."""
        section = generation.section
        if section.max_bytes_per_second is None:
            return None
        known = self._paces.get(id(section))
        if known is None or known[0] is not section:
            known = self._paces[id(section)] = section, ReadLimit(section.max_bytes_per_second)
        return known[1]

    def _wait_until_ms(self, generation: Generation, now_ms: int) -> int | None:
        pace = self._pace_of(generation)
        return None if pace is None else pace.wait_until_ms(now_ms)

    def _give(self, generation: Generation, turn: Turn, read_queue: ReadQueue, now_ms: int) -> bool:
        """Put the blocks of a read into batches.

        Return False if there was no room for all of them.
        """
        joined = turn.joined
        for block in turn.blocks:
            if not self._pass_on(generation, block, read_queue, now_ms):
                # Rewind, so that the lines are read again later. A file that has ended cannot be
                # read again, so its lines stay in memory.
                if generation.tailer is not None and not generation.state.has_ended:
                    generation.tailer.rewind()
                return False
            if joined is not None:
                # Hand out the open event of the earlier file now. Then one transaction has the
                # joined record and the positions of both files.
                self._hand_out_beside(joined)
                joined = None
        return True

    def _hand_out_beside(self, known: Generation) -> None:
        """Hand out a file's open event, which was joined with the first record of the next file."""
        assert known.tailer is not None and known.tailer.pending is not None
        assert known.delivery is not None
        known.delivery.send(known.tailer.hand_out(known.tailer.pending), 0)
        known.touch()
        self.counters["events_joined"] += 1

    def _pass_on(
        self, generation: Generation, block: Block, read_queue: ReadQueue, now_ms: int
    ) -> bool:
        """Put a block into batches. Return False if there was no room for all of it."""
        place = generation.partition
        assert place is not None
        partition, piece = self._address(generation, block)
        rest: Block | None = piece.block
        while rest is not None:
            taken, rest = self.outbox.fit(place, partition, piece._replace(block=rest), read_queue)
            if taken is None:
                self._schedule.park(generation.name, place)
                return False
            generation.hand_out(taken.block)
            self.outbox.put(place, partition, BatchedPiece(generation.name, taken))
            if partition == place:
                self.windows.handed_out(place, taken.block.count)
            if generation.keeps_up:
                self.windows.wrote_live(place, generation.name, now_ms)
            # Commit these lines as soon as live lines, because a lag window is smaller than one
            # backfill commit.
            is_shared = self.windows.is_shared(place, generation.name, now_ms)
            self.rhythm.handed_out(
                ReadQueue.LIVE if is_shared else read_queue, len(taken.block.data), now_ms
            )
            self._count(generation, taken.block)
        return True

    def _address(self, generation: Generation, block: Block) -> tuple[TopicPartition, Piece]:
        """Return the partition for a block, and the block with its key and headers."""
        assert generation.partition is not None
        key = self._addresses.key_of(generation)
        headers = self._addresses.headers_of(generation.section)
        if block.kind is RecordKind.UNFINISHED:
            return generation.partition, Piece(key, block, headers + UNFINISHED_HEADERS)
        line = Piece(key, block, headers)
        if not block.is_dead_letter:
            return generation.partition, line
        place_key = file_key(generation)
        limit = self.outbox.batch_limit(DEAD_LETTERS_TOPIC)
        partition = self._partition_of(DEAD_LETTERS_TOPIC, place_key)
        assert partition is not None, "the topic of dead letters exists before any file is read"
        return partition, dead_letter(generation, line, place_key, limit)

    def _count(self, generation: Generation, block: Block) -> None:
        if block.kind is RecordKind.UNFINISHED:
            self.counters["unfinished_sent"] += 1
        elif block.kind is RecordKind.INVALID:
            self.counters["invalid_dead_letter"] += 1
        elif not block.holds_lines:
            self.counters[f"overlong_{block.kind}"] += 1
        if block.shortened is not None:
            self.counters["events_cut"] += len(block.shortened)
        if block.bare is not None:
            self.counters["fields_not_put"] += len(block.bare)
        if block.altered is not None and len(block.altered):
            section = generation.section
            self.counters[f"invalid_{section.on_invalid}"] += len(block.altered)

    def _named(self, names: Iterable[str]) -> list[Generation]:
        known = self.registry.generations
        return [known[name] for name in names if name in known]
