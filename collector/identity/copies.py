"""Finds out which new files are copies of known files (rows 8, 16, 17 and 18 of the table).

This module is pure. A copy is recognised by its content. A name like that of an archive only makes
a file wait.

A file waits while its comparison is not finished. If it were read as a new file, its lines would be
sent twice. A comparison can take several scans. The scan that finishes a comparison must not begin
another, because the result must be used first. Otherwise the comparison would start over forever.
"""

from collector.config.settings import COPY_QUIET_MS
from collector.identity.archive_names import COMPRESSED_ENDINGS, originals
from collector.identity.comparing import JOINING_BYTES_MIN, Content
from collector.identity.round import Round
from collector.identity.sightings import Seen, State, Stored, Verdict

PAIRS_MAX = 1_000_000
"""The largest number of pairs of a vanished and a new file for which all pairs are compared.

Above this number only files with the name of an archive are compared.
"""


class CopiesOfRound:
    """Finds the copies among the files of one call of `decide`."""

    def __init__(self, round_: Round):
        self._round = round_

    def find(self, known: Stored) -> tuple[Seen | None, bool]:
        """Return the new file with the content of `known`, and whether this result is final."""
        is_known = True
        for name in self._candidates(known):
            is_named_so = is_archive_name(known, name)
            if name.size >= known.position:
                holds = self._round.ask.holds_all(known, name, is_named_so)
            else:
                holds = is_named_so and self._is_older_copy(known, name)
            if holds:
                return name, True
            if holds is None:
                # Until the comparison is finished, do not read the file as a new file.
                self._round.settled.add(name.file)
                is_known = False
        return None, is_known

    def _is_older_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 8b: recognise a copy that ends before the position.

        At least one older marker must confirm it.
        """
        if not known.is_plain or not self._round.ask.reaches_trail(known, name):
            return False
        content = self._round.ask.compare_short_head(known, name)
        agrees = self._round.ask.trail_agrees(known, name)
        if content is Content.HEAD_DIFFERS or agrees is False:
            return False
        return None if content is Content.UNKNOWN or agrees is None else True

    def _candidates(self, known: Stored) -> list[Seen]:
        """Return the new files that may hold the bytes of `known`, archive names first.

        A file that grows is also returned. It can be another file, or a copy that is still being
        written.
        """
        free = [
            name
            for name in self._round.newcomers
            if name.file not in self._round.settled and name.file != known.file
        ]
        named = [name for name in free if is_archive_name(known, name)]
        is_many = len(self._round.stored) * len(free) > PAIRS_MAX
        if is_many or known.position < JOINING_BYTES_MIN:
            return named
        return named + [name for name in free if name not in named]

    def is_copy(self, name: Seen) -> bool:
        """Rows 17 and 18: tell whether a new file is, or may be, the archive of a known file.

        All generations that ever had the path of the original are compared in one call, because a
        path can have had many files.
        """
        if name.path.endswith(COMPRESSED_ENDINGS):
            return False
        waits = False
        for path in originals(name.path):
            for known in self._round.by_path.get(path, ()):
                if not known.is_plain or known.file == name.file:
                    continue
                if not known.position and not known.is_unread:
                    continue
                if known.state.has_ended or known.generation not in self._round.whole:
                    verdict = self._is_done_copy(known, name)
                else:
                    verdict = self._is_held_copy(known, name)
                if verdict:
                    self._round.settled.add(name.file)
                    # The file waits at most for COPY_QUIET_MS. Once the original is read, the next
                    # scan can decide.
                    self._round.is_waiting |= known.is_unread
                    return True
                waits = waits or verdict is None
        return waits

    def _is_done_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 18: tell whether all lines of the file were sent before, by a generation that has
        ended."""
        content = self._round.ask.compare(known, name.file, name.stamp)
        if content is Content.SHORTER:
            content = self._round.ask.compare_short_head(known, name)
        if content is Content.UNKNOWN:
            return None
        if content in (Content.HEAD_DIFFERS, Content.MARKER_DIFFERS):
            return False
        if not known.state.has_ended and known.state is not State.DRAINING:
            # The present scan has ended the generation, so only the next scan can decide.
            self._round.is_waiting = True
            return None
        if known.state is State.DRAINING and name.size > known.position:
            return None
        if known.state not in (State.DONE, State.DRAINING) or name.size != known.position:
            return False
        holds = self._round.ask.holds_all(known, name, is_archive_name=True)
        if holds:
            self._round.add(Verdict.COPY_DONE, known, None, copy=name)
        return holds

    def _is_held_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 17: tell whether to keep a file back, because copytruncate may still be writing it as
        a copy.

        The original must still exist.
        """
        if name.still_ms >= COPY_QUIET_MS:
            return False
        size = max(name.size for name in self._round.names[known.file])
        same = name.size <= size and self._round.ask.same_so_far(known, name)
        if same is False and name.file not in self._round.noticed_before:
            # The original may have grown before it was copied, or was truncated after the copy.
            self._round.noticed.add(name.file)
            self._round.is_waiting = True
            return None
        if same:
            self._round.add(Verdict.COPY_HELD, None, name)
        return same


def is_archive_name(known: Stored, name: Seen) -> bool:
    """Tell whether the file has the name of an archive of the known file."""
    return any(path in (known.path, known.first_path) for path in originals(name.path))
