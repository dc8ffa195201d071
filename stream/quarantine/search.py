"""Which parts of a batch to count, so that a line that cannot be counted costs no other line.

Floor: pure. A batch whose counting fails because of what is in it is halved until the guilty lines
stand alone; all other parts are counted, and everything goes to the sinks as the one batch it was.
`bisection.py` performs what is decided here, and counts.

A *part* is a tuple of offset ranges, each of at least one offset. Offsets may have gaps
(transaction markers), so that a part may hold fewer lines than offsets, or none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sinks.rows import CellBlock, FoldRow, OffsetRange, UnparsedRow, UnparsedSample
from sinks.unparsed import SAMPLE_BYTES_MAX, SAMPLES_PER_FILE_AND_DAY
from stream.fold.counts import NOTHING_SPENT, Counts, PartitionCount

POISON = "poison"

# A part that ended the JVM before is cut into so many: passing costs a moment and an end costs a
# start of the JVM, so a batch of 50,000 is searched by three ends, and not by sixteen.
FAN = 40

# So many parts of which nothing is known may be tried as one, where guilty lines are rare.
RESTS_JOINED_MAX = 64

# How much the end of a JVM says against what it was counting. Ending by itself says enough at the
# second time, and for a piece of what is believed to be the reason at the first, but for a single
# offset. A JVM that a signal from outside ended says half as much: mostly it was somebody, and at
# times the kernel, which ends a process for want of memory that a batch may have brought about.
BLAME_ENDED = 2
BLAME_KILLED = 1
BLAME_BELIEVED = 2 * BLAME_ENDED

# How a JVM exits upon SIGKILL, and upon the signals that end it in an orderly way.
EXITS_BY_SIGNAL = (-9, 128 + 1, 128 + 2, 128 + 15)

# A batch of so few offsets is not what was too large for a JVM that ended: what is too large for
# its heap is told by an error, and no batch need become smaller after two ends by chance.
DEADLY_OFFSETS_MIN = 50_000

# After so many batches that had to be cut, parts may be larger again by a quarter.
BATCHES_TO_GROW = 50

Part = tuple[OffsetRange, ...]


class Kind(StrEnum):
    """How the counting of a part failed."""

    DATA = "data"
    MEMORY = "memory"
    DEADLY = "deadly"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a part could not be counted: the error's own name, and what it said.

    `words` may quote the line.
    """

    kind: Kind
    name: str
    words: str = ""


DEADLY = Failure(Kind.DEADLY, "Java ended or stood still")


@dataclass(frozen=True, slots=True)
class PoisonLine:
    """A line set aside: where it is, the first bytes of it, and why, in a person's words."""

    topic: str
    file: str
    partition: int
    offset: int
    line: bytes
    why: str


def blame_of(exit_code: int | None) -> int:
    """How much it says against the batch in hand that a JVM exited so; None is not known."""
    return BLAME_KILLED if exit_code in EXITS_BY_SIGNAL else BLAME_ENDED


def size_of(part: Iterable[OffsetRange]) -> int:
    """How many offsets a part covers."""
    return sum(one.end - one.start for one in part)


def chopped(ranges: Iterable[OffsetRange], offsets_max: int) -> list[Part]:
    """Ranges as parts of at most so many offsets, in order; empty ranges are left out."""
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
    """A part of several offsets as two: its partitions first, then the offsets of one."""
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
    """Ranges in order, those that follow each other in a partition as one."""
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
    """A part to be counted.

    `failure` says that it fails, as far as is known without a try. `second_of` is the failure of
    the part whose second half this is: if the first half passes, this one is what failed. `is_rest`
    says that the first half failed, which leaves nothing to be known of this one. `is_piece` marks
    a piece of a part that ended the JVM.
    """

    part: Part
    failure: Failure | None = None
    second_of: Failure | None = None
    is_rest: bool = False
    is_piece: bool = False


