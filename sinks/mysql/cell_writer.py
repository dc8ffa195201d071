"""Writes the cells of one batch, inside the transaction of the merge.

Cells arrive as encoded blocks or as rows. MySQL itself adds the cells of a block to the stored
cells (`bulk`). For rows, this module reads the stored cells, merges the rows into them, and writes
the complete values (`merge`). If the live view shows the cells of a block, they are read back
afterwards, because the view needs the complete values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any

import pymysql

from sinks.cells.blocks import tail
from sinks.cells.bulk import (
    BulkPlan,
    Definitions,
    gather_blocks,
    kept_blocks,
    may_fall,
    plan_blocks,
    statements,
)
from sinks.cells.merge import (
    Cell,
    CellId,
    Cells,
    GatheredCells,
    WindowId,
    fallen_windows,
    fold_to_windows,
    merge_with_stored,
    overflow_candidates,
)
from sinks.cells.recent import RecentCells, StoredWindow
from sinks.errors import SinkUnavailable
from sinks.keys import HASH_MARK, key_id, other_key
from sinks.mysql import link
from sinks.mysql.rows import CELL_COLUMNS, cell_of, to_datetime, to_seconds, upserts
from sinks.mysql.views import SEQ_MODULUS
from sinks.redis.view import is_shown
from sinks.rows import Batch, CellBlock, MetricDefinition

# The target size of a statement. At this size the cost per statement is negligible.
STATEMENT_OCTETS = 2 * 1024 * 1024
WINDOWS_PER_QUERY = 1_000
# The server's error codes when AUTO_INCREMENT has reached the end of its column.
NUMBERS_USED_UP = frozenset({167, 1264, 1467})
MORE_NUMBERS = (
    "4,294,967,295 windows have been created, and no number is left for another one: stop the "
    "stream, then `ALTER TABLE window_cells MODIFY window_number BIGINT UNSIGNED NOT NULL` and"
    " `ALTER TABLE window_keys MODIFY window_number BIGINT UNSIGNED NOT NULL AUTO_INCREMENT`"
)
_PLACE = "metric, size_s, start_at"


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing a batch's cells.

    `cells` are the cells written by rows, and the cells read back for the live view. `by_rows` are
    only the cells written by rows, and `key_counts` are the key counts of their windows. `bulk` are
    the windows that the server changed by adding blocks. In the windows of `fallen`, a value in a
    ranking can have fallen. `changed` is the number of all changed cells. `left_out` is the number
    of cells that were not written, because their windows were older than their `keep`.
    """

    cells: Cells
    by_rows: Cells
    key_counts: Mapping[WindowId, int]
    bulk: frozenset[WindowId]
    fallen: frozenset[WindowId]
    changed: int
    left_out: int


