"""A search finds the lines that kill the JVM in few attempts, and counts each other line once."""

import itertools
import math
import random
from collections.abc import Callable, Iterable

import pytest

from sinks.rows import CellBlock, FoldRow, OffsetRange, UnparsedRow, UnparsedSample
from sinks.unparsed import SAMPLES_PER_FILE_AND_DAY
from stream.fold.counts import BatchCounts, PartitionCount
from stream.quarantine.search import (
    BATCHES_TO_GROW,
    BLAME_BELIEVED,
    BLAME_ENDED,
    BLAME_KILLED,
    DEADLY,
    DEADLY_OFFSETS_MIN,
    FAN,
    FailureKind,
    Part,
    PartFailure,
    PartSize,
    PoisonLine,
    Search,
    blame_of,
    chopped,
    joined,
    set_aside,
    size_of,
)
from tests.harness.seed import seeded

Line = tuple[int, int]
DATA = PartFailure(FailureKind.DATA, "broken")
MEMORY = PartFailure(FailureKind.MEMORY, "heap")


def whole(*sizes: int) -> list[OffsetRange]:
    """Return a batch with this number of offsets in each partition. Partition N starts at offset
    100 * N."""
    return [
        OffsetRange("t", number, 100 * number, 100 * number + size)
        for number, size in enumerate(sizes)
    ]


def lines_of(part: Iterable[OffsetRange]) -> list[Line]:
    return [(one.partition, offset) for one in part for offset in range(one.start, one.end)]


class Fake:
    """Counts lines by storing them. `refuses` returns how a part fails, or None if it can be
    counted."""

    def __init__(
        self, refuses: Callable[[Part], PartFailure | None], gaps: frozenset[Line] = frozenset()
    ) -> None:
        self.tries = 0
        self._refuses = refuses
        self._gaps = gaps

    def run(self, search: Search) -> set[Line]:
        """Search to the end and return the guilty lines. Check that every other line was counted
        once."""
        before = search.offsets_left
        covered: list[Line] = []
        while (part := search.part) is not None:
            assert size_of(part) > 0
            self.tries += 1
            failure = self._refuses(part)
            if failure is None:
                covered += lines_of(part)
                search.passed(self._count(part))
            else:
                search.failed(failure)
        guilty = {(one.partition, one.start) for one, _ in search.poison}
        assert all(one.end == one.start + 1 for one, _ in search.poison)
        assert len(guilty) == len(search.poison)
        assert len(covered) == len(set(covered))
        assert not set(covered) & guilty
        assert len(covered) + len(guilty) == before
        assert search.offsets_left == 0
        counted = [(row.key[0], row.slice_start_s) for row in search.counts.rows]
        assert sorted(counted) == sorted(
            (str(partition), offset)
            for partition, offset in covered
            if (partition, offset) not in self._gaps
        )
        assert search.counts.lines == len(counted)
        return guilty

    def _count(self, part: Part) -> BatchCounts:
        rows, partitions = [], []
        for one in part:
            held = [line for line in lines_of([one]) if line not in self._gaps]
            rows += [FoldRow("m", offset, (str(partition),), 1) for partition, offset in held]
            if held:
                partitions.append(
                    PartitionCount("t", one.partition, len(held), held[0][1], held[-1][1], None)
                )
        return BatchCounts(rows, [], partitions)


def holding(guilty: Iterable[Line]) -> Callable[[Part], PartFailure | None]:
    """Return a function that reports a failure for each part with any of these lines."""
    wanted = set(guilty)
    return lambda part: DATA if wanted.intersection(lines_of(part)) else None


def test_one_guilty_line_takes_the_logarithm_of_the_batch() -> None:
    for offset in (0, 1, 499, 25_000, 49_999):
        fake = Fake(holding([(0, offset)]))
        assert fake.run(Search(whole(50_000), failure=DATA)) == {(0, offset)}
        assert fake.tries <= math.log2(50_000) + 3


def test_several_guilty_lines_take_so_many_logarithms() -> None:
    # In trials, the worst of 40,000 pairs took log2 + 3.5 attempts per line, and the worst set of
    # four took log2 + 3.75.
    chance = seeded("quarantine-tries")
    size = 4_096
    for count in (2, 5, 20):
        guilty = {(0, offset) for offset in chance.sample(range(size), count)}
        fake = Fake(holding(guilty))
        assert fake.run(Search(whole(size), failure=DATA)) == guilty
        assert fake.tries <= count * (math.log2(size) + 5)


def test_no_two_guilty_lines_take_more_than_three_tries_each_beyond_the_logarithm() -> None:
    size = 64
    for pair in itertools.combinations(range(size), 2):
        guilty = {(0, offset) for offset in pair}
        fake = Fake(holding(guilty))
        assert fake.run(Search(whole(size), failure=DATA)) == guilty
        assert fake.tries <= 2 * (math.log2(size) + 3)


def test_partitions_are_told_apart_first() -> None:
    search = Search(whole(50, 50, 50, 50), failure=DATA)
    assert search.part == tuple(whole(50, 50))
    search.passed(BatchCounts([], [], []))
    assert search.part == (OffsetRange("t", 2, 200, 250),)


