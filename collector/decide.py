"""Which file is which: from what is stored and what is seen to one verdict per file.

Floor: above `sightings`. Pure: it never reads. Where hashes are needed that nobody has computed,
the probes are part of the answer, the file in question gets no verdict yet, and the caller comes
again with the answers. Numbers in comments are rows of the table in docs/decisions/0007 (first
match wins). Rows about copies and archives of a known file are not built: such a file is `new`.

Only three things ever follow: read on at the position, finish elsewhere and begin a new generation
at 0, or begin at 0.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from collector.fingerprint import FileId
from collector.sightings import (
    Answers,
    Decision,
    Held,
    Judgement,
    Probe,
    Seen,
    Stamp,
    State,
    Stored,
    Verdict,
)


class _Content(Enum):
    """How a file's bytes compare with a generation's fingerprint."""

    EQUAL = "equal"
    SHORTER = "shorter"  # ends before the position
    HEAD_DIFFERS = "head differs"
    MARKER_DIFFERS = "marker differs"
    UNKNOWN = "unknown"  # probes are open


def decide(
    stored: Collection[Stored],
    seen: Sequence[Seen],
    held: Mapping[str, Held],
    answers: Answers,
    *,
    is_complete: bool = True,
) -> Decision:
    """Judge every known generation and every name of one scan.

    `held` has the stat of each generation with an open handle. `is_complete` is False when a
    folder could not be read: then nothing is declared gone.
    """
    return _Session(stored, seen, held, answers, is_complete).run()


class _Session:
    """The working state of one call of `decide`."""

    def __init__(
        self,
        stored: Collection[Stored],
        seen: Sequence[Seen],
        held: Mapping[str, Held],
        answers: Answers,
        is_complete: bool,
    ):
        # The living first: an inode may also stand in the record of a file that has ended.
        bound = [known for known in stored if known.state is not State.DONE]
        self.stored = sorted(bound, key=lambda known: known.state.has_ended)
        self.held = held
        self.answers = answers
        self.is_complete = is_complete
        self.names: dict[FileId, list[Seen]] = {}
        self.at_path: dict[str, Seen] = {}
        for name in seen:
            self.names.setdefault(name.file, []).append(name)
            self.at_path.setdefault(name.path, name)
        self.judgements: list[Judgement] = []
        self.probes: set[Probe] = set()
        self.settled: set[FileId] = set()  # files that belong to a known generation, or wait

    def run(self) -> Decision:
        """Known files first, then those that vanished, then the newcomers."""
        absent = [known for known in self.stored if not self._judge_present(known)]
        for known in absent:
            self._judge_absent(known)
        for file, names in self.names.items():
            if file not in self.settled:
                self._add(Verdict.NEW, None, names[0])
                self._add_links(names, names[0])
        return Decision(tuple(self.judgements), frozenset(self.probes))

    def _add(
        self, verdict: Verdict, known: Stored | None, seen: Seen | None, lost_possible: bool = False
    ) -> None:
        generation = None if known is None else known.generation
        self.judgements.append(Judgement(verdict, generation, seen, lost_possible))

    def _add_links(self, names: Sequence[Seen], first: Seen) -> None:
        for name in names:  # 5
            if name is not first:
                self._add(Verdict.LINKED, None, name)

    def _judge_present(self, known: Stored) -> bool:
        """Rows 1 to 5, 10, 11: the generation's inode is there under a name. False: it is not."""
        names = self.names.get(known.file)
        if not names or known.file in self.settled:
            return False
        name = next((name for name in names if name.path == known.path), names[0])
        held = self.held.get(known.generation)
        same_name = name.path == known.path
        if held is None and _births_differ(known, name):  # 1
            return False
        content = self._compare(known, name.file, name.stamp if held is None else held.stamp)
        if held is None and not same_name and content is _Content.SHORTER:
            content = self._compare_short_head(known, name)
        if held is None and not same_name and content is _Content.HEAD_DIFFERS:  # 1
            return False
        self.settled.add(known.file)
        if content is _Content.UNKNOWN:
            return True
        size = name.size if held is None else held.size
        if content is _Content.SHORTER:
            self._add(Verdict.TRUNCATED, known, name, lost_possible=True)  # 10
        elif content is not _Content.EQUAL:
            self._add(Verdict.REWRITTEN, known, name, lost_possible=True)  # 11
        elif not same_name:
            self._add(Verdict.RENAMED, known, name)  # 4
        elif size > known.position:
            self._add(Verdict.GROWN, known, name)  # 3
        else:
            self._add(Verdict.UNCHANGED, known, name)  # 2
        self._add_links(names, name)
        return True

    def _judge_absent(self, known: Stored) -> None:
        """Rows 1, 6, 7, 13, 15, 21: none of the names seen is the generation's file."""
        if known.state.has_ended and known.state is not State.GONE:
            return
        newcomer = self.at_path.get(known.path)
        if newcomer is not None and newcomer.file in self.settled:
            newcomer = None
        held = self.held.get(known.generation)
        if held is not None:
            self._judge_held(known, held, newcomer)
            return
        if newcomer is not None and _differ_in_device(known.file, newcomer.file):
            content = self._compare(known, newcomer.file, newcomer.stamp)
            if content in (_Content.UNKNOWN, _Content.EQUAL):
                self.settled.add(newcomer.file)
                if content is _Content.EQUAL:
                    self._add(Verdict.RENUMBERED, known, newcomer)  # 13
                return
        reused = self.names.get(known.file)
        if reused and known.file not in self.settled:
            self._begin(Verdict.INODE_REUSED, known, reused[0])  # 1
        elif newcomer is not None and known.state is not State.GONE:
            self._begin(Verdict.REPLACED, known, newcomer)  # 15
        self._judge_gone(known)

    def _judge_held(self, known: Stored, held: Held, newcomer: Seen | None) -> None:
        if known.state is State.DRAINING:
            return
        if held.links == 0 and newcomer is not None:
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
        self._add(verdict, known, seen)
        self._add_links(names, seen)

    def _compare(self, known: Stored, file: FileId, stamp: Stamp) -> _Content:
        """Hold a file's head and marker against the fingerprint; opens probes as needed."""
        print_ = known.fingerprint
        if stamp.size < print_.position:
            return _Content.SHORTER
        if print_.position == 0 or (known.stamp == stamp and file == known.file):
            return _Content.EQUAL
        head = print_.heads[-1]
        marker_offset = print_.position - print_.marker_length
        head_equal = self._ask(Probe(file, 0, head.length), head.digest)
        marker_equal = self._ask(Probe(file, marker_offset, print_.marker_length), print_.marker)
        if head_equal is None or marker_equal is None:
            return _Content.UNKNOWN
        if not head_equal:
            return _Content.HEAD_DIFFERS
        return _Content.EQUAL if marker_equal else _Content.MARKER_DIFFERS

    def _compare_short_head(self, known: Stored, name: Seen) -> _Content:
        """Compare the head of a file that ends before the position, as far as it reaches."""
        head = known.fingerprint.head_within(name.size)
        if head is None:
            return _Content.SHORTER
        equal = self._ask(Probe(name.file, 0, head.length), head.digest)
        if equal is None:
            return _Content.UNKNOWN
        return _Content.SHORTER if equal else _Content.HEAD_DIFFERS

    def _ask(self, probe: Probe, expected: bytes) -> bool | None:
        """Whether the probe's answer is the expected hash; None when it is not known."""
        if probe not in self.answers:
            self.probes.add(probe)
            return None
        answer = self.answers[probe]
        return None if answer is None else answer == expected


def _births_differ(known: Stored, seen: Seen) -> bool:
    return None not in (known.birth_ns, seen.birth_ns) and known.birth_ns != seen.birth_ns


def _differ_in_device(first: FileId, second: FileId) -> bool:
    return first.inode == second.inode and first.device != second.device
