"""What may be a copy of what: rows 8, 16, 17 and 18 of the table ask it.

Floor: above `round`. Pure, as `decide`. A copy is known by its content; an archive's name alone
only makes a file wait.

A file whose comparison is not finished is not a new file either: it waits, because as a new file it
would give its lines twice. A comparison can take several looks. The look that finishes one must not
begin another: its result has to be used first, or the comparison would start over for ever.
"""

from collector.config.settings import COPY_QUIET_MS
from collector.identity.archive_names import COMPRESSED_ENDINGS, originals
from collector.identity.comparing import JOINING_BYTES_MIN, Content
from collector.identity.round import Round
from collector.identity.sightings import Seen, State, Stored, Verdict

PAIRS_MAX = 1_000_000
"""More pairs of a vanished generation and a new file than this are not compared by content alone:
then only an archive's name joins them."""


class Copies:
    """The copies among the files of one round."""

    def __init__(self, round_: Round):
        self._round = round_

    def find(self, known: Stored) -> tuple[Seen | None, bool]:
        """The new file that holds what the generation's held, and whether that is known."""
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
                # Until that is known it is not taken for a new file either.
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
        """The new files that may hold the generation's bytes: first those with an archive's name.

        One that grows may be another file's, or this one's copy in the making.
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
        """Rows 17, 18: a new file with the name of an archive of a known one. False: it is new.

        All that once had the name are asked about in one round: a path may have had many lives.
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
                    # Held for no longer than the copy's quiet time; once the original is read, the
                    # next look knows more.
                    self._round.is_waiting |= known.is_unread
                    return True
                waits = waits or verdict is None
        return waits

    def _is_done_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 18: all of it was given already, by a generation that has ended."""
        content = self._round.ask.compare(known, name.file, name.stamp)
        if content is Content.SHORTER:
            content = self._round.ask.compare_short_head(known, name)
        if content is Content.UNKNOWN:
            return None
        if content in (Content.HEAD_DIFFERS, Content.MARKER_DIFFERS):
            return False
        if not known.state.has_ended and known.state is not State.DRAINING:
            # This very look has ended it: the next one knows more.
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
        """Row 17: it may become the copy of a copytruncate; beside a whole original it waits."""
        if name.still_ms >= COPY_QUIET_MS:
            return False
        size = max(name.size for name in self._round.names[known.file])
        same = name.size <= size and self._round.ask.same_so_far(known, name)
        if same is False and name.file not in self._round.noticed_before:
            # The original may have grown before it was copied, or been truncated after that.
            self._round.noticed.add(name.file)
            self._round.is_waiting = True
            return None
        if same:
            self._round.add(Verdict.COPY_HELD, None, name)
        return same


def is_archive_name(known: Stored, name: Seen) -> bool:
    """Whether a file is called as an archive of the known one would be."""
    return any(path in (known.path, known.first_path) for path in originals(name.path))
