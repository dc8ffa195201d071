"""What one decision works with: what is known, what was seen, and what was judged so far.

Floor: above `comparing`. Pure. `decide` goes through the files with it, `copies` looks in it for
what may be a copy of what.
"""

from collections.abc import Collection, Mapping, Sequence

from collector.identity.archive_names import COMPRESSED_ENDINGS
from collector.identity.comparing import Comparer
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


class Round:
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

    @property
    def decision(self) -> Decision:
        """What was judged, and what is needed for the rest."""
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
        """Note a verdict, about what is known, a name that was seen, or both."""
        generation = None if known is None else known.generation
        self.judgements.append(
            Judgement(verdict, generation, seen, lost_possible, begins, copy, kept_end)
        )

    def add_links(self, names: Sequence[Seen], first: Seen) -> None:
        """All other names of a file that was judged under its first one."""
        for name in names:  # 5
            if name is not first:
                self.add(Verdict.LINKED, None, name)


def births_differ(known: Stored, seen: Seen) -> bool:
    """Whether both births are known, and not the same."""
    return None not in (known.birth_ns, seen.birth_ns) and known.birth_ns != seen.birth_ns
