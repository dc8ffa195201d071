"""The driver's cache of its own writes either equals what is stored, or has no entry."""

from decimal import Decimal

from sinks.cells.merge import Cell, CellId, Cells, WindowId
from sinks.cells.recent import RecentCells, StoredWindow
from sinks.keys import key_hash
from sinks.values import Aggregate
from tests.harness.seed import seeded

W = WindowId("m", 60, 0)


def cell_id(key: str, start_s: int = 0) -> CellId:
    return CellId("m", 60, start_s, key_hash((key,)))


def cell(key: str, count: int, hll: bytes | None = None) -> Cell:
    return Cell((key,), Aggregate(count, Decimal(count), hll=hll))


def known(recent: RecentCells, seq: int = 1) -> None:
    """Fill the cache: the window has two keys, cell `a` was read, and cell `b` was requested but
    does not exist."""
    recent.begin(seq)
    recent.learn_windows([W], {W: StoredWindow(7, 2)})
    recent.learn_cells([cell_id("a"), cell_id("b")], {cell_id("a"): cell("a", 1)})
    recent.commit(seq, {cell_id("a"): cell("a", 5)}, {W: 2})


def test_what_was_asked_is_not_asked_again_and_what_was_written_counts() -> None:
    recent = RecentCells()
    known(recent)
    recent.begin(1)
    assert recent.unknown([W]) == []
    touched = [cell_id(key) for key in "abc"]
    assert recent.missing(touched) == [cell_id("c")]
    recent.learn_cells([cell_id("c")], {})
    assert recent.stored(touched) == {cell_id("a"): cell("a", 5)}
    assert recent.key_counts([W]) == {W: 2}


def test_of_a_window_that_was_not_there_everything_is_known() -> None:
    recent = RecentCells()
    recent.begin(1)
    assert recent.unknown([W]) == [W]
    recent.learn_windows([W], {})
    assert recent.missing([cell_id("a")]) == []
    recent.commit(1, {cell_id("a"): cell("a", 1)}, {W: 1})
    assert recent.missing([cell_id("a"), cell_id("b")]) == []
    assert recent.key_counts([W]) == {W: 1}


def test_a_window_keeps_its_number() -> None:
    recent = RecentCells()
    known(recent)
    other = WindowId("m", 60, 60)
    recent.learn_windows([other], {})
    assert recent.numbers([W, other]) == {W: 7}
    recent.learn_numbers({other: 8})
    assert recent.numbers([W, other]) == {W: 7, other: 8}


def test_a_truth_of_another_seq_is_not_the_one_we_know() -> None:
    for seq in (0, 2):
        recent = RecentCells()
        known(recent)
        recent.begin(seq)
        assert recent.unknown([W]) == [W]
        assert recent.weight == 0


def test_what_others_changed_is_forgotten() -> None:
    recent = RecentCells()
    known(recent)
    recent.forget([W, WindowId("m", 60, 60)])
    assert recent.unknown([W]) == [W]
    known(recent)
    recent.forget_all()
    assert recent.unknown([W]) == [W]


def test_room_is_bounded_and_the_oldest_window_goes_first() -> None:
    recent = RecentCells(cells_max=10)
    for seq in range(8):
        recent.begin(seq - 1)
        window = WindowId("m", 60, 60 * seq)
        recent.learn_windows([window], {})
        cells = {cell_id(key, 60 * seq): cell(key, 1) for key in "abc"}
        recent.commit(seq, cells, {window: 3})
        assert recent.weight <= 10
    assert recent.unknown([WindowId("m", 60, 60 * n) for n in range(8)]) == [
        WindowId("m", 60, 60 * n) for n in range(6)
    ]
    heavy = {cell_id("a", 420): cell("a", 1, hll=bytes(512 * 20))}
    recent.begin(7)
    recent.commit(8, heavy, {WindowId("m", 60, 420): 3})
    assert recent.weight == 0


def test_any_run_of_merges_reads_as_if_nothing_were_remembered() -> None:
    rng = seeded("recent cells")
    recent = RecentCells(cells_max=60)
    store: Cells = {}
    counts: dict[WindowId, int] = {}
    for seq in range(1, 400):
        recent.begin(seq - 1)
        touched = sorted({cell_id(rng.choice("abcdefgh"), 60 * rng.randrange(12)) for _ in "12345"})
        windows = list(dict.fromkeys(one.window for one in touched))
        unknown = recent.unknown(windows)
        recent.learn_windows(
            unknown, {w: StoredWindow(1, counts[w]) for w in unknown if w in counts}
        )
        missing = recent.missing(touched)
        recent.learn_cells(missing, {one: store[one] for one in missing if one in store})
        assert recent.stored(touched) == {one: store[one] for one in touched if one in store}
        assert recent.key_counts(windows) == {w: counts.get(w, 0) for w in windows}
        match rng.randrange(10):
            case 0:
                recent.forget_all()
                continue
            case 1:
                recent.forget(windows[:1])
        written = {one: cell("x", seq) for one in touched}
        for one in set(written) - set(store):
            counts[one.window] = counts.get(one.window, 0) + 1
        store |= written
        recent.commit(seq, written, {w: counts[w] for w in windows})
        assert recent.weight <= 60