def test_all_lines_guilty() -> None:
    ranges = whole(70, 0, 3)
    fake = Fake(lambda _: DATA)
    assert fake.run(Search(ranges, failure=DATA)) == set(lines_of(ranges))
    assert fake.tries <= 2 * (73 + math.log2(73))


def test_a_batch_that_passes_after_all_has_no_guilty_line() -> None:
    fake = Fake(lambda _: None)
    assert fake.run(Search(whole(1_000), failure=DATA)) == set()
    assert fake.tries <= math.log2(1_000) + 2


def test_an_empty_batch_needs_no_try() -> None:
    search = Search(whole(0, 0), failure=DATA)
    assert (search.part, search.poison, search.counts.lines) == (None, [], 0)


def test_any_guilty_lines_among_any_gaps() -> None:
    chance = seeded("quarantine")
    for _ in range(200):
        sizes = [chance.choice((0, 1, 2, 3, 17, 80)) for _ in range(chance.randrange(1, 6))]
        lines = lines_of(whole(*sizes))
        gaps = frozenset(line for line in lines if chance.random() < 0.2)
        guilty = {
            line
            for line in lines
            if line not in gaps and chance.random() < chance.choice((0.01, 0.1, 0.9))
        }
        offsets_max = chance.choice((None, 1, 5, 64))
        fake = Fake(random_failures(chance, guilty), gaps)
        known = DATA if guilty and offsets_max is None else None
        assert fake.run(Search(whole(*sizes), failure=known, offsets_max=offsets_max)) == guilty


def random_failures(
    chance: random.Random, guilty: set[Line]
) -> Callable[[Part], PartFailure | None]:
    """Return a function that fails for parts with a guilty line, and for parts of more than `limit`
    offsets."""
    limit = chance.choice((1, 10, 1_000))

    def refuses(part: Part) -> PartFailure | None:
        if guilty.intersection(lines_of(part)):
            return chance.choice((DATA, MEMORY))
        return MEMORY if size_of(part) > limit else None

    return refuses


def test_too_little_memory_is_no_line_s_fault() -> None:
    fake = Fake(lambda part: MEMORY if size_of(part) > 100 else None)
    search = Search(whole(1_000), failure=MEMORY)
    assert fake.run(search) == set()
    assert search.offsets_passed is not None and 50 <= search.offsets_passed <= 100


def test_a_line_that_needs_too_much_says_nothing_about_the_size() -> None:
    search = Search(whole(1_000), failure=MEMORY)
    fake = Fake(lambda part: MEMORY if (0, 700) in lines_of(part) else None)
    assert fake.run(search) == {(0, 700)}
    assert search.offsets_passed is None


def test_a_batch_is_counted_in_parts_of_a_size_that_passed() -> None:
    sizes: list[int] = []

    def note(part: Part) -> None:
        sizes.append(size_of(part))

    assert Fake(note).run(Search(whole(50, 5, 0, 50), offsets_max=30)) == set()
    assert sizes == [30, 30, 30, 15]
    assert chopped(whole(50, 5), 30)[1] == (
        OffsetRange("t", 0, 30, 50),
        OffsetRange("t", 1, 100, 105),
    )


def test_the_size_grows_again_slowly() -> None:
    size = PartSize()
    size.was_cut()
    assert size.offsets_max is None
    size = PartSize()
    size.passed(100)
    size.passed(1_000)
    assert size.offsets_max == 100
    for _ in range(BATCHES_TO_GROW):
        assert size.offsets_max == 100
        size.was_cut()
    assert size.offsets_max == 125
    size.passed(1)
    for _ in range(BATCHES_TO_GROW):
        size.was_cut()
    assert size.offsets_max == 2


class Mortal:
    """A JVM that some lines kill. Each new JVM gets the deaths that were noted before."""

    def __init__(self, guilty: set[Line], sizes: tuple[int, ...]) -> None:
        self.blame: dict[Part, int] = {}
        self.guilty = guilty
        self.sizes = sizes
        self.ends = 0

    def live(self) -> Search | None:
        """Search until the end, or until the JVM dies. Return None if it dies."""
        batch = tuple(one for one in whole(*self.sizes) if one.end > one.start)
        failure = None
        if self.blame.get(batch, 0) >= BLAME_BELIEVED:
            failure = DEADLY
        search = Search(batch, failure=failure, blame=self.blame)
        while (part := search.part) is not None:
            if self.guilty.intersection(lines_of(part)):
                self.blame[part] = self.blame.get(part, 0) + BLAME_ENDED
                self.ends += 1
                return None
            search.passed(BatchCounts([], [], []))
        return search

    def run(self) -> Search:
        while (search := self.live()) is None:
            assert self.ends < 1_000
        return search


