"""Counts one batch, in parts if necessary: carries out what `search.py` decides.

This module does not call Spark itself. The caller passes in an object that counts and reads parts
of the batch (`BatchParts`). The module runs on the thread of the batch. In the meantime the job's
main thread watches `hand`, which shows what is being counted: it ends a JVM that hangs, and records
what the JVM was counting when it ended.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from protocol.log import fields
from protocol.types import NO_OFFSET
from sinks.rows import OffsetRange
from stream.fold.counts import BatchCounts
from stream.quarantine.crash_record import CrashRecord
from stream.quarantine.failures import Origin, is_java_error, judge, words_of
from stream.quarantine.in_hand import HANG_OFFSETS_PER_S, HANG_S, SEARCH_HANG_S, Hand
from stream.quarantine.search import (
    BLAME_BELIEVED,
    DEADLY,
    FailureKind,
    Part,
    PartFailure,
    PartSize,
    PoisonLine,
    Search,
    joined,
    set_aside,
    size_of,
)
from stream.source.checkpoint import EARLIEST
from stream.state import StreamState

PLACES_NAMED = 3

logger = logging.getLogger(__name__)


class OffsetsDiffer(Exception):
    """The error when the offsets of a batch's lines contradict Spark's log or the broker."""


class StopRequested(Exception):
    """The error when the stream stops before the sinks got the batch."""


class BatchParts(Protocol):
    """The batch being counted, in a form that can be read in parts."""

    def count(self, part: Part) -> BatchCounts:
        """Fold the lines of a part, and return the counts."""

    def read_line(self, one: OffsetRange) -> tuple[str, bytes]:
        """Return file and first bytes of the record at a single offset, without judging it."""

    def first_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return the first offset that the broker has of each partition."""

    def check(self) -> None:
        """Count made-up lines that are valid. Raises the error if Spark cannot count even these."""


@dataclass(frozen=True, slots=True)
class CountedBatch:
    """The result of counting a batch. `poison` are the lines that were set aside.

    If the batch was counted in parts, every start in `ranges` is known.
    """

    ranges: Sequence[OffsetRange]
    counts: BatchCounts
    poison: Sequence[PoisonLine] = ()


class Bisection:
    """Counts batches of one query."""

    def __init__(
        self,
        state: StreamState,
        stop: threading.Event,
        crash_record: CrashRecord,
        size: PartSize,
        is_held: Callable[[], bool],
    ) -> None:
        """`is_held` returns true once this query must stop, because another one replaces it."""
        self.hand = Hand()
        self._state = state
        self._stop = stop
        self._is_held = is_held
        self._crash_record = crash_record
        self._size = size

    def count(
        self, ranges: Sequence[OffsetRange], whole: Callable[[], BatchCounts], parts: BatchParts
    ) -> CountedBatch:
        """Count a batch as a whole by `whole`, or in parts if that fails.

        Raises errors that the batch did not cause, and StopRequested.
        """
        batch = tuple(ranges)
        offsets = sum(one.end - max(one.start, 0) for one in batch)
        offsets_max = self._size.offsets_max
        failure: PartFailure | None = None
        if self._crash_record.blame_of_batch(batch) >= BLAME_BELIEVED:
            failure = DEADLY
        elif offsets_max is None or offsets <= offsets_max:
            tried = self._try(batch, whole, HANG_S + offsets / HANG_OFFSETS_PER_S)
            if isinstance(tried, BatchCounts):
                return CountedBatch(ranges, tried)
            failure = tried
        if failure is not None:
            logger.warning(
                "a batch cannot be counted; searching for the lines that cause this",
                extra=fields(offsets=offsets, why=failure.name),
            )
            # If Spark can count nothing at all, the search would set aside every single line. So
            # check that first.
            parts.check()
        return self._search(with_starts(ranges, parts), failure, offsets_max, parts)

    def _search(
        self,
        ranges: Sequence[OffsetRange],
        failure: PartFailure | None,
        offsets_max: int | None,
        parts: BatchParts,
    ) -> CountedBatch:
        search = Search(
            ranges, failure=failure, blame=self._crash_record.blame, offsets_max=offsets_max
        )
        poison: list[PoisonLine] = []
        while True:
            for one, why in search.poison[len(poison) :]:
                poison.append(self._set_aside(one, why, parts))
            if failure is not None:
                self._state.halving(_sentence(ranges, failure, search.offsets_left, poison))
            part = search.part
            if part is None:
                break
            tried = self._try_part(part, parts)
            if isinstance(tried, BatchCounts):
                search.passed(tried)
            else:
                failure = tried
                search.failed(tried)
        if search.offsets_passed is not None:
            self._size.passed(search.offsets_passed)
            logger.warning(
                "Spark's memory is not enough for whole batches, so they are counted in parts",
                extra=fields(offsets=self._size.offsets_max),
            )
        elif offsets_max is not None:
            self._size.was_cut()
        return CountedBatch(ranges, joined([search.counts, set_aside(poison)]), poison)

    def _try_part(self, part: Part, parts: BatchParts) -> BatchCounts | PartFailure:
        if self._stop.is_set() or self._is_held():
            raise StopRequested
        patience_s = SEARCH_HANG_S + size_of(part) / HANG_OFFSETS_PER_S
        return self._try(part, lambda: parts.count(part), patience_s)

    def _try(
        self, part: Part, count: Callable[[], BatchCounts], patience_s: float
    ) -> BatchCounts | PartFailure:
        """Count a part. After a failure whose cause is not certain, count it a second time.

        Returns the failure if the data is certainly the cause, or if both attempts failed in the
        same way.
        """
        before: str | None = None
        while True:
            self.hand.take(part, patience_s)
            try:
                counts = count()
            except Exception as error:
                origin, causes = judge(error)
                if origin is Origin.JVM:
                    # Leave the part in `hand`. The job's thread finds that the JVM has ended, and
                    # records this part.
                    raise
                self.hand.let_go()
                if is_java_error(causes):
                    self.hand.met_error(part)
                if self._stop.is_set() or origin is Origin.ELSEWHERE:
                    raise
                words = words_of(causes)
                same = _without_numbers(f"{[cause.name for cause in causes]} {words}")
                is_one = len(part) == 1 and part[0].end - part[0].start == 1
                is_sure = origin is Origin.DATA or (origin is Origin.MEMORY and not is_one)
                if is_sure or same == before:
                    kind = FailureKind.MEMORY if origin is Origin.MEMORY else FailureKind.DATA
                    return PartFailure(kind, causes[-1].short_name, words)
                if before is not None:
                    raise
                before = same
            else:
                self.hand.let_go()
                return counts

    def _set_aside(self, one: OffsetRange, why: PartFailure, parts: BatchParts) -> PoisonLine:
        file, line = parts.read_line(one)
        words = without_line(why.words or why.name, line)
        found = PoisonLine(one.topic, file, one.partition, one.start, line, words)
        logger.warning(
            "a line cannot be counted and is set aside",
            extra=fields(
                file=file, topic=one.topic, partition=one.partition, offset=one.start, why=words
            ),
        )
        return found


