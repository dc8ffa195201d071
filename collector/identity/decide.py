"""Which file is which: from what is stored and what is seen to one verdict per file.

Floor: above `comparing`. Pure: it never reads. Where hashes are needed that nobody has computed,
the probes are part of the answer, the file in question gets no verdict yet, and the caller comes
again with the answers. Numbers in comments are rows of the table in docs/decisions/0007 (first
match wins); compressed copies are recognised once they are whole, by `recognition`.

Only three things ever follow: read on at the position, finish elsewhere and begin a new generation
at 0, or begin at 0.
"""

from collections.abc import Collection, Mapping, Sequence

from collector.config.settings import COPY_QUIET_MS
from collector.identity.archive_names import COMPRESSED_ENDINGS, originals
from collector.identity.comparing import JOINING_BYTES_MIN, Comparer, Content
from collector.identity.sightings import (
    Answers,
    Decision,
    Held,
    Judgement,
    Seen,
    State,
    Stored,
    Verdict,
)
from collector.text.fingerprint import FileId

PAIRS_MAX = 1_000_000
"""More pairs of a vanished generation and a new file than this are not compared by content alone:
then only an archive's name joins them."""


def decide(
    stored: Collection[Stored],
    seen: Sequence[Seen],
    held: Mapping[str, Held],
    answers: Answers,
    *,
    is_complete: bool = True,
    noticed: Collection[str | FileId] = (),
) -> Decision:
    """Judge every known generation and every name of one scan.

    `held` has the stat of each generation with an open handle. `is_complete` is False when a
    folder could not be read: then nothing is declared gone. `noticed` is what the decision
    before this one has noticed.
    """
    return _Session(stored, seen, held, answers, is_complete, noticed).run()


