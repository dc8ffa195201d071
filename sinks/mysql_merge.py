"""The cells of one batch, written inside the merge's transaction.

Blocks are added by the server (`bulk`), rows are read, merged and written absolute (`merge`). What
the live view must show of the blocks is read back, so it gets absolute cells of both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sinks.blocks import QUOTIENT_SQL, QUOTIENTS, tail
from sinks.bulk import (
    BulkPlan,
    Definitions,
    gather_blocks,
    kept_blocks,
    may_fall,
    plan_blocks,
    statements,
)
from sinks.keys import key_hash, other_key
from sinks.merge import (
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
from sinks.mysql_rows import CELL_COLUMNS, cell_of, to_datetime, to_seconds, upserts
from sinks.recent import RecentCells
from sinks.rows import Batch, CellBlock, MetricDefinition
from sinks.view import is_shown

# A statement of this size costs the server next to nothing beside its rows.
STATEMENT_OCTETS = 2 * 1024 * 1024
WINDOWS_PER_QUERY = 1_000


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch changed: cells of rows and those that are shown, and what else is told of it.

    `by_rows` and `key_counts` are what the driver knows of the windows it wrote itself; `bulk` are
    the windows that the server changed.
    """

    cells: Cells
    by_rows: Cells
    key_counts: Mapping[WindowId, int]
    bulk: frozenset[WindowId]
    fallen: frozenset[WindowId]