def without_line(words: str, line: bytes) -> str:
    """Return an error message with the text of the line replaced by `…`."""
    text = line.decode(errors="replace").strip()
    return words.replace(text, "…") if text else words


def places(ranges: Sequence[OffsetRange]) -> str:
    """Describe offset ranges in words, for messages."""
    held = [one for one in ranges if one.end > max(one.start, 0)]
    named = [
        f"{one.topic}, partition {one.partition}, offsets {max(one.start, 0)} to {one.end - 1}"
        for one in held[:PLACES_NAMED]
    ]
    more = len(held) - len(named)
    return "; ".join([*named, f"{more} more partitions"] if more else named)


def _sentence(
    ranges: Sequence[OffsetRange], failure: PartFailure, left: int, poison: Sequence[PoisonLine]
) -> str:
    text = f"one of these lines cannot be counted ({failure.name}): {places(ranges)}"
    if left:
        text += f"; the stream searches for the line, {left:,} offsets are left"
    if not poison:
        return text
    last = poison[-1]
    return (
        f"{last.file}: the line at {last.topic}, partition {last.partition}, offset {last.offset}"
        f" cannot be counted and is set aside: {last.why}"
        + (f" ({len(poison):,} such lines so far)" if len(poison) > 1 else "")
        + (f"; the stream searches for more such lines, {left:,} offsets are left" if left else "")
    )


def with_starts(ranges: Sequence[OffsetRange], parts: BatchParts) -> list[OffsetRange]:
    """Return the ranges with every start known.

    A partition that appeared with this batch starts at the first offset that the broker has. Raises
    OffsetsDiffer if the broker does not know that offset, and what `parts.first_offsets` raises.
    """
    if all(one.start != EARLIEST for one in ranges):
        return list(ranges)
    firsts = parts.first_offsets()
    return [_begun(one, firsts) if one.start == EARLIEST else one for one in ranges]


def _begun(one: OffsetRange, firsts: Mapping[tuple[str, int], int]) -> OffsetRange:
    """Return the range of a new partition, from the first offset that the broker has."""
    first = firsts.get((one.topic, one.partition), NO_OFFSET)
    if first < 0:
        # The offset of a partition without a leader is unknown; a guess could lose its lines.
        raise OffsetsDiffer(f"the broker does not say where {one.topic}-{one.partition} begins")
    return replace(one, start=min(one.end, first))


def _without_numbers(text: str) -> str:
    """Replace all numbers, because two failures can differ only in the ids of task and stage."""
    return re.sub(r"\d+", "#", text)