class _Session:
    """The working state of one call of `decide`."""

    def __init__(
        self,
        stored: Collection[Stored],
        seen: Sequence[Seen],
        held: Mapping[str, Held],
        answers: Answers,
        is_complete: bool,
        noticed: Collection[str | FileId],
    ):
        # The living first: an inode may also stand in the record of a file that has ended.
        bound = [known for known in stored if known.state is not State.DONE]
        self.stored = sorted(bound, key=lambda known: known.state.has_ended)
        self.held = held
        self.ask = Comparer(answers)
        self.is_complete = is_complete
        self.noticed_before = noticed
        self.noticed: set[str | FileId] = set()
        self.names: dict[FileId, list[Seen]] = {}
        self.at_path: dict[str, Seen] = {}
        for name in seen:
            self.names.setdefault(name.file, []).append(name)
            self.at_path.setdefault(name.path, name)
        self.judgements: list[Judgement] = []
        self.settled: set[FileId] = set()  # files that belong to a known generation, or wait
        self.by_path: dict[str, list[Stored]] = {}
        for known in stored:
            for path in dict.fromkeys((known.path, known.first_path or known.path)):
                self.by_path.setdefault(path, []).append(known)
        taken = {known.file for known in bound if not self._is_reused(known)}
        self.newcomers = [
            names[0]
            for file, names in self.names.items()
            if file not in taken and not names[0].path.endswith(COMPRESSED_ENDINGS)
        ]
        self.whole: set[str] = set()  # generations whose file is what it was
        self.is_waiting = False

    def run(self) -> Decision:
        """Known files first, then those that vanished, then the newcomers."""
        absent = [known for known in self.stored if not self._judge_present(known)]
        for known in absent:
            self._judge_absent(known)
        for file, names in self.names.items():
            if file not in self.settled and not self._is_copy(names[0]):
                self._add(Verdict.NEW, None, names[0], begins=names[0])
                self._add_links(names, names[0])
        return Decision(
            tuple(self.judgements),
            frozenset(self.ask.probes),
            self.is_waiting,
            frozenset(self.noticed),
        )

    def _is_reused(self, known: Stored) -> bool:
        """Whether another file has the inode of this generation's, by its birth."""
        names = self.names.get(known.file)
        if not names or known.generation in self.held:
            return False
        return _births_differ(known, names[0])

    def _add(
        self,
        verdict: Verdict,
        known: Stored | None,
        seen: Seen | None,
        lost_possible: bool = False,
        *,
        begins: Seen | None = None,
        copy: Seen | None = None,
    ) -> None:
        generation = None if known is None else known.generation
        self.judgements.append(Judgement(verdict, generation, seen, lost_possible, begins, copy))

    def _add_links(self, names: Sequence[Seen], first: Seen) -> None:
        for name in names:  # 5
            if name is not first:
                self._add(Verdict.LINKED, None, name)

    def _judge_present(self, known: Stored) -> bool:
        """Rows 1 to 5, 8 to 11: the generation's inode is there under a name. False: it is not."""
        names = self.names.get(known.file)
        if not names or known.file in self.settled:
            return False
        name = next((name for name in names if name.path == known.path), names[0])
        held = self.held.get(known.generation)
        same_name = name.path == known.path
        if held is None and _births_differ(known, name):  # 1
            return False
        content = self.ask.compare(known, name.file, name.stamp if held is None else held.stamp)
        if held is None and not same_name and content is Content.SHORTER:
            content = self.ask.compare_short_head(known, name)
        if held is None and not same_name and content is Content.HEAD_DIFFERS:  # 1
            return False
        self.settled.add(known.file)
        if content is Content.UNKNOWN:
            self.whole.add(known.generation)
            return True
        size = name.size if held is None else held.size
        if content is not Content.EQUAL:
            if not self._judge_changed(known, name, content):
                return True
        else:
            self.whole.add(known.generation)
            lost = self._is_cut(known, size)
            if not same_name:
                self._add(Verdict.RENAMED, known, name, lost)  # 4
            elif size > known.position:
                self._add(Verdict.GROWN, known, name, lost)  # 3
            else:
                self._add(Verdict.UNCHANGED, known, name, lost)  # 2
        self._add_links(names, name)
        return True

    def _is_cut(self, known: Stored, size: int) -> bool:
        """Whether bytes that a look had seen behind the position are in no file any more."""
        if size >= known.size or not known.is_plain:
            return False
        return not any(
            name.size >= known.size and self._is_archive_name(known, name)
            for name in self.newcomers
        )

    def _judge_changed(self, known: Stored, name: Seen, content: Content) -> bool:
        """Rows 8 to 11: the file is not any more what it was. False while answers are missing.

        A scan is no moment: the copy may have been made, and the file truncated, after it had
        passed. One that began after the change was noticed has seen what copy there is, and whole.
        """
        copy, is_known = self._find_copy(known)
        if copy is not None:
            self.settled.add(copy.file)
        if not is_known:
            return False
        if known.generation not in self.noticed_before:
            self.noticed.add(known.generation)
            self.is_waiting = True
            return False
        if copy is not None:
            if copy.size >= known.position:
                lost = known.size > copy.size
                self._add(Verdict.COPYTRUNCATED, known, copy, lost, begins=name)  # 8a
            else:
                lost = known.size > known.position
                self._add(Verdict.COPYTRUNCATED, known, None, lost, begins=name, copy=copy)  # 8b
            return True
        if content is Content.SHORTER:
            shrunk = self._is_shrunk(known, name)
            if shrunk is None:
                return False
            if shrunk:
                self._add(Verdict.SHRUNK, known, name)  # 9
            else:
                self._add(Verdict.TRUNCATED, known, name, lost_possible=True, begins=name)  # 10
        else:
            self._add(Verdict.REWRITTEN, known, name, lost_possible=True, begins=name)  # 11
        return True

    def _is_shrunk(self, known: Stored, name: Seen) -> bool | None:
        """Row 9: the tail was lost, and what is left is committed already."""
        head = known.fingerprint.heads[-1] if known.fingerprint.heads else None
        if name.path != known.path or head is None or not known.is_plain:
            return False
        if head.length < JOINING_BYTES_MIN or name.size < head.length:
            return False
        content = self.ask.compare_short_head(known, name)
        agrees = self.ask.trail_agrees(known, name)
        if content is Content.HEAD_DIFFERS or agrees is False:
            return False
        return None if content is Content.UNKNOWN or agrees is None else True

    # --- copies -------------------------------------------------------------------------------

    def _find_copy(self, known: Stored) -> tuple[Seen | None, bool]:
        """The new file that holds what the generation's held, and whether that is known."""
        is_known = True
        for name in self._candidates(known):
            is_archive_name = self._is_archive_name(known, name)
            if name.size >= known.position:
                holds = self.ask.holds_all(known, name, is_archive_name)
            else:
                holds = is_archive_name and self._is_older_copy(known, name)
            if holds:
                return name, True
            is_known = is_known and holds is not None
        return None, is_known

    def _is_older_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 8b: a copy made before the position was reached; an older marker must confirm it."""
        if not known.is_plain or not self.ask.reaches_trail(known, name):
            return False
        content = self.ask.compare_short_head(known, name)
        agrees = self.ask.trail_agrees(known, name)
        if content is Content.HEAD_DIFFERS or agrees is False:
            return False
        return None if content is Content.UNKNOWN or agrees is None else True

    def _candidates(self, known: Stored) -> list[Seen]:
        """The new files that may hold the generation's bytes: first those with an archive's name.

        One that grows may be another file's, or this one's copy in the making.
        """
        free = [
            name
            for name in self.newcomers
            if name.file not in self.settled and name.file != known.file
        ]
        named = [name for name in free if self._is_archive_name(known, name)]
        is_many = len(self.stored) * len(free) > PAIRS_MAX
        if is_many or known.position < JOINING_BYTES_MIN:
            return named
        return named + [name for name in free if name not in named]

    @staticmethod
    def _is_archive_name(known: Stored, name: Seen) -> bool:
        return any(path in (known.path, known.first_path) for path in originals(name.path))

    def _is_copy(self, name: Seen) -> bool:
        """Rows 17, 18: a new file with the name of an archive of a known one. False: it is new.

        All that once had the name are asked about in one round: a path may have had many lives.
        """
        if name.path.endswith(COMPRESSED_ENDINGS):
            return False
        waits = False
        for path in originals(name.path):
            for known in self.by_path.get(path, ()):
                if not known.is_plain or known.file == name.file:
                    continue
                if not known.position and not known.is_unread:
                    continue
                if known.state.has_ended or known.generation not in self.whole:
                    verdict = self._is_done_copy(known, name)
                else:
                    verdict = self._is_held_copy(known, name)
                if verdict:
                    self.settled.add(name.file)
                    # Held for no longer than the copy's quiet time; once the original is read, the
                    # next look knows more.
                    self.is_waiting |= known.is_unread
                    return True
                waits = waits or verdict is None
        return waits

    def _is_done_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 18: all of it was given already, by a generation that has ended."""
        content = self.ask.compare(known, name.file, name.stamp)
        if content is Content.SHORTER:
            content = self.ask.compare_short_head(known, name)
        if content is Content.UNKNOWN:
            return None
        if content in (Content.HEAD_DIFFERS, Content.MARKER_DIFFERS):
            return False
        if not known.state.has_ended and known.state is not State.DRAINING:
            # This very look has ended it: the next one knows more.
            self.is_waiting = True
            return None
        if known.state is State.DRAINING and name.size > known.position:
            return None
        if known.state not in (State.DONE, State.DRAINING) or name.size != known.position:
            return False
        holds = self.ask.holds_all(known, name, is_archive_name=True)
        if holds:
            self._add(Verdict.COPY_DONE, known, None, copy=name)
        return holds

    def _is_held_copy(self, known: Stored, name: Seen) -> bool | None:
        """Row 17: it may become the copy of a copytruncate; beside a whole original it waits."""
        if name.still_ms >= COPY_QUIET_MS:
            return False
        size = max(name.size for name in self.names[known.file])
        same = name.size <= size and self.ask.same_so_far(known, name)
        if same is False and name.file not in self.noticed_before:
            # The original may have grown before it was copied, or been truncated after that.
            self.noticed.add(name.file)
            self.is_waiting = True
            return None
        if same:
            self._add(Verdict.COPY_HELD, None, name)
        return same

    # --- vanished -----------------------------------------------------------------------------

    def _judge_absent(self, known: Stored) -> None:
        """Rows 1, 6, 7, 13 to 16, 21: none of the names seen is the generation's file."""
        newcomer = self.at_path.get(known.path)
        if newcomer is not None and newcomer.file in self.settled:
            newcomer = None
        held = self.held.get(known.generation)
        if newcomer is not None and self._is_renumbered(known, held, newcomer):
            return
        if known.state.has_ended and known.state is not State.GONE:
            return
        if held is not None:
            self._judge_held(known, held, newcomer)
            return
        reused = self.names.get(known.file)
        is_reused = bool(reused) and known.file not in self.settled
        copy, is_known = self._find_copy(known)
        if not is_known:
            self.settled |= {newcomer.file} if newcomer is not None else set()
            self.settled |= {known.file} if is_reused else set()
            return
        if copy is not None and copy.size >= known.position:
            self.settled.add(copy.file)
            same_head = newcomer is not None and copy.file == newcomer.file
            self._add(
                Verdict.REPLACED_SAME_HEAD if same_head else Verdict.MOVED, known, copy
            )  # 14, 16
            return
        # Either may be the copy of another file that has got this one's inode, or its name.
        if reused and is_reused and not self._is_copy(reused[0]):
            self._begin(Verdict.INODE_REUSED, known, reused[0])  # 1
        elif (
            newcomer is not None
            and known.state is not State.GONE
            and newcomer.file not in self.settled
            and not self._is_copy(newcomer)
        ):
            self._begin(Verdict.REPLACED, known, newcomer)  # 15
        self._judge_gone(known)

    def _is_renumbered(self, known: Stored, held: Held | None, newcomer: Seen) -> bool:
        """Row 13: a file system that was mounted anew. True also while answers are missing.

        What is held open, or was taken to be moved out, is the same file by the number that its
        file system had before.
        """
        is_nothing = known.state.has_ended and not known.position
        if is_nothing or not _differ_in_device(known.file, newcomer.file):
            return False
        content = self.ask.compare(known, newcomer.file, newcomer.stamp)
        if content not in (Content.UNKNOWN, Content.EQUAL):
            return False
        self.settled.add(newcomer.file)
        if content is Content.EQUAL:
            lost = held is not None and held.size > newcomer.size
            self._add(Verdict.RENUMBERED, known, newcomer, lost)  # 13
        return True

    def _judge_held(self, known: Stored, held: Held, newcomer: Seen | None) -> None:
        if known.state is State.DRAINING:
            return
        if held.links == 0 and newcomer is not None:
            holds = self.ask.holds_all(known, newcomer, is_archive_name=False)
            if holds is None or (holds and held.size > known.position):
                # Once what is held was read, it is judged again.
                self.settled.add(newcomer.file)
                self.is_waiting |= bool(holds)
            elif holds:
                self.settled.add(newcomer.file)
                self._add(Verdict.REPLACED_SAME_HEAD, known, newcomer)  # 14
            elif self._is_copy(newcomer):
                self._add(Verdict.DELETED, known, None)  # 6
            else:
                self._begin(Verdict.REPLACED, known, newcomer)  # 15
        elif held.links == 0:
            self._add(Verdict.DELETED, known, None)  # 6
        elif self.is_complete:
            self._add(Verdict.MOVED_OUT, known, None)  # 7

    def _judge_gone(self, known: Stored) -> None:
        if self.is_complete and known.state is not State.GONE:
            self._add(Verdict.GONE_WHILE_DOWN, known, None, known.is_behind)  # 21

    def _begin(self, verdict: Verdict, known: Stored, seen: Seen) -> None:
        names = self.names[seen.file]
        self.settled.add(seen.file)
        self._add(verdict, known, seen, begins=seen)
        self._add_links(names, seen)


def _births_differ(known: Stored, seen: Seen) -> bool:
    return None not in (known.birth_ns, seen.birth_ns) and known.birth_ns != seen.birth_ns


def _differ_in_device(first: FileId, second: FileId) -> bool:
    return first.inode == second.inode and first.device != second.device