class Search:
    """The search through one batch. Count `part` and say how that went, until there is none.

    Of K guilty lines among N offsets each takes about log2(N) tries: a half that passes tells of
    the other without a try, and what is unknown beside a line that was found is tried as one. A
    single line is never given up without a try of its own, but for one with BLAME_BELIEVED.
    """

    def __init__(
        self,
        ranges: Iterable[OffsetRange],
        *,
        failure: Failure | None = None,
        blame: Mapping[Part, int] | None = None,
        offsets_max: int | None = None,
    ) -> None:
        """`failure` is how the batch as a whole failed, None where that was not tried.

        `blame` is what ends of the JVM say against a part. No part exceeds `offsets_max` offsets.
        """
        whole = tuple(one for one in ranges if one.end > one.start)
        self.poison: list[tuple[OffsetRange, Failure]] = []
        self.offsets_left = size_of(whole)
        self._blame = blame or {}
        self._passed: list[Counts] = []
        self._too_large: list[tuple[Part, int]] = []
        self._rests_joined = RESTS_JOINED_MAX
        parts = [whole] if whole else []
        if offsets_max is not None and failure is None:
            parts = chopped(whole, offsets_max)
        # The last one is the next to be tried.
        self._open = [_Open(part, failure) for part in reversed(parts)]
        if failure is not None and whole:
            self._note_size(whole, failure)
        self._settle()

    @property
    def part(self) -> Part | None:
        """What to count next; None when everything is counted or found guilty."""
        return self._open[-1].part if self._open else None

    def passed(self, counts: Counts) -> None:
        """The part is counted."""
        one = self._open.pop()
        self._passed.append(counts)
        self.offsets_left -= size_of(one.part)
        if one.is_rest:
            self._rests_joined = min(2 * self._rests_joined, RESTS_JOINED_MAX)
        if self._open and (second_of := self._open[-1].second_of) is not None:
            self._open[-1].failure = second_of
        self._settle()

    def failed(self, failure: Failure) -> None:
        """The part cannot be counted as it is."""
        self._note_size(self._open[-1].part, failure)
        self._divide(failure)
        self._settle()

    @property
    def counts(self) -> Counts:
        """All parts that passed, as one."""
        return joined(self._passed)

    @property
    def offsets_passed(self) -> int | None:
        """How many offsets passed where more were too many; None where the number was no reason.

        What a guilty line broke says nothing about how much can be counted at once.
        """
        sizes = [
            size
            for part, size in self._too_large
            if not any(_holds(part, found) for found, _ in self.poison)
        ]
        return min(sizes, default=None)

    def _note_size(self, part: Part, failure: Failure) -> None:
        if failure.kind is Kind.MEMORY:
            self._too_large.append((part, -(-size_of(part) // 2)))

    def _settle(self) -> None:
        """Cut what is known to fail, until there is something to try."""
        while self._open:
            self._join_rests()
            top = self._open[-1]
            is_one = size_of(top.part) == 1
            believed = BLAME_ENDED if top.is_piece and not is_one else BLAME_BELIEVED
            if self._blame.get(top.part, 0) >= believed:
                top.failure = DEADLY
            if top.failure is None or (is_one and top.failure.kind is not Kind.DEADLY):
                return
            self._divide(top.failure)

    def _divide(self, failure: Failure) -> None:
        """Replace the part on top, which fails, by smaller ones; a single line is given up."""
        one = self._open.pop()
        part = one.part
        if one.is_rest:
            self._rests_joined = 1
        if self._open and self._open[-1].second_of is not None:
            # What this part was the first half of has failed by it; the second may be innocent.
            self._open[-1].second_of = None
            self._open[-1].is_rest = True
        if size_of(part) == 1:
            self.poison.append((part[0], failure))
            self.offsets_left -= 1
            return
        if failure.kind is Kind.DEADLY:
            pieces = chopped(part, -(-size_of(part) // FAN))
            if size_of(part) > DEADLY_OFFSETS_MIN:
                half = -(-size_of(part) // 2)
                self._too_large.append((part, max(half, DEADLY_OFFSETS_MIN)))
            self._open += [_Open(piece, is_piece=True) for piece in reversed(pieces)]
            return
        first, second = halves(part)
        # Where there was too little memory for both, a line of the second half is only likely to
        # be the reason; a line that is not is found to pass.
        self._open += [_Open(second, second_of=failure), _Open(first)]

    def _join_rests(self) -> None:
        """Make one part of the rests on top: more as they pass, fewer where lines are guilty."""
        ranges: list[OffsetRange] = []
        count = 0
        while self._open and self._open[-1].is_rest and count < self._rests_joined:
            ranges += self._open.pop().part
            count += 1
        if ranges:
            self._open.append(_Open(_adjoined(ranges), is_rest=True))


class PartSize:
    """How many offsets are counted at once, after more have been too many for the heap."""

    def __init__(self) -> None:
        self.offsets_max: int | None = None
        self._cut_batches = 0

    def passed(self, offsets: int) -> None:
        """So many could be counted where more could not."""
        self.offsets_max = max(1, min(offsets, self.offsets_max or offsets))
        self._cut_batches = 0

    def was_cut(self) -> None:
        """A batch was counted in parts of this size."""
        self._cut_batches += 1
        if self.offsets_max is not None and self._cut_batches >= BATCHES_TO_GROW:
            self.offsets_max += max(1, self.offsets_max // 4)
            self._cut_batches = 0


def joined(parts: Sequence[Counts]) -> Counts:
    """Counts of disjoint parts as those of one batch.

    Rows of the same cell stay beside each other, since sinks add them.
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
    return Counts(
        rows,
        [unparsed[why] for why in sorted(unparsed)],
        [partitions[place] for place in sorted(partitions)],
        blocks,
        spent,
        stamped,
    )


def set_aside(lines: Iterable[PoisonLine]) -> Counts:
    """Lines that cannot be counted, as what is counted of them."""
    return joined(
        [
            Counts(
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
