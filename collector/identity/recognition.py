"""Finds out whether an archive repeats a known file, and where its new lines begin.

An archive is compared once, when it is complete and before its first line is read. Its content is
read up to each position at which it can equal a known file. There its evidence (head, marker,
checksum) is compared with the evidence of the known file. So rows 18 and 19 of the table in
docs/decisions/0007 apply to compressed files too.
"""

import heapq
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from collector.config.settings import BLOCK_BYTES
from collector.identity.archive_names import originals
from collector.identity.comparing import JOINING_BYTES_MIN
from collector.identity.generation import Generation
from collector.identity.older_copies import OlderCopies
from collector.identity.registry import Registry
from collector.identity.sightings import State, Verdict
from collector.text.archive import CompressedFile, ReadRaw
from collector.text.fingerprint import Evidence

WAITS_MAX = 3
"""The number of scans for which an archive waits if it is longer than a file that was read to its
end.

If the scans show no change of that file, the archive is the archive of another file.
"""


class Compared(Enum):
    """The result of a comparison."""

    KNOWN = "known"
    AGAIN = "again"  # another call continues the comparison
    WAITING = "waiting"  # wait for the next scan's verdict on the possible original


class _Stop(NamedTuple):
    """A position of a known file at which the content of an archive is compared with that file.

    The name only orders comparisons at the same position.
    """

    position: int
    name: str
    known: Generation


@dataclass(slots=True)
class _Comparison:
    """The comparison of one archive with the files that it may equal, in rising order of position.

    `older` is compared last, with files that were read past the archive's end.
    """

    stops: list[_Stop]
    """A heap by position."""
    evidence: Evidence = field(default_factory=Evidence)
    found: _Stop | None = None
    older: OlderCopies | None = None