@pytest.mark.parametrize("offset", [0, 1, 777, 49_999])
def test_a_line_that_ends_the_jvm_is_found_over_its_lives(offset: int) -> None:
    mortal = Mortal({(0, offset)}, (50_000,))
    search = mortal.run()
    assert [(one.start, one.end) for one, _ in search.poison] == [(offset, offset + 1)]
    levels = math.ceil(math.log(50_000, FAN))
    ends_believed = BLAME_BELIEVED // BLAME_ENDED
    assert mortal.ends <= ends_believed + levels - 1 + ends_believed


def test_several_lines_that_end_the_jvm() -> None:
    chance = seeded("quarantine-deaths")
    lines = lines_of(whole(300, 40, 0, 2_000))
    guilty = set(chance.sample(lines, 4))
    mortal = Mortal(guilty, (300, 40, 0, 2_000))
    assert {(one.partition, one.start) for one, _ in mortal.run().poison} == guilty


def test_a_batch_too_large_for_the_jvm_says_what_passed() -> None:
    for size, passed in ((200_000, 100_000), (60_000, DEADLY_OFFSETS_MIN)):
        search = Search(whole(size), failure=DEADLY)
        assert Fake(lambda _: None).run(search) == set()
        assert search.offsets_passed == passed


def test_ends_over_a_small_batch_make_no_later_one_smaller() -> None:
    """Two kills over a batch of 17,000 lines must not limit the size of all later batches."""
    search = Search(whole(DEADLY_OFFSETS_MIN), failure=DEADLY)
    assert Fake(lambda _: None).run(search) == set()
    assert search.offsets_passed is None


def test_a_kill_from_outside_is_half_a_reason() -> None:
    kills = [-9, 129, 130, 143]
    assert {blame_of(code) for code in kills} == {BLAME_KILLED}
    assert {blame_of(code) for code in (0, 1, 3, 52, 134, -6, -11, None)} == {BLAME_ENDED}
    assert 2 * BLAME_KILLED < BLAME_BELIEVED == 2 * BLAME_ENDED
    batch = tuple(whole(400))
    pieces = chopped(batch, 400 // FAN)
    search = Search(batch, failure=DEADLY, blame={pieces[0]: BLAME_KILLED, pieces[1]: BLAME_ENDED})
    assert search.part == pieces[0]
    search.passed(BatchCounts([], [], []))
    assert search.part is not None and size_of(search.part) == 1


def test_a_batch_of_one_line_must_end_the_jvm_twice() -> None:
    (one,) = whole(1)
    assert Search([one], blame={(one,): BLAME_ENDED}).part == (one,)
    search = Search([one], blame={(one,): 2 * BLAME_ENDED})
    assert (search.part, [found for found, _ in search.poison]) == (None, [one])


def sample(offset: int) -> UnparsedSample:
    return UnparsedSample(0, offset, b"x")


def test_counts_are_joined() -> None:
    first = BatchCounts(
        [FoldRow("m", 0, ("a",), 1)],
        [UnparsedRow("t", "f", "time", 2, (sample(9),))],
        [PartitionCount("t", 0, 3, 5, 9, 100)],
        [CellBlock("m", 60, 0, 1, b"x")],
    )
    second = BatchCounts(
        [FoldRow("m", 0, ("a",), 4)],
        [UnparsedRow("t", "f", "time", 1, (sample(2),)), UnparsedRow("t", "f", "null", 1)],
        [PartitionCount("t", 0, 2, 1, 4, None), PartitionCount("s", 0, 1, 7, 7, 50)],
        [CellBlock("m", 60, 60, 1, b"y")],
    )
    found = joined([first, second])
    assert list(found.rows) == [*first.rows, *second.rows]
    assert list(found.blocks) == [*first.blocks, *second.blocks]
    assert found.unparsed == [
        UnparsedRow("t", "f", "null", 1),
        UnparsedRow("t", "f", "time", 3, (sample(2), sample(9))),
    ]
    assert found.partitions == [
        PartitionCount("s", 0, 1, 7, 7, 50),
        PartitionCount("t", 0, 5, 1, 9, 100),
    ]
    assert (found.lines, found.latest_s) == (6, 100)
    assert joined([]) == BatchCounts([], [], [], [])


def test_lines_set_aside_are_counted_as_unparsed() -> None:
    lines = [PoisonLine("t", "f", 1, offset, b"z" * 5_000, "why") for offset in (8, 3)]
    found = set_aside([*lines, PoisonLine("t", "g", 0, 1, b"", "why")])
    first, other = found.unparsed
    assert (first.file, first.reason, first.count) == ("f", "poison", 2)
    assert first.samples == tuple(UnparsedSample(1, at, b"z" * 4_096) for at in (3, 8))
    assert (other.file, other.count) == ("g", 1)
    assert found.partitions == [
        PartitionCount("t", 0, 1, 1, 1, None),
        PartitionCount("t", 1, 2, 3, 8, None),
    ]


def test_no_more_samples_are_kept_than_a_file_may_have() -> None:
    many = SAMPLES_PER_FILE_AND_DAY + 50
    lines = [PoisonLine("t", "f", 0, offset, b"", "") for offset in range(many)]
    (row,) = set_aside(lines).unparsed
    assert (row.count, len(row.samples)) == (many, SAMPLES_PER_FILE_AND_DAY)
