"""Converts cells to rows of the table `window_cells`, and back.

This module is pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sinks.cells.blocks import ADDITIVE, columns_beside, decimal_literal, identity, literal
from sinks.cells.merge import Cell, CellId, WindowId
from sinks.keys import HASH_MARK, OTHER_TEXT, Key, key_hash, key_id, other_key, text_of_id
from sinks.rows import MetricDefinition
from sinks.values import Aggregate, quantiles_of, value_of

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
CELL_COLUMNS = "k_id, k1, k2, k3, `count`, `sum`, `min`, `max`, hll, kll"
UPSERT_HEAD = (
    "INSERT INTO window_cells (window_number, seq, k_id, k1, k2, k3, `count`, `sum`, `min`, `max`, "
    "value, quantiles, hll, kll) VALUES "
)
UPSERT_TAIL = (
    " ON DUPLICATE KEY UPDATE "
    "`count`=VALUES(`count`), `sum`=VALUES(`sum`), `min`=VALUES(`min`), `max`=VALUES(`max`), "
    "value=VALUES(value), quantiles=VALUES(quantiles), hll=VALUES(hll), kll=VALUES(kll), "
    "seq=VALUES(seq)"
)

Definitions = Mapping[str, MetricDefinition]


def to_datetime(start_s: int) -> datetime:
    """Return a window's start as a DATETIME of MySQL, which is UTC without a zone."""
    return EPOCH_START + timedelta(seconds=start_s)


def to_seconds(start_at: datetime) -> int:
    """Return the epoch seconds of a DATETIME of MySQL."""
    return int((start_at - EPOCH_START).total_seconds())


def upserts(
    cells: Mapping[CellId, Cell],
    seq: int,
    definitions: Definitions,
    octets_max: int,
    *,
    numbers: Mapping[WindowId, int],
) -> Iterator[str]:
    """Yield statements of about `octets_max` octets that write complete cells, sorted as the table.

    `numbers` are the ids of the windows. The statements are built as text, because escaping each
    value in PyMySQL takes longer than the rest of a merge.
    """
    rows: list[str] = []
    octets = 0
    placed = sorted(
        ((numbers[cell_id.window], key_id(cell.key), cell_id) for cell_id, cell in cells.items()),
        key=lambda place: place[:2],
    )
    for number, k_id, cell_id in placed:
        told = _values(k_id, cells[cell_id], definitions[cell_id.metric])
        row = f"({number},{seq},{identity(k_id)},{told})"
        if rows and octets + len(row) > octets_max:
            yield UPSERT_HEAD + ",".join(rows) + UPSERT_TAIL
            rows, octets = [], 0
        rows.append(row)
        octets += len(row) if row.isascii() else len(row.encode())
    if rows:
        yield UPSERT_HEAD + ",".join(rows) + UPSERT_TAIL


def _values(k_id: bytes, cell: Cell, definition: MetricDefinition) -> str:
    aggregate = cell.aggregate
    k1, k2, k3 = columns_beside(k_id, cell.key)
    shown = "NULL"
    if definition.measure not in ADDITIVE:
        value = value_of(definition.measure, aggregate)
        shown = str(value) if isinstance(value, int) else decimal_literal(value)
    quantiles = quantiles_of(aggregate)
    told = "NULL" if quantiles is None else f"'{_json_numbers(quantiles)}'"
    return (
        f"{literal(k1)},{literal(k2)},{literal(k3)},{aggregate.count},"
        f"{decimal_literal(aggregate.sum)},{decimal_literal(aggregate.min)},"
        f"{decimal_literal(aggregate.max)},{shown},{told},"
        f"{_octets(aggregate.hll)},{_octets(aggregate.kll)}"
    )


def _octets(sketch: bytes | None) -> str:
    return f"0x{sketch.hex()}" if sketch else "NULL"


def cell_of(window: WindowId, row: Sequence[Any], definitions: Definitions) -> tuple[CellId, Cell]:
    """Return the cell in a row that has the columns CELL_COLUMNS."""
    k_id, k1, k2, k3, count, total, least, most, hll, kll = row
    columns = len(definitions[window.metric].key_columns)
    k_hash, key = key_of_row((bytes(k_id), k1, k2, k3), columns)
    return CellId(*window, k_hash), Cell(key, Aggregate(int(count), total, least, most, hll, kll))


def key_of_row(
    row: tuple[bytes, str | None, str | None, str | None], columns: int
) -> tuple[bytes, Key]:
    """Return a key's hash, and the key; a long key has the shortened texts of its columns."""
    k_id, *shown = row
    text = text_of_id(k_id)
    if text is not None:
        return key_hash((text,)), (text,)
    k_hash = k_id.removeprefix(HASH_MARK)
    # The overflow key is recognised by its hash.
    if columns and shown[0] == OTHER_TEXT and key_hash(other_key(columns)) == k_hash:
        return k_hash, other_key(columns)
    return k_hash, tuple(shown[:columns])


def _json_numbers(values: Mapping[str, Decimal]) -> str:
    return json.dumps({name: float(value) for name, value in values.items()})