class Recognition:
    """Compares the archives of one collector with the files that they may be copies of."""

    def __init__(self, registry: Registry):
        self._registry = registry
        self._open: dict[str, _Comparison] = {}
        self._waits: dict[str, int] = {}

    def go_on(self, generation: Generation, read_raw: ReadRaw, now_ms: int) -> Compared:
        """Compare a bounded part of an archive with the known files.

        When the result is KNOWN, reading of the archive can begin at its position: at its start, or
        after the lines that were sent before. In the second case the archive gets the record key of
        these lines.
        """
        archive = generation.archive
        assert archive is not None
        assert archive.content_size is not None
        if self._is_any_yet_to_give(generation):
            return Compared.WAITING
        comparison = self._open.get(generation.name)
        if comparison is None:
            comparison = _Comparison(self._stops(generation, archive.content_size))
            self._open[generation.name] = comparison
        if not self._run_through(comparison, archive, read_raw):
            return Compared.AGAIN
        found, older = comparison.found, comparison.older
        if found is None:
            if older is None:
                longer = self._longer(generation, archive.content_size)
                older = comparison.older = OlderCopies(longer, archive.content_size)
            if not older.run_through(archive, read_raw):
                return Compared.AGAIN
        del self._open[generation.name]
        if found is not None and found.position != found.known.position:
            # The file was read further in the meantime, and that part is not compared yet.
            return Compared.AGAIN
        known = None if found is None else found.known
        original = None if older is None else older.found()
        if older is not None and original is not None:
            if original.safe_position < archive.content_size:
                # The known file's lines are not committed yet, and this archive may soon be the
                # only file with them.
                return Compared.WAITING
            self._note_older(generation, original, older.evidence)
        if known is not None and self._may_change(generation, known, archive.content_size):
            return Compared.WAITING
        if known is not None and self._holds(known, archive.content_size):
            self._join(generation, known, archive.content_size, now_ms)
        self._waits.pop(generation.name, None)
        generation.is_recognised = True
        return Compared.KNOWN

    @staticmethod
    def _run_through(comparison: _Comparison, archive: CompressedFile, read_raw: ReadRaw) -> bool:
        """Read the archive up to the next position to compare. Return True when all were compared.

        A file that was read further in the meantime is compared at its current position instead.
        """
        while comparison.stops:
            stop, at = comparison.stops[0], comparison.evidence.position
            if stop.known.position > stop.position:
                heapq.heapreplace(comparison.stops, _stop_at(stop.known))
                continue
            if stop.position > at:
                content = archive.read(read_raw, at, min(stop.position - at, BLOCK_BYTES))
                if content is None:
                    return False
                comparison.evidence = comparison.evidence.advance(content)
                if content:
                    return False
            elif comparison.evidence.fingerprint() == stop.known.read_print():
                comparison.found = stop
            heapq.heappop(comparison.stops)
        return True

    def _may_change(self, generation: Generation, known: Generation, size: int) -> bool:
        """Tell whether the next scan can give another verdict about the file that was found."""
        if known.has_open_event:
            return True
        if not known.is_settled or known.state is State.DRAINING:
            return known.position != size or not known.is_settled
        if known.position == size or known.state.has_ended:
            return False
        waits = self._waits.get(generation.name, 0) + 1
        self._waits[generation.name] = waits
        return waits <= WAITS_MAX or known.position < known.text_end

    @staticmethod
    def _holds(known: Generation, size: int) -> bool:
        return known.position == size or known.state.has_ended

    def _is_any_yet_to_give(self, generation: Generation) -> bool:
        """Tell whether a possible original must hand out lines before it can be compared.

        There are two cases. Lines of the original were read but wait as part of an event, for at
        most `max_age`. Or the original is behind and no line of it was read yet. An unreadable file
        is not waited for, because it may stay unreadable. A file that no longer exists may be the
        original even if the archive's name does not fit, because the file may have been renamed
        before.
        """
        names = _Names(generation)
        return any(
            (known.is_holding_back or (known.is_unread and not known.error))
            and (not _is_whole(known) or names.fit(known))
            for known in self._registry.generations.values()
            if known is not generation
        )

    def _stops(self, generation: Generation, size: int) -> list[_Stop]:
        """Return the files that the archive may equal.

        A file that still exists must fit by its name.
        """
        names, found = _Names(generation), []
        for known in self._registry.generations.values():
            if known is generation or known.is_archive or not 0 < known.position <= size:
                continue
            is_long = known.position >= JOINING_BYTES_MIN
            if names.fit(known) or (is_long and not _is_whole(known)):
                found.append(_stop_at(known))
        heapq.heapify(found)
        return found

    def _longer(self, generation: Generation, size: int) -> list[Generation]:
        """Return the files that were read past `size` and fit the archive's name, the latest
        first."""
        names = _Names(generation)
        found = [
            known
            for known in self._registry.generations.values()
            if known is not generation
            and not known.is_archive
            and known.position > size
            and names.fit(known)
        ]
        return found[::-1]

    def _note_older(self, generation: Generation, original: Generation, end: Evidence) -> None:
        """Remember that all lines of the archive were already sent with the key of the original."""
        self._registry.counters[Verdict.ARCHIVE_DONE] += 1
        generation.verdict = Verdict.ARCHIVE_DONE
        generation.fingerprint = end.fingerprint()
        self._registry.take_name_of(generation, original)

    def _join(self, generation: Generation, known: Generation, size: int, now_ms: int) -> None:
        is_done = known.position == size
        verdict = Verdict.ARCHIVE_DONE if is_done else Verdict.ARCHIVE_CONTINUED
        self._registry.counters[verdict] += 1
        self._registry.found_again(known)
        generation.verdict = verdict
        generation.fingerprint = known.read_print()
        generation.lines = known.lines_read
        self._registry.take_name_of(generation, known)
        if known.state.has_ended:
            known.end(State.DONE, now_ms)


def _stop_at(known: Generation) -> _Stop:
    return _Stop(known.position, known.name, known)


def _is_whole(known: Generation) -> bool:
    return known.state in (State.LIVE, State.ROTATED)


class _Names:
    """Finds the files of which an archive may be a copy, by the names of the archive."""

    def __init__(self, archive: Generation) -> None:
        self._now = originals(archive.path)
        self._ever = (*self._now, *originals(archive.first_path))

    def fit(self, known: Generation) -> bool:
        """Tell whether the archive is named like an archive of this file.

        For a file that still exists, only the current name of the archive matters. For a file that
        is gone, the archive's first name matters too, because it may have been renamed before the
        comparison.
        """
        paths = self._now if _is_whole(known) else self._ever
        return known.path in paths or known.first_path in paths
