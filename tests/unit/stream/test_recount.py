"""Which offsets a recount takes next."""

from sinks.rows import OffsetRange
from stream.archived import Spans
from stream.recount import highest, next_piece, unreachable
from tests.harness.seed import seeded


def test_the_last_offsets_of_every_gap_as_many_of_each() -> None:
    gaps = [OffsetRange("t", 0, 5, 100), OffsetRange("t", 1, 0, 3)]
    assert highest(gaps, 20) == (OffsetRange("t", 0, 90, 100), OffsetRange("t", 1, 0, 3))


def test_at_least_one_of_each() -> None:
    gaps = [OffsetRange("t", part, 0, 9) for part in range(5)]
    assert highest(gaps, 3) == tuple(OffsetRange("t", part, 8, 9) for part in range(5))


def test_what_neither_holds_is_not_wanted() -> None:
    gaps = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 100), OffsetRange("t", 2, 0, 100)]
    held = {("t", 0): 40, ("t", 1): 40, ("t", 2): 40}
    assert unreachable(gaps, held, {}) == {("t", 0): 40, ("t", 2): 40}
    assert unreachable(gaps, held, {("t", 0): ((0, 60),), ("t", 2): ((5, 60),)}) == {("t", 2): 5}
    assert unreachable(gaps, {}, {}) == {}


def test_a_piece_is_of_one_source_the_topic_first() -> None:
    held = {("t", 0): 40, ("t", 1): 40}
    archived = {("t", 0): ((0, 60),), ("t", 1): ((0, 10), (20, 60))}
    both = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 25, 30)]
    assert next_piece(both, held, archived, 1_000) == ((OffsetRange("t", 0, 40, 100),), False)
    below = [OffsetRange("t", 0, 0, 40), OffsetRange("t", 1, 20, 30)]
    found = (OffsetRange("t", 0, 0, 40), OffsetRange("t", 1, 20, 30))
    assert next_piece(below, held, archived, 1_000) == (found, True)
    some = (OffsetRange("t", 0, 38, 40), OffsetRange("t", 1, 28, 30))
    assert next_piece(below, held, archived, 4) == (some, True)


def test_a_recount_goes_down_to_the_first_hole_and_takes_each_offset_once() -> None:
    chance = seeded("recount-pieces")
    for _ in range(300):
        first, end = chance.randrange(60), chance.randrange(1, 100)
        cuts = sorted(chance.sample(range(80), 4))
        spans = ((cuts[0], cuts[1]), (cuts[2], cuts[3]))
        held, archived = {("t", 0): first}, {("t", 0): spans}
        begin = low = end
        floor = 0
        while floor < low:
            gap = [OffsetRange("t", 0, floor, low)]
            raised = unreachable(gap, held, archived)
            if raised:
                floor = raised["t", 0]
                continue
            (piece,), is_archived = next_piece(gap, held, archived, chance.randrange(1, 40))
            assert piece.end == low
            assert floor <= piece.start < piece.end
            within = [(first, 10**9)] if not is_archived else spans
            assert any(start <= piece.start and piece.end <= stop for start, stop in within)
            low = piece.start

        def is_held(offset: int, first: int = first, spans: Spans = spans) -> bool:
            return offset >= first or any(start <= offset < stop for start, stop in spans)

        assert all(is_held(offset) for offset in range(low, begin))
        assert low == 0 or not is_held(low - 1)
