"""Decide which file is which: one verdict per file, from what is stored and what a scan found.

This module is pure: it never reads a file. If a hash is missing, the decision asks for it with a
probe and gives no verdict about that file. The caller reads the bytes and calls again. Comments
such as `table row 8a` refer to the table in docs/decisions/0007 (first match wins). `recognition`
recognises compressed copies once they are complete.

A verdict has one of three effects:
- Reading continues at the position.
- The remaining old content is read from an open handle or a copy, and a new generation begins at 0.
- A new generation begins at 0.
"""

from collections.abc import Collection, Mapping, Sequence

from collector.identity.comparing import JOINING_BYTES_MIN, Content
from collector.identity.copies import CopiesOfRound, is_archive_name
from collector.identity.round import Round, births_differ
from collector.identity.sightings import Answers, Decision, OpenStat, Seen, State, Stored, Verdict
from collector.text.fingerprint import FileId


def decide(
    stored: Collection[Stored],
    seen: Sequence[Seen],
    held: Mapping[str, OpenStat],
    answers: Answers,
    *,
    is_complete: bool = True,
    noticed: Collection[str | FileId] = (),
) -> Decision:
    """Give a verdict about every known generation and every name of one scan.

    `held` has the stat of each open file by generation. If `is_complete` is False, a folder could
    not be read, so no file is declared gone. `noticed` is the `noticed` of the previous decision.
    """
    return _Session(Round(stored, seen, held, answers, is_complete, noticed)).run()


