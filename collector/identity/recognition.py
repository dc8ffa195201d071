"""Whether an archive holds what a known file gave already, and from where on it is new.

Floor: above `registry` and `archive`. An archive is asked once, when it is whole and before its
first line is read: its content is run through up to each position that it may be a copy of, and the
whole evidence there (head, marker, checksum) is compared. So rows 18 and 19 of the table in
docs/decisions/0007 hold for compressed files.
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
from collector.text.archive import Archive, ReadRaw
from collector.text.fingerprint import Evidence

WAITS_MAX = 3
"""Looks that a file at its end is given to show that it changed, before an archive that holds more
than it is believed to be another's."""


class Compared(Enum):
    """What came of comparing."""

    KNOWN = "known"
    AGAIN = "again"  # another turn goes on with it
    WAITING = "waiting"  # for what the next look makes of the other file


class _Stop(NamedTuple):
    """Where a file stood when it was last looked at: on the way of the archive it may be known by.

    The name only makes an order of stops at one position.
    """

    position: int
    name: str
    known: Generation


@dataclass(slots=True)
class _Comparison:
    """One archive on its way through the positions it may be a copy of, in rising order.

    `older` is asked behind them: a file may have been read on past the archive's end by then.
    """

    stops: list[_Stop]
    """A heap."""
    evidence: Evidence = field(default_factory=Evidence)
    found: _Stop | None = None
    older: OlderCopies | None = None


class Recognition:
    """The archives of one collector that are being compared."""

    def __init__(self, registry: Registry):
        self._registry = registry
        self._open: dict[str, _Comparison] = {}
        self._waits: dict[str, int] = {}

    def go_on(self, generation: Generation, read_raw: ReadRaw, now_ms: int) -> Compared:
        """Compare a bounded piece.

        Once it is known what the archive is, the generation stands where reading begins: at its
        start, or at the end of what was given already, with the key under which that was.
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
            # What was read of it since is not compared.
            return Compared.AGAIN
        known = None if found is None else found.known
        original = None if older is None else older.found()
        if older is not None and original is not None:
            if original.safe_position < archive.content_size:
                # What it holds is not committed yet, and may be in no other file by then.
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
    def _run_through(comparison: _Comparison, archive: Archive, read_raw: ReadRaw) -> bool:
        """Read on to the next stop; True at the last one's.

        A file that was read on meanwhile is met where it stands now, and not before those between.
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
        """Whether the next look may make something else of the file that was found."""
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
        """Whether a file it may be a copy of has lines to give before there is what to compare.

        They were read, and may be a part of an event, for `max_age` at most; or the file is behind,
        and its turn has not come. What cannot be read is not waited for: it may stay so. One that
        is gone may be the original of an archive of any name, for that may have been renamed since.
        """
        names = _Names(generation)
        return any(
            (known.is_holding_back or (known.is_unread and not known.error))
            and (not _is_whole(known) or names.fit(known))
            for known in self._registry.generations.values()
            if known is not generation
        )

    def _stops(self, generation: Generation, size: int) -> list[_Stop]:
        """Whose content it may be; a living file only by an archive's name."""
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
        """The files of which more was read, by whose archives' names it goes; the latest first."""
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
        """All that it holds was given under the original's key."""
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
    """The names by which an archive may be one of a known file."""

    def __init__(self, archive: Generation) -> None:
        self._now = originals(archive.path)
        self._ever = (*self._now, *originals(archive.first_path))

    def fit(self, known: Generation) -> bool:
        """Whether the archive has the name of one of this file, or, once the file is gone, had it.

        An archive may be renamed before it is compared, and is then none of a file that stands.
        """
        paths = self._now if _is_whole(known) else self._ever
        return known.path in paths or known.first_path in paths