class CellWriter:
    """Writes one batch through one cursor under one `seq`."""

    def __init__(
        self, cursor: Any, definitions: Definitions, recent: RecentCells, seq: int
    ) -> None:
        self._cursor = cursor
        self._definitions = definitions
        self._recent = recent
        self._seq = seq

    def write(self, batch: Batch, packet_octets: int) -> Written:
        """Write a batch's cells; `packet_octets` is the largest statement the server takes."""
        now_s = batch.now_ms // 1000
        gathered = fold_to_windows(batch.rows, self._definitions, now_s)
        plan = self._plan(batch, gathered, now_s)
        octets_max = min(STATEMENT_OCTETS, packet_octets // 2)
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
        )

    def _plan(self, batch: Batch, gathered: GatheredCells, now_s: int) -> BulkPlan:
        kept = kept_blocks(batch.blocks, self._definitions, now_s)
        if not kept:
            return BulkPlan()
        return plan_blocks(kept, self._definitions, self._read_key_counts(kept), gathered)

    def _add_blocks(self, plan: BulkPlan, octets_max: int) -> None:
        self._cursor.execute("SET @seq = %s", (self._seq,))
        for definition, blocks in self._by_metric(plan.fresh):
            inserted = sum(
                self._cursor.execute(statement)
                for statement in statements(blocks, definition, b"", octets_max)
            )
            said = sum(block.keys for block in blocks)
            if inserted != said:
                raise ValueError(f"blocks of {definition.name} held {inserted} cells, said {said}")
        for definition, blocks in self._by_metric(plan.added):
            for statement in statements(blocks, definition, tail(definition), octets_max):
                self._cursor.execute(statement)
        self._divide(plan.windows)
        self._write_key_counts({**plan.new_keys, **self._count_keys(plan.recounted)})

    def _by_metric(
        self, blocks: Iterable[CellBlock]
    ) -> Iterator[tuple[MetricDefinition, Sequence[CellBlock]]]:
        for name, some in groupby(blocks, key=lambda block: block.metric):
            yield self._definitions[name], list(some)

    def _divide(self, windows: Iterable[WindowId]) -> None:
        """Give the cells that were inserted without a quotient theirs."""
        quotients = [w for w in windows if self._definitions[w.metric].measure in QUOTIENTS]
        for where, values in _selections(quotients):
            self._cursor.execute(
                f"UPDATE windows SET value = {QUOTIENT_SQL} WHERE {where} AND seq = %s "
                "AND value IS NULL",
                (*values, self._seq),
            )

    def _count_keys(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        counts: dict[WindowId, int] = {}
        for where, values in _selections(windows):
            self._cursor.execute(
                f"SELECT metric, size_s, start_at, COUNT(*) FROM windows WHERE {where} "
                "AND k_hash <> %s GROUP BY metric, size_s, start_at",
                (*values, key_hash(other_key(1))),
            )
            counts |= _counts(self._cursor.fetchall())
        return counts

    def _read_key_counts(self, windows: Iterable[WindowId]) -> dict[WindowId, int]:
        counts: dict[WindowId, int] = {}
        for where, values in _selections(windows):
            self._cursor.execute(
                f"SELECT metric, size_s, start_at, n_keys FROM window_keys WHERE {where}", values
            )
            counts |= _counts(self._cursor.fetchall())
        return counts

    def _write_key_counts(self, counts: Mapping[WindowId, int]) -> None:
        if counts:
            self._cursor.executemany(
                "INSERT INTO window_keys (metric, size_s, start_at, n_keys, seq) "
                "VALUES (%s,%s,%s,%s,%s) "
                "ON DUPLICATE KEY UPDATE n_keys = VALUES(n_keys), seq = VALUES(seq)",
                [
                    (w.metric, w.size_s, to_datetime(w.start_s), counts[w], self._seq)
                    for w in sorted(counts)
                ],
            )

    def _read_back(self, windows: Iterable[WindowId]) -> Cells:
        cells: Cells = {}
        for where, values in _selections(windows):
            self._cursor.execute(
                f"SELECT {CELL_COLUMNS} FROM windows WHERE {where} AND seq = %s",
                (*values, self._seq),
            )
            cells.update(cell_of(row, self._definitions) for row in self._cursor.fetchall())
        return cells

    def _write_rows(
        self, gathered: GatheredCells, octets_max: int
    ) -> tuple[Cells, Cells, dict[WindowId, int]]:
        """Merge with what is stored; returns what was written, what was there, the key counts."""
        if not gathered:
            return {}, {}, {}
        touched = sorted({*gathered, *overflow_candidates(gathered, self._definitions)})
        windows = list(dict.fromkeys(cell_id.window for cell_id in touched))
        if unknown := self._recent.unknown(windows):
            self._recent.learn_counts(unknown, self._read_key_counts(unknown))
        if missing := self._recent.missing(touched):
            self._recent.learn_cells(missing, self._read_cells(missing))
        stored = self._recent.stored(touched)
        counts = self._recent.key_counts(windows)
        cells, new_counts = merge_with_stored(gathered, stored, counts, self._definitions)
        for statement in upserts(cells, self._seq, self._definitions, octets_max):
            self._cursor.execute(statement)
        counts |= new_counts
        self._write_key_counts(counts)
        return cells, stored, counts

    def _read_cells(self, cells: Sequence[CellId]) -> dict[CellId, Cell]:
        # DELETE, for TRUNCATE would commit the transaction, of a temporary table too.
        self._cursor.execute("DELETE FROM touched")
        self._cursor.executemany(
            "INSERT INTO touched (metric, size_s, start_at, k_hash) VALUES (%s,%s,%s,%s)",
            [(c.metric, c.size_s, to_datetime(c.start_s), c.k_hash) for c in cells],
        )
        self._cursor.execute(
            f"SELECT {CELL_COLUMNS} FROM touched STRAIGHT_JOIN windows "
            "USING (metric, size_s, start_at, k_hash)"
        )
        return dict(cell_of(row, self._definitions) for row in self._cursor.fetchall())


def _selections(windows: Iterable[WindowId]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Conditions that choose windows by the primary key, some at a time, and their values."""
    for (metric, size_s), some in groupby(sorted(windows), key=lambda window: window[:2]):
        starts: list[datetime] = [to_datetime(window.start_s) for window in some]
        for begin in range(0, len(starts), WINDOWS_PER_QUERY):
            part = starts[begin : begin + WINDOWS_PER_QUERY]
            marks = ",".join(["%s"] * len(part))
            where = f"metric = %s AND size_s = %s AND start_at IN ({marks})"
            yield where, (metric, size_s, *part)


def _counts(rows: Iterable[Sequence[Any]]) -> dict[WindowId, int]:
    return {
        WindowId(str(metric), int(size_s), to_seconds(start_at)): int(count)
        for metric, size_s, start_at, count in rows
    }
