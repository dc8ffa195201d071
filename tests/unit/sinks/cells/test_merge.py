"""Slices are merged to windows, and windows to cells. The result equals a recount from the rows."""

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import pytest

from sinks.cells.merge import CellId, Cells, WindowId, fold_to_windows, is_kept, merge_with_stored
from sinks.errors import LedgerMismatch
from sinks.keys import is_other, other_key
from sinks.ledger import BatchKind, compare
from sinks.rows import FoldRow, MetricDefinition, OffsetRange
from tests.harness.seed import seeded

DEFINITION = MetricDefinition(
    name="m",
    key_columns=("k",),
    measure="sum",
    windows_s=(10, 60, 0),
    slice_s=10,
    keep_redis_s={10: 3_600, 60: 3_600, 0: None},
    keep_mysql_s={},
    top=None,
    max_keys=None,
    definition_hash=bytes(16),
)


class Store:
    """Applies merges, and keeps the resulting cells and the number of keys per window."""

    def __init__(self, definition: MetricDefinition) -> None:
        self.definitions = {definition.name: definition}
        self.cells: Cells = {}
        self.counts: dict[WindowId, int] = {}
        self.left_out: set[CellId] = set()

    def merge(self, rows: list[FoldRow], now_s: int = 10**9) -> None:
        folded = fold_to_windows(rows, self.definitions, now_s, left_out=self.left_out)
        cells, counts = merge_with_stored(folded, self.cells, self.counts, self.definitions)
        self.cells |= cells
        self.counts |= counts


def row(slice_s: int, key: str, value: int) -> FoldRow:
    number = Decimal(value)
    return FoldRow("m", slice_s, (key,), 1, number, number, number)


def test_merging_in_any_batches_equals_counting_all_at_once() -> None:
    rng = seeded("merge model")
    rows = [
        row(rng.randrange(30) * 10, rng.choice("abcdef"), rng.randrange(-50, 50))
        for _ in range(2_000)
    ]
    store = Store(DEFINITION)
    rest = rows
    while rest:
        cut = rng.randrange(1, 200)
        store.merge(rest[:cut])
        rest = rest[cut:]
    model: dict[tuple[int, int, str], list[Decimal]] = defaultdict(list)
    for one in rows:
        for size_s in DEFINITION.windows_s:
            start_s = 0 if size_s == 0 else one.slice_start_s // size_s * size_s
            assert one.sum is not None
            model[size_s, start_s, str(one.key[0])].append(one.sum)
    found = {
        (i.size_s, i.start_s, c.key[0]): (
            c.aggregate.count,
            c.aggregate.sum,
            c.aggregate.min,
            c.aggregate.max,
        )
        for i, c in store.cells.items()
    }
    assert found == {k: (len(v), sum(v), min(v), max(v)) for k, v in model.items()}
    for window, count in store.counts.items():
        assert count == sum(1 for cell_id in store.cells if cell_id.window == window)


def test_keys_beyond_the_limit_go_to_other_and_totals_stay_exact() -> None:
    rng = seeded("max keys")
    limited = replace(DEFINITION, max_keys=5, windows_s=(60, 0))
    rows = [row(0, f"k{rng.randrange(40)}", 1) for _ in range(500)]
    store = Store(limited)
    for begin in range(0, 500, 50):
        store.merge(rows[begin : begin + 50])
    for size_s in (60, 0):
        cells = [c for i, c in store.cells.items() if i.size_s == size_s]
        assert sum(c.aggregate.count for c in cells) == 500
        assert len(cells) == 6
        assert sum(is_other(c.key) for c in cells) == 1


def test_the_keys_kept_do_not_depend_on_the_order_of_rows() -> None:
    limited = replace(DEFINITION, max_keys=3, windows_s=(0,))
    rows = [row(0, f"k{n}", 1) for n in range(20)]
    one, other = Store(limited), Store(limited)
    one.merge(rows)
    other.merge(list(reversed(rows)))
    assert one.cells == other.cells


def test_a_metric_without_a_key_has_no_limit_to_meet() -> None:
    single = replace(DEFINITION, key_columns=(), max_keys=1, windows_s=(0,))
    store = Store(single)
    store.merge([FoldRow("m", 0, (), 1)])
    store.merge([FoldRow("m", 0, (), 1)])
    assert [c.aggregate.count for c in store.cells.values()] == [2]


def test_a_window_past_its_keep_is_never_written_and_all_is() -> None:
    short = replace(DEFINITION, keep_mysql_s={10: 100, 60: 100})
    store = Store(short)
    store.merge([row(1_000, "a", 1)], now_s=1_161)
    # Window 1,000..1,010 ended 151 s ago and window 960..1,020 ended 141 s ago. Both are kept for
    # 100 s.
    assert {i.size_s for i in store.cells} == {0}
    assert [i[:3] for i in sorted(store.left_out)] == [("m", 10, 1_000), ("m", 60, 960)]
    store.merge([row(1_000, "a", 1)], now_s=1_100)
    assert {(i.size_s, c.aggregate.count) for i, c in store.cells.items()} == {
        (0, 2),
        (10, 1),
        (60, 1),
    }


@pytest.mark.parametrize(
    ("now_s", "kept"), [(159, True), (160, False)], ids=["the last second", "over"]
)
def test_keep_counts_from_the_windows_end(now_s: int, kept: bool) -> None:
    assert is_kept(0, 60, 100, now_s) is kept
    assert is_kept(0, 60, None, now_s)
    assert is_kept(0, 0, 100, now_s)


def test_the_overflow_key_is_not_the_text_other() -> None:
    limited = replace(DEFINITION, max_keys=1, windows_s=(0,))
    store = Store(limited)
    store.merge([row(0, "(other)", 1)])
    store.merge([row(0, "b", 1)])
    assert sorted(is_other(c.key) for c in store.cells.values()) == [False, True]
    assert other_key(1) in [c.key for c in store.cells.values()]


RANGES = [OffsetRange("t", 0, 4, 7), OffsetRange("t", 1, 2, 2)]


@pytest.mark.parametrize(
    ("ledger", "after_guard", "kind"),
    [
        ({("t", 0): 4, ("t", 1): 2}, True, BatchKind.NEW),
        ({("t", 1): 2}, True, BatchKind.NEW),
        ({}, True, BatchKind.NEW),
        ({("t", 0): 7, ("t", 1): 2}, True, BatchKind.REPLAY),
        ({("t", 0): 9, ("t", 1): 5}, False, BatchKind.REPLAY),
    ],
)
def test_where_a_batch_stands(
    ledger: dict[tuple[str, int], int], after_guard: bool, kind: BatchKind
) -> None:
    assert compare(RANGES, ledger, after_guard=after_guard) is kind


@pytest.mark.parametrize(
    ("ledger", "after_guard"),
    [
        ({("t", 0): 3, ("t", 1): 2}, True),
        ({("t", 0): 5, ("t", 1): 2}, True),
        ({("t", 0): 7, ("t", 1): 1}, True),
        ({("t", 0): 4, ("t", 1): 2}, False),
        ({}, False),
    ],
    ids=["gap", "overlap", "one partition replays, one has a gap", "known id", "known id, empty"],
)
def test_a_batch_that_is_neither_is_refused(
    ledger: dict[tuple[str, int], int], after_guard: bool
) -> None:
    with pytest.raises(LedgerMismatch):
        compare(RANGES, ledger, after_guard=after_guard)
