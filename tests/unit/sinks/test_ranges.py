"""Which offsets a metric has counted, while metrics are added, removed and added again."""

import pytest

from sinks.ranges import MetricRange, change, gap_below, is_away
from tests.harness.seed import seeded

LEDGER = {("logs.a", 0): 10, ("logs.a", 1): 7}


def own(*names: str) -> dict[str, tuple[str, ...]]:
    """Return metrics that count every topic."""
    return dict.fromkeys(names, ())


def test_a_metric_counts_its_own_topics_alone() -> None:
    ledger = {**LEDGER, ("logs.b", 0): 3}
    coming = change({"m": ["logs.b"]}, {}, [], ledger)
    assert coming.rows == (MetricRange("m", "logs.b", 0, 3, None),)
    assert change({}, {"m": ["logs.c"]}, [], ledger).unused == ("m",)
    leaving = change({}, {"m": ["logs.b"]}, [], ledger)
    assert leaving.rows == (MetricRange("m", "logs.b", 0, 0, 3),)


def test_the_first_metrics_begin_with_the_first_line() -> None:
    assert change(own("m"), {}, [], {}).rows == ()
    assert not is_away("m", [])


def test_a_new_metric_begins_where_the_ledger_stands() -> None:
    found = change(own("m", "n"), own("m"), [], LEDGER)
    assert found.rows == (
        MetricRange("n", "logs.a", 0, 10, None),
        MetricRange("n", "logs.a", 1, 7, None),
    )
    assert (found.resumed, found.unused) == ((), ())


def test_a_metric_that_leaves_ends_where_the_ledger_stands() -> None:
    """Partition 1 is newer than the metric, so the metric counted it from its first line on."""
    ranges = [MetricRange("n", "logs.a", 0, 4, None)]
    found = change({}, own("n"), ranges, LEDGER)
    assert found.rows == (
        MetricRange("n", "logs.a", 0, 4, 10),
        MetricRange("n", "logs.a", 1, 0, 7),
    )
    assert is_away("n", found.rows)
    assert change({}, own("n"), found.rows, {("logs.a", 0): 99}).rows == ()


def test_a_metric_that_comes_back_has_a_hole_and_says_so() -> None:
    ranges = [MetricRange("n", "logs.a", 0, 0, 4)]
    found = change(own("n"), own("n"), ranges, LEDGER)
    assert found.resumed == ("n",)
    assert found.rows[0] == MetricRange("n", "logs.a", 0, 10, None)
    assert not is_away("n", [*ranges, *found.rows])


def test_nothing_is_kept_of_a_metric_that_left_before_the_first_line() -> None:
    for ledger in ({}, {("logs.a", 0): 0}):
        assert change({}, own("n"), [], ledger).unused == ("n",)
    assert change(own("n"), own("n"), [], {}).unused == ()


@pytest.mark.parametrize(
    ("ranges", "floor", "gap"),
    [
        ([], 0, None),
        ([(0, None)], 0, None),
        ([(50, None)], 0, (0, 50)),
        ([(50, None)], 20, (20, 50)),
        ([(50, None)], 50, None),
        ([(50, None)], 70, None),
        ([(50, None), (10, 30)], 0, (30, 50)),
        ([(50, None), (10, 50)], 0, (0, 10)),
        ([(50, None), (10, 30)], 40, (40, 50)),
        ([(50, None), (50, 50), (10, 30)], 0, (30, 50)),
        ([(30, None), (10, 30), (0, 5)], 0, (5, 10)),
    ],
)
def test_what_is_missing_nearest_to_what_is_counted(
    ranges: list[tuple[int, int | None]], floor: int, gap: tuple[int, int] | None
) -> None:
    own = [MetricRange("m", "logs.a", 0, start, end) for start, end in ranges]
    assert gap_below(own, floor) == gap


def test_random_gaps_are_filled_downwards_until_nothing_is_missing() -> None:
    chance = seeded("gaps")
    for _ in range(300):
        ends = sorted(chance.sample(range(1, 60), 2 * chance.randrange(4) + 1), reverse=True)
        own = [MetricRange("m", "logs.a", 0, ends[0], None)]
        own += [
            MetricRange("m", "logs.a", 0, ends[at + 1], ends[at]) for at in range(1, len(ends), 2)
        ]
        floor = chance.randrange(60)
        before = {offset for one in own for offset in offsets(one)}
        filled: list[int] = []
        while (gap := gap_below(own, floor)) is not None:
            low = max(gap[0], gap[1] - chance.randrange(1, 9))
            filled += range(low, gap[1])
            [at] = [index for index, one in enumerate(own) if one.start_offset == gap[1]]
            own[at] = own[at]._replace(start_offset=low)
        assert len(filled) == len(set(filled))
        assert set(filled) == set(range(floor, ends[0])) - before


def offsets(one: MetricRange) -> range:
    return range(one.start_offset, 60 if one.end_offset is None else one.end_offset)


def test_random_comings_and_goings_name_every_line_that_was_counted() -> None:
    chance = seeded("metric-ranges")
    for _ in range(200):
        ledger: dict[tuple[str, int], int] = {}
        stored: set[str] = set()
        table: dict[tuple[str, str, int, int], MetricRange] = {}
        counted: dict[str, set[tuple[str, int, int]]] = {"m": set(), "n": set()}
        for _ in range(chance.randrange(1, 8)):
            names = {name for name in counted if chance.random() < 0.6}
            found = change(own(*names), own(*stored), list(table.values()), ledger)
            table |= {
                (one.metric, one.topic, one.partition, one.start_offset): one for one in found.rows
            }
            stored = stored.difference(found.unused) | names
            for _ in range(chance.randrange(3)):
                place = ("logs.a", chance.randrange(3))
                start = ledger.get(place, 0)
                ledger[place] = start + chance.randrange(4)
                for name in names:
                    counted[name] |= {(*place, offset) for offset in range(start, ledger[place])}
        for name in stored:
            ranges = [one for one in table.values() if one.metric == name]
            assert covered(ranges, ledger, name) == counted[name]


def covered(
    ranges: list[MetricRange], ledger: dict[tuple[str, int], int], name: str
) -> set[tuple[str, int, int]]:
    """Return the lines that the metric has counted by these ranges."""
    found = set()
    for (topic, partition), end in ledger.items():
        own = [one for one in ranges if (one.topic, one.partition) == (topic, partition)]
        if not own and not is_away(name, ranges):
            own = [MetricRange(name, topic, partition, 0, None)]
        for one in own:
            stop = end if one.end_offset is None else one.end_offset
            found |= {(topic, partition, offset) for offset in range(one.start_offset, stop)}
    return found