class _Session:
    """One call of `decide`, which finds the row of the table for every file."""

    def __init__(self, round_: Round):
        self._round = round_
        self._copies = CopiesOfRound(round_)

    def run(self) -> Decision:
        """Decide about known files first, then about vanished files, then about new files."""
        absent = [known for known in self._round.stored if not self._judge_present(known)]
        for known in absent:
            self._judge_absent(known)
        for file, names in self._round.names.items():
            if file not in self._round.settled and not self._copies.is_copy(names[0]):
                self._round.add(Verdict.NEW, None, names[0], begins=names[0])
                self._round.add_links(names, names[0])
        return self._round.decision

    def _judge_present(self, known: Stored) -> bool:
        """Give a verdict if the generation's inode has a name in the scan (rows 1 to 5 and 8 to
        11).

        Return False if it has none.
        """
        names = self._round.names.get(known.file)
        if not names or known.file in self._round.settled:
            return False
        name = next((name for name in names if name.path == known.path), names[0])
        held = self._round.held.get(known.generation)
        same_name = name.path == known.path
        if held is None and births_differ(known, name):  # table row 1
            return False
        content = self._round.ask.compare(
            known, name.file, name.stamp if held is None else held.stamp
        )
        if held is None and not same_name and content is Content.SHORTER:
            content = self._round.ask.compare_short_head(known, name)
        if held is None and not same_name and content is Content.HEAD_DIFFERS:  # table row 1
            return False
        self._round.settled.add(known.file)
        if content is Content.UNKNOWN:
            self._round.whole.add(known.generation)
            return True
        size = name.size if held is None else held.size
        if content is not Content.EQUAL:
            if not self._judge_changed(known, name, content):
                return True
        else:
            self._round.whole.add(known.generation)
            lost = self._is_cut(known, size)
            if not same_name:
                self._round.add(Verdict.RENAMED, known, name, lost)  # table row 4
            elif size > known.position:
                self._round.add(Verdict.GROWN, known, name, lost)  # table row 3
            else:
                self._round.add(Verdict.UNCHANGED, known, name, lost)  # table row 2
        self._round.add_links(names, name)
        return True

    def _is_cut(self, known: Stored, size: int) -> bool:
        """Tell whether complete lines that were seen after the position no longer exist in any
        file.

        An unfinished line does not matter, because its writer may have replaced it.
        """
        if size >= known.unread_lines_end or not known.is_plain:
            return False
        return not any(
            name.size >= known.size and is_archive_name(known, name)
            for name in self._round.newcomers
        )

    def _judge_changed(self, known: Stored, name: Seen, content: Content) -> bool:
        """Give a verdict about a file whose content has changed (rows 8 to 11).

        Return False while answers are missing. The file can be copied and then truncated after a
        scan has passed it. So the verdict waits for a scan that began after the change was noticed.
        Such a scan sees any copy, and sees it complete.
        """
        copy, is_known = self._copies.find(known)
        if copy is not None:
            self._round.settled.add(copy.file)
        is_noticed = known.generation in self._round.noticed_before
        if not (is_known and is_noticed):
            # The change is noted even while answers are missing, which can last many scans.
            self._round.noticed.add(known.generation)
            self._round.is_waiting |= not is_noticed
            return False
        if copy is not None:
            if copy.size >= known.position:
                lost = known.size > copy.size
                # table row 8a
                self._round.add(Verdict.COPYTRUNCATED, known, copy, lost, begins=name)
            else:
                lost = known.size > known.position
                # table row 8b
                self._round.add(Verdict.COPYTRUNCATED, known, None, lost, begins=name, copy=copy)
            return True
        if content is Content.SHORTER:
            shrunk = self._is_shrunk(known, name)
            if shrunk is None:
                return False
            if shrunk:
                self._round.add(Verdict.SHRUNK, known, name)  # table row 9
                return True
        trimmed = self._judge_trimmed(known, name)
        if trimmed is not False:
            return trimmed is True
        verdict = Verdict.TRUNCATED if content is Content.SHORTER else Verdict.REWRITTEN
        self._round.add(verdict, known, name, lost_possible=True, begins=name)  # table rows 10, 11
        return True

    def _judge_trimmed(
        self, known: Stored, name: Seen, held: OpenStat | None = None
    ) -> bool | None:
        """Row 9a: tell whether the file holds the last lines that were read, and perhaps newer
        lines.

        Return None if that is not known yet, or if the old file (`held`) must be read to its end
        first.
        """
        unread = known.unread_lines_end - known.position
        is_left = held is not None and (unread > 0 or held.size > known.seen_size)
        kept_end = self._round.ask.kept_end(known, name)
        if kept_end == 0:
            return False
        self._round.settled.add(name.file)
        if kept_end is None or is_left:
            self._round.noticed.add(known.generation)
            self._round.is_waiting |= is_left
            return None
        lost = unread > name.size - kept_end
        self._round.add(Verdict.TRIMMED, known, name, lost, kept_end=kept_end)
        return True

    def _is_shrunk(self, known: Stored, name: Seen) -> bool | None:
        """Row 9: tell whether the file lost its end and everything that remains in it is
        committed.
        """
        head = known.fingerprint.heads[-1] if known.fingerprint.heads else None
        if name.path != known.path or head is None or not known.is_plain:
            return False
        if head.length < JOINING_BYTES_MIN or name.size < head.length:
            return False
        content = self._round.ask.compare_short_head(known, name)
        agrees = self._round.ask.trail_agrees(known, name)
        if content is Content.HEAD_DIFFERS or agrees is False:
            return False
        return None if content is Content.UNKNOWN or agrees is None else True

    # --- vanished -----------------------------------------------------------------------------

    def _judge_absent(self, known: Stored) -> None:
        """Give a verdict if no name in the scan has the generation's inode (rows 1, 6, 7, 13 to 16,
        21).
        """
        newcomer = self._round.at_path.get(known.path)
        if newcomer is not None and newcomer.file in self._round.settled:
            newcomer = None
        held = self._round.held.get(known.generation)
        if newcomer is not None and self._is_renumbered(known, held, newcomer):
            return
        if known.state.has_ended and known.state is not State.GONE:
            return
        if held is not None:
            self._judge_held(known, held, newcomer)
            return
        reused = self._round.names.get(known.file)
        is_reused = bool(reused) and known.file not in self._round.settled
        copy, is_known = self._copies.find(known)
        if not is_known:
            self._round.settled |= {newcomer.file} if newcomer is not None else set()
            self._round.settled |= {known.file} if is_reused else set()
            return
        if copy is not None and copy.size >= known.position:
            self._round.settled.add(copy.file)
            same_head = newcomer is not None and copy.file == newcomer.file
            self._round.add(
                Verdict.REPLACED_SAME_HEAD if same_head else Verdict.MOVED, known, copy
            )  # table rows 14, 16
            return
        if newcomer is not None and newcomer.file not in self._round.settled:
            life = self._life_of(known, newcomer)
            if life is not known:
                newcomer = None
            elif (
                known.state is not State.GONE and self._judge_trimmed(known, newcomer) is not False
            ):
                return  # table row 9a
        # The file with the old inode and the file with the old name may each be a copy of another
        # file.
        if reused and is_reused and not self._copies.is_copy(reused[0]):
            self._begin(Verdict.INODE_REUSED, known, reused[0])  # table row 1
        elif (
            newcomer is not None
            and known.state is not State.GONE
            and newcomer.file not in self._round.settled
            and not self._copies.is_copy(newcomer)
        ):
            self._begin(Verdict.REPLACED, known, newcomer)  # table row 15
        self._judge_gone(known)

    def _life_of(self, known: Stored, name: Seen) -> Stored:
        """Return the generation from which the file was trimmed, among all with the file's name.

        After a crash several generations may be stored under one name, because their end was not
        stored.
        """
        others = (
            other
            for other in self._round.by_path.get(name.path, ())
            if other.path == name.path
            and not other.state.has_ended
            and other.generation not in self._round.held
            and other.file not in self._round.names
        )
        found = [one for one in others if self._round.ask.kept_end(one, name) != 0]
        return known if known in found or not found else found[0]

    def _is_renumbered(self, known: Stored, held: OpenStat | None, newcomer: Seen) -> bool:
        """Row 13: tell whether the file system was mounted again with another device number.

        A file that is open, or that was moved out, is then the same file with a new device number.
        Return True also while answers are missing.
        """
        is_nothing = known.state.has_ended and not known.position
        if is_nothing or not _differ_in_device(known.file, newcomer.file):
            return False
        content = self._round.ask.compare(known, newcomer.file, newcomer.stamp)
        if content not in (Content.UNKNOWN, Content.EQUAL):
            return False
        self._round.settled.add(newcomer.file)
        if content is Content.EQUAL:
            lost = held is not None and held.size > newcomer.size
            self._round.add(Verdict.RENUMBERED, known, newcomer, lost)  # table row 13
        return True

    def _judge_held(self, known: Stored, held: OpenStat, newcomer: Seen | None) -> None:
        if known.state is State.DRAINING:
            return
        if held.links == 0 and newcomer is not None:
            holds = self._round.ask.holds_all(known, newcomer, is_archive_name=False)
            if holds is None or (holds and held.size > known.position):
                # The old file is open and has unread lines. Give the verdict after they were read.
                self._round.settled.add(newcomer.file)
                self._round.is_waiting |= bool(holds)
            elif holds:
                self._round.settled.add(newcomer.file)
                self._round.add(Verdict.REPLACED_SAME_HEAD, known, newcomer)  # table row 14
            elif self._judge_trimmed(known, newcomer, held) is not False:  # table row 9a
                return
            elif self._copies.is_copy(newcomer):
                self._round.add(Verdict.DELETED, known, None)  # table row 6
            else:
                self._begin(Verdict.REPLACED, known, newcomer)  # table row 15
        elif held.links == 0:
            self._round.add(Verdict.DELETED, known, None)  # table row 6
        elif self._round.is_complete:
            self._round.add(Verdict.MOVED_OUT, known, None)  # table row 7

    def _judge_gone(self, known: Stored) -> None:
        if self._round.is_complete and known.state is not State.GONE:
            self._round.add(Verdict.GONE_WHILE_DOWN, known, None, known.is_behind)  # table row 21

    def _begin(self, verdict: Verdict, known: Stored, seen: Seen) -> None:
        names = self._round.names[seen.file]
        self._round.settled.add(seen.file)
        self._round.add(verdict, known, seen, begins=seen)
        self._round.add_links(names, seen)


def _differ_in_device(first: FileId, second: FileId) -> bool:
    return first.inode == second.inode and first.device != second.device
