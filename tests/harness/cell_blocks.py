"""Blocks of cells for the sinks, encoded as `java/Blocks` encodes the cells of lines."""

from collections.abc import Iterable

from sinks.cells.blocks import OPENING, columns_beside, decimal_literal, identity, literal
from sinks.keys import Key, key_id
from sinks.rows import CellBlock, MetricDefinition
from sinks.values import Aggregate, Measure


def encode(
    definition: MetricDefinition,
    size_s: int,
    start_s: int,
    cells: Iterable[tuple[Key, Aggregate]],
) -> CellBlock:
    """Return the block with these cells of one window. Each key must occur only once."""
    tuples = [
        f"{OPENING.decode()}{identity(key_id(key))},{_columns(definition, key)},"
        f"{_numbers(definition.measure, one)})"
        for key, one in cells
    ]
    return CellBlock(definition.name, size_s, start_s, len(tuples), ",".join(tuples).encode())


def _columns(definition: MetricDefinition, key: Key) -> str:
    columns = columns_beside(key_id(key), key)[: max(1, len(definition.key_columns))]
    return ",".join(literal(part) for part in columns)


def _numbers(measure: str, one: Aggregate) -> str:
    if measure == Measure.COUNT:
        return str(one.count)
    return ",".join([str(one.count), *map(decimal_literal, (one.sum, one.min, one.max))])
