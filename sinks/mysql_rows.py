"""Cells as rows of the table `windows`, and back. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sinks.blocks import decimal_literal, literal, opening
from sinks.keys import OTHER_TEXT, Key, key_hash, other_key, shown_columns
from sinks.merge import Cell, CellId
from sinks.rows import MetricDefinition
from sinks.values import Aggregate, quantiles_of, value_of

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
CELL_COLUMNS = (
    "metric, size_s, start_at, k_hash, k1, k2, k3, `count`, `sum`, `min`, `max`, hll, kll"
)
UPSERT_HEAD = (
    "INSERT INTO windows (metric, size_s, start_at, k_hash, k1, k2, k3, `count`, `sum`, `min`, "
    "`max`, value, quantiles, hll, kll, seq) VALUES "
)
UPSERT_TAIL = (
    " ON DUPLICATE KEY UPDATE "
    "`count`=VALUES(`count`), `sum`=VALUES(`sum`), `min`=VALUES(`min`), `max`=VALUES(`max`), "
    "value=VALUES(value), quantiles=VALUES(quantiles), hll=VALUES(hll), kll=VALUES(kll), "
    "seq=VALUES(seq)"
)

Definitions = Mapping[str, MetricDefinition]


def to_datetime(start_s: int) -> datetime:
    """A window's start as DATETIME holds it: UTC without a zone."""
    return EPOCH_START + timedelta(seconds=start_s)


def to_seconds(start_at: datetime) -> int:
    """The inverse of `to_datetime`."""
    return int((start_at - EPOCH_START).total_seconds())


def upserts(
    cells: Mapping[CellId, Cell], seq: int, definitions: Definitions, octets_max: int
) -> Iterator[str]:
    """The statements of about `octets_max` that write absolute cells.

    They are made here as text, because a driver that escapes value by value takes longer over that
    than everything else of a merge takes.
    """
    rows: list[str] = []
    octets = 0
    last, begin = None, ""
    for cell_id, cell in cells.items():
        window = cell_id.window
        if window != last:
            last, begin = window, opening(window)
        row = f"{begin}{cell_id.k_hash.hex()},{_values(cell, definitions[cell_id.metric])},{seq})"
        if rows and octets + len(row) > octets_max:
            yield UPSERT_HEAD + ",".join(rows) + UPSERT_TAIL
            rows, octets = [], 0
        rows.append(row)
        octets += len(row) if row.isascii() else len(row.encode())
    if rows:
        yield UPSERT_HEAD + ",".join(rows) + UPSERT_TAIL


def _values(cell: Cell, definition: MetricDefinition) -> str:
    aggregate = cell.aggregate
    k1, k2, k3 = shown_columns(cell.key)
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


def cell_of(row: Sequence[Any], definitions: Definitions) -> tuple[CellId, Cell]:
    """The inverse, from a row of CELL_COLUMNS."""
    metric, size_s, start_at, k_hash, k1, k2, k3, count, total, least, most, hll, kll = row
    cell_id = CellId(str(metric), int(size_s), to_seconds(start_at), bytes(k_hash))
    columns = len(definitions[cell_id.metric].key_columns)
    aggregate = Aggregate(int(count), total, least, most, hll, kll)
    return cell_id, Cell(key_of_columns((k1, k2, k3), columns, cell_id.k_hash), aggregate)


def key_of_columns(
    columns: tuple[str | None, str | None, str | None], count: int, k_hash: bytes
) -> Key:
    """A key as far as its readable columns tell; the overflow key is known by its hash."""
    if count == 0:
        return ()
    if columns[0] == OTHER_TEXT and key_hash(other_key(count)) == k_hash:
        return other_key(count)
    return columns[:count]


def _json_numbers(values: Mapping[str, Decimal]) -> str:
    return json.dumps({name: float(value) for name, value in values.items()})