class CellWriter:
    """Writes one batch through one cursor under one `seq`."""

    def __init__(
        self, cursor: Any, definitions: Definitions, recent: RecentCells, seq: int
    ) -> None:
        self._cursor = cursor
        self._definitions = definitions
        self._recent = recent
        self._seq = seq
        self._numbers: dict[WindowId, int] = {}

    def write(self, batch: Batch, packet_octets: int) -> Written:
        """Write a batch's cells. `packet_octets` is the server's limit for a statement."""
        now_s = batch.now_ms // 1000
        left_out: set[CellId] = set()
        gathered = fold_to_windows(batch.rows, self._definitions, now_s, left_out=left_out)
        kept = kept_blocks(batch.blocks, self._definitions, now_s)
        plan = self._plan(kept, gathered)
        # Use a quarter of the limit, because a statement of blocks can become twice as long
        # (`bulk.statements`).
        octets_max = min(STATEMENT_OCTETS, packet_octets // 4)
        bulk = plan.windows
        if bulk:
            self._recent.forget(bulk)
            self._add_blocks(plan, octets_max)
        gather_blocks(gathered, plan.by_rows, self._definitions)
        cells, stored, key_counts = self._write_rows(gathered, octets_max)
        shown = {w for w in bulk if is_shown(w, self._definitions, now_s)}
        fallen = fallen_windows(cells, stored, self._definitions)
        return Written(
            cells={**self._read_back(shown), **cells},
            by_rows=cells,
            key_counts=key_counts,
            bulk=bulk,
            fallen=fallen | may_fall(plan, self._definitions),
            changed=len(cells) + sum(block.keys for block in (*plan.fresh, *plan.added)),
            left_out=len(left_out)
            + sum(block.keys for block in batch.blocks)
            - sum(block.keys for blocks in kept.values() for block in blocks),
        )

    def _plan(
        self, kept: Mapping[WindowId, Sequence[CellBlock]], gathered: GatheredCells
    ) -> BulkPlan:
        if not kept:
            return BulkPlan()
        found = self._read_windows(kept)
        self._numbers |= {window: row.number for window, row in found.items()}
        counts = {window: row.n_keys for window, row in found.items()}
        return plan_blocks(kept, self._definitions, counts, gathered)

    def _add_blocks(self, plan: BulkPlan, octets_max: int) -> None:
        self._numbers |= self._make(w for w in plan.windows if w not in self._numbers)
        for definition, blocks in self._by_metric(plan.fresh):
            inserted = self._insert(definition, blocks, b"", octets_max)
            said = sum(block.keys for block in blocks)
            if inserted != said:
                raise ValueError(
                    f"blocks of {definition.name} have {inserted} cells, their headers say {said}"
                )
        for definition, blocks in self._by_metric(plan.added):
            self._insert(definition, blocks, tail(definition), octets_max)
        self._write_key_counts({**plan.new_keys, **self._count_keys(plan.recounted)}, self._numbers)

    def _insert(
        self,
        definition: MetricDefinition,
        blocks: Iterable[CellBlock],
        end: bytes,
        octets_max: int,
    ) -> int:
        seq = self._seq % SEQ_MODULUS
        return sum(
            self._cursor.execute(statement)
            for statement in statements(
                blocks, definition, end, octets_max, numbers=self._numbers, seq=seq
            )
        )

    def _by_metric(
        self, blocks: Iterable[CellBlock]
    ) -> Iterator[tuple[MetricDefinition, Sequence[CellBlock]]]:
        for name, some in groupby(blocks, key=lambda block: block.metric):
            yield self._definitions[name], list(some)

    def _count_keys(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        overflow = key_id(other_key(1))
        counts: dict[WindowId, int] = {}
        for some in _in_parts(self._by_number(windows)):
            self._cursor.execute(
                "SELECT window_number, COUNT(*) FROM window_cells WHERE window_number IN %s "
                "AND k_id <> %s GROUP BY window_number",
                (list(some), overflow),
            )
            counts |= {some[number]: int(count) for number, count in self._cursor.fetchall()}
        return counts

    def _by_number(self, windows: Iterable[WindowId]) -> dict[int, WindowId]:
        return {self._numbers[window]: window for window in sorted(windows)}

    def _make(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        """Insert rows for new windows, with no keys yet; return the ids of the windows."""
        new = sorted(windows)
        if not new:
            return {}
        # Use a plain INSERT, because an upsert would use up an id for each window that exists
        # already.
        try:
            self._cursor.executemany(
                f"INSERT INTO window_keys ({_PLACE}, n_keys, seq) VALUES (%s,%s,%s,0,%s)",
                [(w.metric, w.size_s, to_datetime(w.start_s), self._seq) for w in new],
            )
        except pymysql.err.Error as error:
            if link.error_code(error) not in NUMBERS_USED_UP:
                raise
            # Raise the error of a server that is away, so that the batch is tried again and
            # succeeds once the user has widened the column.
            raise SinkUnavailable("mysql", MORE_NUMBERS) from error
        return {window: row.number for window, row in self._read_windows(new).items()}

    def _read_windows(self, windows: Iterable[WindowId]) -> dict[WindowId, StoredWindow]:
        found: dict[WindowId, StoredWindow] = {}
        for where, values in _selections(windows):
            self._cursor.execute(
                f"SELECT {_PLACE}, window_number, n_keys FROM window_keys WHERE {where}", values
            )
            for metric, size_s, start_at, number, n_keys in self._cursor.fetchall():
                window = WindowId(str(metric), int(size_s), to_seconds(start_at))
                found[window] = StoredWindow(int(number), int(n_keys))
        return found

    def _write_key_counts(
        self, counts: Mapping[WindowId, int], numbers: Mapping[WindowId, int]
    ) -> None:
        if counts:
            self._cursor.executemany(
                f"INSERT INTO window_keys ({_PLACE}, n_keys, seq, window_number) "
                "VALUES (%s,%s,%s,%s,%s,%s) "
                "ON DUPLICATE KEY UPDATE n_keys = VALUES(n_keys), seq = VALUES(seq)",
                [
                    (*w[:2], to_datetime(w.start_s), counts[w], self._seq, numbers[w])
                    for w in sorted(counts)
                ],
            )

    def _read_back(self, windows: Iterable[WindowId]) -> Cells:
        cells: Cells = {}
        for some in _in_parts(self._by_number(windows)):
            self._cursor.execute(
                f"SELECT window_number, {CELL_COLUMNS} FROM window_cells "
                "WHERE window_number IN %s AND seq = %s",
                (list(some), self._seq % SEQ_MODULUS),
            )
            cells.update(self._cells_of(self._cursor.fetchall(), some))
        return cells

    def _cells_of(
        self, rows: Iterable[Sequence[Any]], windows: Mapping[int, WindowId]
    ) -> Iterator[tuple[CellId, Cell]]:
        for number, *columns in rows:
            yield cell_of(windows[number], columns, self._definitions)

    def _write_rows(
        self, gathered: GatheredCells, octets_max: int
    ) -> tuple[Cells, Cells, dict[WindowId, int]]:
        """Merge cells with the stored ones and write them.

        Returns the written cells, the cells stored before, and the key counts of their windows.
        """
        if not gathered:
            return {}, {}, {}
        touched = sorted({*gathered, *overflow_candidates(gathered, self._definitions)})
        windows = list(dict.fromkeys(cell_id.window for cell_id in touched))
        if unknown := self._recent.unknown(windows):
            self._recent.learn_windows(unknown, self._read_windows(unknown))
        if missing := self._recent.missing(touched):
            self._recent.learn_cells(missing, self._read_cells(missing, gathered))
        there = self._recent.numbers(windows)
        self._recent.learn_numbers(self._make(w for w in windows if w not in there))
        numbers = self._recent.numbers(windows)
        stored = self._recent.stored(touched)
        counts = self._recent.key_counts(windows)
        cells, new_counts = merge_with_stored(gathered, stored, counts, self._definitions)
        seq = self._seq % SEQ_MODULUS
        for statement in upserts(cells, seq, self._definitions, octets_max, numbers=numbers):
            self._cursor.execute(statement)
        counts |= new_counts
        self._write_key_counts(counts, numbers)
        return cells, stored, counts

    def _read_cells(self, cells: Sequence[CellId], gathered: GatheredCells) -> dict[CellId, Cell]:
        numbers = self._recent.numbers(cell_id.window for cell_id in cells)
        # Use DELETE, because TRUNCATE would commit the transaction, even for a temporary table.
        self._cursor.execute("DELETE FROM touched")
        self._cursor.executemany(
            "INSERT INTO touched (window_number, k_id) VALUES (%s,%s)",
            [
                # A cell that is read but not in `gathered` is an overflow cell. Its identity is its
                # hash.
                (
                    numbers[cell_id.window],
                    key_id(gathered[cell_id].key)
                    if cell_id in gathered
                    else HASH_MARK + cell_id.k_hash,
                )
                for cell_id in cells
            ],
        )
        self._cursor.execute(
            f"SELECT window_number, {CELL_COLUMNS} FROM touched STRAIGHT_JOIN window_cells "
            "USING (window_number, k_id)"
        )
        windows = {number: window for window, number in numbers.items()}
        return dict(self._cells_of(self._cursor.fetchall(), windows))


def _in_parts(windows: Mapping[int, WindowId]) -> Iterator[dict[int, WindowId]]:
    """Yield windows by id, in parts that are small enough for one query."""
    left = iter(windows.items())
    while some := dict(islice(left, WINDOWS_PER_QUERY)):
        yield some


def _selections(windows: Iterable[WindowId]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield SQL conditions that select windows by primary key, in parts, with their arguments."""
    for (metric, size_s), some in groupby(sorted(windows), key=lambda window: window[:2]):
        starts: list[datetime] = [to_datetime(window.start_s) for window in some]
        for begin in range(0, len(starts), WINDOWS_PER_QUERY):
            part = starts[begin : begin + WINDOWS_PER_QUERY]
            marks = ",".join(["%s"] * len(part))
            where = f"metric = %s AND size_s = %s AND start_at IN ({marks})"
            yield where, (metric, size_s, *part)
