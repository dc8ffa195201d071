"""Cells as rows of the table `windows`, and back. Pure."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sinks.keys import OTHER_TEXT, Key, key_hash, other_key, shown_columns
from sinks.merge import Cell, CellId
from sinks.rows import MetricDefinition
from sinks.values import Aggregate, quantiles_of, value_of

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
CELL_COLUMNS = (
    "metric, size_s, start_at, k_hash, k1, k2, k3, `count`, `sum`, `min`, `max`, hll, kll"
)
UPSERT = (
    "INSERT INTO windows (metric, size_s, start_at, k_hash, k1, k2, k3, `count`, `sum`, `min`, "
    "`max`, value, quantiles, hll, kll, seq) VALUES "
    "(%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE "
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


def row_of(
    cell_id: CellId, cell: Cell, seq: int, definition: MetricDefinition
) -> tuple[object, ...]:
    """A cell as UPSERT takes it."""
    aggregate = cell.aggregate
    quantiles = quantiles_of(aggregate)
    return (
        cell_id.metric,
        cell_id.size_s,
        to_datetime(cell_id.start_s),
        cell_id.k_hash,
        *shown_columns(cell.key),
        aggregate.count,
        aggregate.sum,
        aggregate.min,
        aggregate.max,
        value_of(definition.measure, aggregate),
        None if quantiles is None else _json_numbers(quantiles),
        aggregate.hll,
        aggregate.kll,
        seq,
    )


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
