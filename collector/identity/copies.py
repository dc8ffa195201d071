"""Finds out which new files are copies of known files (rows 8, 16, 17 and 18 of the table).

Pure, as `decide`. A copy is recognised by its content. A name like that of an archive only makes a
file wait.

While the comparison of a file is not finished, the file waits, because its lines would be counted
twice if it were read as a new file. A comparison can take several scans. The scan that finishes one
must not begin another, because the result must be used first. Otherwise the comparison would start
over for ever.
"""

from collector.config.settings import COPY_QUIET_MS
from collector.identity.archive_names import COMPRESSED_ENDINGS, originals
from collector.identity.comparing import JOINING_BYTES_MIN, Content
from collector.identity.round import Round
from collector.identity.sightings import Seen, State, Stored, Verdict

PAIRS_MAX = 1_000_000
"""Above this many pairs of a vanished generation and a new file, only files with an archive's name
are compared."""


class CopiesOfRound:
    """The copies among the files of one round."""

    def __init__(self, round_: Round):
        self._round = round_

    def find(self, known: Stored) -> tuple[Seen | None, bool]:
        """Return the new file with the generation's content, and whether that result is final."""
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
                # While that is open, the file is not taken for a new one either.
                self._round.settled.add(name.file)
                is_known = False
        return None, is_known

    def _is_older_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 8b: a copy made before the position was reached; an older marker must confirm it."""
        if not known.is_plain or not self._round.ask.reaches_trail(known, name):
            return False
        content = self._round.ask.compare_short_head(known, name)
        agrees = self._round.ask.trail_agrees(known, name)
        if content is Content.HEAD_DIFFERS or agrees is False:
            return False
        return None if content is Content.UNKNOWN or agrees is None else True

    def _candidates(self, known: Stored) -> list[Seen]:
        """Return the new files that may hold the generation's bytes, archive names first.

        A candidate that grows can belong to another file, or can be a copy still being written.
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
        """Rows 17, 18: tell whether a new file is, or may be, the archive of a known one.

        All generations that ever had the original's path are compared in one round, because a path
        may have had many lives.
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
                    # It waits at most for the copy's quiet time. Once the original is read, the
                    # next scan can decide.
                    self._round.is_waiting |= known.is_unread
                    return True
                waits = waits or verdict is None
        return waits

    def _is_done_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 18: a generation that has ended handed out all of the file's content already."""
        content = self._round.ask.compare(known, name.file, name.stamp)
        if content is Content.SHORTER:
            content = self._round.ask.compare_short_head(known, name)
        if content is Content.UNKNOWN:
            return None
        if content in (Content.HEAD_DIFFERS, Content.MARKER_DIFFERS):
            return False
        if not known.state.has_ended and known.state is not State.DRAINING:
            # This very scan has ended the generation: the next scan decides.
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
        """Row 17: it may become a copytruncate's copy, so it waits while the original lives."""
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
    """Tell whether the file has the name of an archive of the known one."""
    return any(path in (known.path, known.first_path) for path in originals(name.path))
