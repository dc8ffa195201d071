"""Which blocks MySQL may add without reading them first, and the SQL statements for them."""

from dataclasses import replace

from sinks.cells.blocks import tail
from sinks.cells.bulk import (
    gather_blocks,
    kept_blocks,
    may_fall,
    plan_blocks,
    statements,
    window_of,
)
from sinks.cells.merge import CellId, GatheredCells, WindowId
from sinks.keys import key_hash
from sinks.rows import CellBlock, MetricDefinition
from sinks.values import Aggregate
from tests.harness import worked
from tests.harness.cell_blocks import encode

LIMITED = replace(worked.DEFINITIONS[0], name="m", key_columns=("k",), max_keys=5)
SINGLE = replace(LIMITED, name="s", key_columns=(), max_keys=1)
DEFINITIONS = {"m": LIMITED, "s": SINGLE}


def block(start_s: int, keys: str, of: MetricDefinition = LIMITED) -> CellBlock:
    return encode(of, 60, start_s, [((key,), Aggregate(1)) for key in keys])


def ways(
    *blocks: CellBlock, known: dict[int, int] | None = None, rows: str = ""
) -> tuple[list[int], list[int], list[int]]:
    """Return the start times of the blocks that are inserted, that are added to existing windows,
    and that are written row by row."""
    kept = kept_blocks(blocks, DEFINITIONS, 0)
    counts = {WindowId("m", 60, start_s): keys for start_s, keys in (known or {}).items()}
    beside = [CellId("m", 60, 0, key_hash((key,))) for key in rows]
    plan = plan_blocks(kept, DEFINITIONS, counts, beside)
    return tuple([b.start_s for b in part] for part in (plan.fresh, plan.added, plan.by_rows))  # type: ignore[return-value]  # three parts


def test_a_window_that_is_not_there_is_inserted_and_another_added_to() -> None:
    assert ways(block(60, "ab"), block(0, "ab"), known={60: 1}) == ([0], [60], [])


def test_the_second_block_of_a_window_is_added_to_the_first() -> None:
    assert ways(block(0, "ab"), block(0, "bc")) == ([0], [0], [])


def test_a_window_that_may_come_to_its_limit_goes_by_rows() -> None:
    assert ways(block(0, "abcde")) == ([0], [], [])
    assert ways(block(0, "abcdef")) == ([], [], [0])
    assert ways(block(0, "abc"), known={0: 2}) == ([], [0], [])
    assert ways(block(0, "abc"), known={0: 3}) == ([], [], [0])
    assert ways(block(0, "abc"), block(0, "def")) == ([], [], [0, 0])
    # Rows of the same batch count as well. Otherwise the order of key hashes would decide which
    # keys fit.
    assert ways(block(0, "abc"), rows="xy") == ([0], [], [])
    assert ways(block(0, "abc"), rows="xyz") == ([], [], [0])


def test_a_metric_without_a_key_has_no_limit() -> None:
    one = encode(SINGLE, 60, 0, [((), Aggregate(1))])
    kept = kept_blocks([one, one], DEFINITIONS, 0)
    plan = plan_blocks(kept, DEFINITIONS, {window_of(one): 1}, [])
    assert (len(plan.added), plan.by_rows) == (2, [])


def test_windows_past_their_keep_are_dropped() -> None:
    short = {"m": replace(LIMITED, keep_mysql_s={10: 100, 60: 100})}
    assert list(kept_blocks([block(0, "a"), block(60, "a")], short, 160)) == [("m", 60, 60)]


def test_text_that_the_server_would_refuse_goes_by_rows() -> None:
    torn = replace(block(0, "a"), body=block(0, "a").body.replace(b"'=a'", b"'=\xff'"))
    assert ways(torn) == ([], [], [0])
    cells: GatheredCells = {}
    gather_blocks(cells, [torn, torn], DEFINITIONS)
    assert [(cell.key, len(cell.parts)) for cell in cells.values()] == [(("\ufffd",), 2)]


def test_only_values_that_may_fall_need_their_ranking_again() -> None:
    for measure, falls in (("count", False), ("max", False), ("sum", True), ("mean", True)):
        top = {"m": replace(LIMITED, measure=measure, top=3)}
        old = encode(top["m"], 60, 0, [(("a",), Aggregate(1))])
        new = encode(top["m"], 60, 60, [(("a",), Aggregate(1))])
        plan = plan_blocks(kept_blocks([old, new], top, 0), top, {window_of(old): 1}, [])
        assert may_fall(plan, top) == ({window_of(old)} if falls else set())


def test_statements_hold_about_so_many_octets_and_every_cell() -> None:
    blocks = [block(60 * n, "abcde") for n in range(40)]
    numbers = {window_of(one): number for number, one in enumerate(blocks, 1)}
    found = list(statements(blocks, LIMITED, tail(LIMITED), 2_000, numbers=numbers, seq=2**32 - 1))
    assert len(found) > 1
    assert all(len(one) < 2 * 2_000 + 400 for one in found)
    for number in numbers.values():
        assert sum(one.count(b"(%d,4294967295,'=" % number) for one in found) == 5
    assert list(statements([], LIMITED, b"", 100, numbers={}, seq=1)) == []
