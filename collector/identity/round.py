"""The working state of one decision: the known files, the scan, and the verdicts so far.

This module is pure. `decide` uses the state to find verdicts, and `copies` to search for possible
copies.
"""

from collections.abc import Collection, Mapping, Sequence

from collector.identity.archive_names import COMPRESSED_ENDINGS
from collector.identity.comparing import Comparer
from collector.identity.sightings import (
    Answers,
    Decision,
    Judgement,
    OpenStat,
    Seen,
    State,
    Stored,
    Verdict,
)
from collector.text.fingerprint import FileId


class Round:
    """The working state of one call of `decide`."""

    def __init__(
        self,
        stored: Collection[Stored],
        seen: Sequence[Seen],
        held: Mapping[str, OpenStat],
        answers: Answers,
        is_complete: bool,
        noticed: Collection[str | FileId],
    ):
        # Files that still exist come first, because the record of an ended file can name the same
        # inode.
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
        self.settled: set[FileId] = set()  # files of a known generation, and files that must wait
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
        self.whole: set[str] = set()  # generations whose file still has their content
        self.is_waiting = False

    @property
    def decision(self) -> Decision:
        """The verdicts so far, and what is needed for the missing verdicts."""
        return Decision(
            tuple(self.judgements),
            frozenset(self.ask.probes),
            self.is_waiting,
            frozenset(self.noticed),
        )

    def _is_reused(self, known: Stored) -> bool:
        """Tell by the time of birth whether another file has taken this generation's inode."""
        names = self.names.get(known.file)
        if not names or known.generation in self.held:
            return False
        return births_differ(known, names[0])

    def add(
        self,
        verdict: Verdict,
        known: Stored | None,
        seen: Seen | None,
        lost_possible: bool = False,
        *,
        begins: Seen | None = None,
        copy: Seen | None = None,
        kept_end: int = 0,
    ) -> None:
        """Add a verdict about a known generation, a name that the scan found, or both."""
        generation = None if known is None else known.generation
        self.judgements.append(
            Judgement(verdict, generation, seen, lost_possible, begins, copy, kept_end)
        )

    def add_links(self, names: Sequence[Seen], first: Seen) -> None:
        """Add LINKED verdicts for all other names of a file that got its verdict under `first`."""
        for name in names:  # table row 5
            if name is not first:
                self.add(Verdict.LINKED, None, name)


def births_differ(known: Stored, seen: Seen) -> bool:
    """Tell whether both times of birth are known and differ."""
    return None not in (known.birth_ns, seen.birth_ns) and known.birth_ns != seen.birth_ns
