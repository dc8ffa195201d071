"""One run of the bench: its options, its folder, its repetitions and its clean-up."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import Watch, no_roots
from bench.measurement import NOISY_CORES, Figures, Run
from bench.report import note

ROOT = Path(__file__).resolve().parents[1]


class Unavailable(Exception):
    """A part cannot be measured on this machine. The text names what is missing."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    quick: bool = False
    runs: int = 3
    size_bytes: int = 1_000_000_000
    """The size of the old file that is dropped into the watched folder."""
    beside_kafka: bool = False
    folder: Path = ROOT / ".cache"
    """The folder in which the temporary folder is created. It must be on a disk, because in memory
    a flush costs nothing."""
    seed: int = 1

    def sized(self, full: int, quick: int) -> int:
        """Return `quick` if the run has `--quick`, otherwise `full`."""
        return quick if self.quick else full


class Bench:
    """A context manager for one run of the bench. On exit it closes everything that was entered
    into `stack`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.stack = contextlib.ExitStack()
        self.folder = Path()
        self.mill: object | None = None
        """The whole mill that parts share; `bench.whole` creates it."""
        self._names = 0

    def __enter__(self) -> "Bench":
        self.options.folder.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-", dir=self.options.folder))
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def new_folder(self, name: str) -> Path:
        """Return an empty folder. The caller removes a large folder as soon as it is no longer
        needed."""
        self._names += 1
        path = self.folder / f"{self._names}-{name}"
        path.mkdir()
        return path

    def once(
        self, measure: Callable[[], Figures], roots: Callable[[], Iterable[int]] = no_roots
    ) -> Run:
        """Run once, and measure the other load of the machine during the run."""
        with Watch(roots) as watch:
            figures = measure()
        return Run(figures, watch.other_load)

    def repeat(
        self,
        case: str,
        measure: Callable[[], Figures],
        roots: Callable[[], Iterable[int]] = no_roots,
        runs: int | None = None,
    ) -> list[Run]:
        """Run one case several times."""
        note(case)
        return [self.once(measure, roots) for _ in range(runs or self.options.runs)]

    def in_turn(
        self, case: str, ours: Callable[[], Figures], theirs: Callable[[], Figures]
    ) -> tuple[list[Run], list[Run]]:
        """Run our measurement and a peer's alternately (A B A B …), so that changes of the
        machine's speed affect both equally."""
        note(case)
        pairs = [(self.once(ours), self.once(theirs)) for _ in range(self.options.runs)]
        return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]

    def in_rounds(self, case: str, measures: Sequence[Callable[[], Figures]]) -> "Rounds":
        """Run several measurements alternately (A B C A B C …), and discard disturbed rounds.

        A round with too much other load is repeated. The total number of rounds is at most twice
        the number of runs. If no round was quiet, all rounds are kept and marked.
        """
        note(case)
        rounds: list[tuple[Run, ...]] = []
        quiet: list[tuple[Run, ...]] = []
        while len(quiet) < self.options.runs and len(rounds) < 2 * self.options.runs:
            rounds.append(tuple(self.once(measure) for measure in measures))
            if all(run.other_load <= NOISY_CORES for run in rounds[-1]):
                quiet.append(rounds[-1])
        kept = quiet or rounds
        by_subject = [list(runs) for runs in zip(*kept, strict=True)]
        return Rounds(by_subject, len(rounds) - len(kept))


@dataclass(frozen=True, slots=True)
class Rounds:
    """The runs of each measurement, and the number of rounds that were discarded."""

    runs: Sequence[list[Run]]
    discarded: int
