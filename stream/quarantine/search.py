"""Decides which parts of a batch to count, so that only the lines that fail are not counted.

This module is pure. If counting a batch fails because of its content, the batch is halved until the
*guilty* lines (those that make counting fail) are isolated. All other parts are counted, and the
sinks get the result as one batch. `bisection.py` counts the parts that this module names.

A *part* is a tuple of offset ranges, each of at least one offset. Offsets can have gaps
(transaction markers), so a part can hold fewer lines than offsets, or none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sinks.rows import CellBlock, FoldRow, OffsetRange, UnparsedRow, UnparsedSample
from sinks.unparsed import SAMPLE_BYTES_MAX, SAMPLES_PER_FILE_AND_DAY
from stream.fold.counts import NOTHING_SPENT, BatchCounts, PartitionCount

POISON = "poison"

# The number of pieces into which a part that ended the JVM is divided. Counting a piece takes a
# moment, but each end of the JVM costs a new start. With 40 pieces, a search through 50,000 offsets
# needs three starts; with halves it would need sixteen.
FAN = 40

# The most parts of unknown content that are tried as one part, because guilty lines are rare.
RESTS_JOINED_MAX = 64

# The *blame* of a part measures how likely it is that the part ends the JVM. Each end adds to the
# blame of the part that was being counted. A part with BLAME_BELIEVED is guilty, so two ends
# without a signal are enough. For a piece of a guilty part one end is enough, unless it is a single
# offset. An end by a signal adds half as much. Mostly a person sent the signal, but the kernel also
# kills a process when memory runs out, perhaps because of the batch.
BLAME_ENDED = 2
BLAME_KILLED = 1
BLAME_BELIEVED = 2 * BLAME_ENDED

# The exit codes of a JVM after SIGKILL, and after the signals for an orderly end.
EXITS_BY_SIGNAL = (-9, 128 + 1, 128 + 2, 128 + 15)

# Batches are not made smaller than this because the JVM has ended. Java normally reports an error
# if a batch is too large for the heap, so an end has another cause, such as chance.
DEADLY_OFFSETS_MIN = 50_000

# After this many batches in parts, the size of the parts grows by a quarter.
BATCHES_TO_GROW = 50

Part = tuple[OffsetRange, ...]


class FailureKind(StrEnum):
    """The kind of failure of a part.

    DATA: an exception caused by a line. MEMORY: the heap was too small. DEADLY: the JVM ended.
    """

    DATA = "data"
    MEMORY = "memory"
    DEADLY = "deadly"


@dataclass(frozen=True, slots=True)
class PartFailure:
    """The reason why a part could not be counted: the name of the error, and its message.

    `words` is the message, which can quote the line.
    """

    kind: FailureKind
    name: str
    words: str = ""


DEADLY = PartFailure(FailureKind.DEADLY, "Java ended or hung")


@dataclass(frozen=True, slots=True)
class PoisonLine:
    """A line that was set aside: its partition and offset, its first bytes, and the reason in
    words.
    """

    topic: str
    file: str
    partition: int
    offset: int
    line: bytes
    why: str


def blame_of(exit_code: int | None) -> int:
    """Return the blame that an end of the JVM adds, by its exit code (None if that is unknown)."""
    return BLAME_KILLED if exit_code in EXITS_BY_SIGNAL else BLAME_ENDED


def size_of(part: Iterable[OffsetRange]) -> int:
    """Return the number of offsets in a part of a batch."""
    return sum(one.end - one.start for one in part)


def chopped(ranges: Iterable[OffsetRange], offsets_max: int) -> list[Part]:
    """Divide ranges into parts of at most `offsets_max`, in order, without empty ranges."""
    parts: list[Part] = []
    part: list[OffsetRange] = []
    room = offsets_max
    for one in ranges:
        start = one.start
        while start < one.end:
            end = min(one.end, start + room)
            part.append(OffsetRange(one.topic, one.partition, start, end))
            room -= end - start
            start = end
            if room == 0:
                parts.append(tuple(part))
                part, room = [], offsets_max
    return [*parts, tuple(part)] if part else parts


def halves(part: Part) -> tuple[Part, Part]:
    """Divide a part of several offsets in two: by partitions first, then by offsets."""
    if len(part) > 1:
        middle = len(part) // 2
        return part[:middle], part[middle:]
    (one,) = part
    middle = (one.start + one.end) // 2
    return (
        (OffsetRange(one.topic, one.partition, one.start, middle),),
        (OffsetRange(one.topic, one.partition, middle, one.end),),
    )


def _adjoined(ranges: Iterable[OffsetRange]) -> Part:
    """Return ranges in their order, with adjacent ranges of a partition joined to one."""
    part: list[OffsetRange] = []
    for one in ranges:
        last = part[-1] if part else one
        if (last.topic, last.partition, last.end) == (one.topic, one.partition, one.start):
            part[-1] = OffsetRange(one.topic, one.partition, last.start, one.end)
        else:
            part.append(one)
    return tuple(part)


@dataclass(slots=True)
class _Open:
    """A part that is not counted yet.

    - `failure`: the known failure of this part, so it need not be tried; else None.
    - `second_of`: for a second half, the failure of the whole part; else None. If the first half
      passes, this half must have caused that failure.
    - `is_rest`: true for a second half whose first half failed. Nothing is known about it.
    - `is_piece`: true for a piece of a part that ended the JVM.
    """

    part: Part
    failure: PartFailure | None = None
    second_of: PartFailure | None = None
    is_rest: bool = False
    is_piece: bool = False


class Search:
    """The search for guilty lines in one batch.

    The caller counts `part`, reports the result by `passed` or `failed`, and repeats this until
    `part` is None.

    Each guilty line among N offsets takes about log2(N) tries. If the first half of a failed part
    passes, the second half must fail, which saves a try. Parts of unknown content are tried several
    at once. A single line is found guilty only after it was tried alone, unless its recorded blame
    is BLAME_BELIEVED.
    """

    def __init__(
        self,
        ranges: Iterable[OffsetRange],
        *,
        failure: PartFailure | None = None,
        blame: Mapping[Part, int] | None = None,
        offsets_max: int | None = None,
    ) -> None:
        """`failure` is the failure of the whole batch, or None if the whole was not tried.

        `blame` is the recorded blame of parts. `offsets_max` is the largest size of a part; None
        means no limit.
        """
        whole = tuple(one for one in ranges if one.end > one.start)
        self.poison: list[tuple[OffsetRange, PartFailure]] = []
        self.offsets_left = size_of(whole)
        self._blame = blame or {}
        self._passed: list[BatchCounts] = []
        self._too_large: list[tuple[Part, int]] = []
        self._rests_joined = RESTS_JOINED_MAX
        parts = [whole] if whole else []
        if offsets_max is not None and failure is None:
            parts = chopped(whole, offsets_max)
        # A stack: the last element is the part that is tried next.
        self._open = [_Open(part, failure) for part in reversed(parts)]
        if failure is not None and whole:
            self._note_size(whole, failure)
        self._settle()

    @property
    def part(self) -> Part | None:
        """The part to count next; None when every offset is counted or found guilty."""
        return self._open[-1].part if self._open else None

    def passed(self, counts: BatchCounts) -> None:
        """Record that Spark counted the current part without a failure."""
        one = self._open.pop()
        self._passed.append(counts)
        self.offsets_left -= size_of(one.part)
        if one.is_rest:
            self._rests_joined = min(2 * self._rests_joined, RESTS_JOINED_MAX)
        if self._open and (second_of := self._open[-1].second_of) is not None:
            self._open[-1].failure = second_of
        self._settle()

    def failed(self, failure: PartFailure) -> None:
        """Record that Spark failed while it counted the current part."""
        self._note_size(self._open[-1].part, failure)
        self._divide(failure)
        self._settle()

    @property
    def counts(self) -> BatchCounts:
        """The counts of all parts that passed, combined."""
        return joined(self._passed)

    @property
    def offsets_passed(self) -> int | None:
        """The number of offsets that can be counted at once; None if no part was too large.

        Failed parts with a guilty line are ignored, because their size was not the cause.
        """
        sizes = [
            size
            for part, size in self._too_large
            if not any(_holds(part, found) for found, _ in self.poison)
        ]
        return min(sizes, default=None)

    def _note_size(self, part: Part, failure: PartFailure) -> None:
        if failure.kind is FailureKind.MEMORY:
            self._too_large.append((part, -(-size_of(part) // 2)))

    def _settle(self) -> None:
        """Divide the top part of the stack until it is a part that must be tried."""
        while self._open:
            self._join_rests()
            top = self._open[-1]
            is_one = size_of(top.part) == 1
            believed = BLAME_ENDED if top.is_piece and not is_one else BLAME_BELIEVED
            if self._blame.get(top.part, 0) >= believed:
                top.failure = DEADLY
            if top.failure is None or (is_one and top.failure.kind is not FailureKind.DEADLY):
                return
            self._divide(top.failure)

    def _divide(self, failure: PartFailure) -> None:
        """Replace the top part, which fails, by smaller parts. A single line that fails is added to
        `poison`.
        """
        one = self._open.pop()
        part = one.part
        if one.is_rest:
            self._rests_joined = 1
        if self._open and self._open[-1].second_of is not None:
            # The first half has failed, which explains the failure of the whole. The second half
            # can be good.
            self._open[-1].second_of = None
            self._open[-1].is_rest = True
        if size_of(part) == 1:
            self.poison.append((part[0], failure))
            self.offsets_left -= 1
            return
        if failure.kind is FailureKind.DEADLY:
            pieces = chopped(part, -(-size_of(part) // FAN))
            if size_of(part) > DEADLY_OFFSETS_MIN:
                half = -(-size_of(part) // 2)
                self._too_large.append((part, max(half, DEADLY_OFFSETS_MIN)))
            self._open += [_Open(piece, is_piece=True) for piece in reversed(pieces)]
            return
        first, second = halves(part)
        # If the whole part was only too large for the memory, both halves can pass. Then the second
        # half is tried too, and passes.
        self._open += [_Open(second, second_of=failure), _Open(first)]

    def _join_rests(self) -> None:
        """Join the parts of unknown content on top of the stack to one part.

        The number of parts to join doubles while they pass, and is one after a failure.
        """
        ranges: list[OffsetRange] = []
        count = 0
        while self._open and self._open[-1].is_rest and count < self._rests_joined:
            ranges += self._open.pop().part
            count += 1
        if ranges:
            self._open.append(_Open(_adjoined(ranges), is_rest=True))


class PartSize:
    """The most offsets to count at once; None unless a part was too large for the heap."""

    def __init__(self) -> None:
        self.offsets_max: int | None = None
        self._cut_batches = 0

    def passed(self, offsets: int) -> None:
        """Lower the size to `offsets`, because this many can be counted at once, but not twice as
        many.
        """
        self.offsets_max = max(1, min(offsets, self.offsets_max or offsets))
        self._cut_batches = 0

    def was_cut(self) -> None:
        """Handle a batch that was counted in parts of this size. After several batches the size
        grows.
        """
        self._cut_batches += 1
        if self.offsets_max is not None and self._cut_batches >= BATCHES_TO_GROW:
            self.offsets_max += max(1, self.offsets_max // 4)
            self._cut_batches = 0


def joined(parts: Sequence[BatchCounts]) -> BatchCounts:
    """Combine the counts of the parts of a batch to the counts of the batch.

    Rows of the same cell are not added up, because the sinks do that.
    """
    rows: list[FoldRow] = []
    blocks: list[CellBlock] = []
    unparsed: dict[tuple[str, str, str], UnparsedRow] = {}
    partitions: dict[tuple[str, int], PartitionCount] = {}
    for part in parts:
        rows += part.rows
        blocks += part.blocks
        for row in part.unparsed:
            why = (row.topic, row.file, row.reason)
            unparsed[why] = _added(unparsed[why], row) if why in unparsed else row
        for one in part.partitions:
            place = (one.topic, one.partition)
            partitions[place] = partitions[place].joined(one) if place in partitions else one
    spent = sum((part.spent for part in parts), NOTHING_SPENT)
    stamped = [one for part in parts for one in part.stamped]
    return BatchCounts(
        rows,
        [unparsed[why] for why in sorted(unparsed)],
        [partitions[place] for place in sorted(partitions)],
        blocks,
        spent,
        stamped,
    )


def set_aside(lines: Iterable[PoisonLine]) -> BatchCounts:
    """Return the counts that report lines that were set aside."""
    return joined(
        [
            BatchCounts(
                [],
                [
                    UnparsedRow(
                        one.topic,
                        one.file,
                        POISON,
                        1,
                        (UnparsedSample(one.partition, one.offset, one.line[:SAMPLE_BYTES_MAX]),),
                    )
                ],
                [PartitionCount(one.topic, one.partition, 1, one.offset, one.offset, None)],
            )
            for one in lines
        ]
    )


def _added(row: UnparsedRow, other: UnparsedRow) -> UnparsedRow:
    samples = sorted((*row.samples, *other.samples), key=lambda one: (one.partition, one.offset))
    return UnparsedRow(
        row.topic,
        row.file,
        row.reason,
        row.count + other.count,
        tuple(samples[:SAMPLES_PER_FILE_AND_DAY]),
    )


def _holds(part: Part, found: OffsetRange) -> bool:
    return any(
        (one.topic, one.partition) == (found.topic, found.partition)
        and one.start <= found.start < one.end
        for one in part
    )
