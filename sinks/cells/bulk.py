"""Choose how each block of a batch is written to the database.

This module is pure. Most windows of a backlog are new, and most others are far below their limit of
keys. Such blocks are added by the server, without reading the stored cells first. A window that can
reach its limit of keys is written by rows, because it must be decided for each key whether it goes
to the overflow key.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sinks.cells.blocks import decode, head, is_clean, opened, stretches
from sinks.cells.merge import (
    CellId,
    GatheredCells,
    WindowId,
    gather,
    is_kept,
    keep_in_mysql_s,
    key_limit,
)
from sinks.keys import key_hash
from sinks.rows import CellBlock, MetricDefinition
from sinks.values import Measure

Definitions = Mapping[str, MetricDefinition]

# Measures whose value never falls when a cell grows.
_RISING = frozenset({Measure.COUNT, Measure.MAX})


@dataclass(slots=True)
class BulkPlan:
    """The blocks of a batch, by the way in which they are written.

    `fresh` creates new windows. `added` is added to windows that exist or that `fresh` has created.
    `by_rows` is written by rows. `new_keys` are the key counts of windows that a single block
    creates. The keys of the windows in `recounted` must be counted after writing.
    """

    fresh: list[CellBlock] = field(default_factory=list)
    added: list[CellBlock] = field(default_factory=list)
    by_rows: list[CellBlock] = field(default_factory=list)
    new_keys: dict[WindowId, int] = field(default_factory=dict)
    recounted: set[WindowId] = field(default_factory=set)

    @property
    def windows(self) -> frozenset[WindowId]:
        """The windows that the server changes without reading them first."""
        return frozenset({*self.new_keys, *self.recounted})


def window_of(block: CellBlock) -> WindowId:
    """Return the window of a block."""
    return WindowId(block.metric, block.size_s, block.start_s)


def kept_blocks(
    blocks: Iterable[CellBlock], definitions: Definitions, now_s: int
) -> dict[WindowId, list[CellBlock]]:
    """Return the blocks of each window that is still kept, sorted by window."""
    kept: dict[WindowId, list[CellBlock]] = {}
    for block in blocks:
        keep_s = keep_in_mysql_s(definitions[block.metric], block.size_s)
        if block.keys and is_kept(block.start_s, block.size_s, keep_s, now_s):
            kept.setdefault(window_of(block), []).append(block)
    return dict(sorted(kept.items()))


def plan_blocks(
    kept: Mapping[WindowId, Sequence[CellBlock]],
    definitions: Definitions,
    key_counts: Mapping[WindowId, int],
    rows: Iterable[CellId],
) -> BulkPlan:
    """Choose how each window is written. `key_counts` has the windows that exist in the database.

    `rows` are the other cells of the same batch. Their keys count towards the limit too, because
    the order of the hashes of all keys decides which of them go to the overflow key.
    """
    plan = BulkPlan()
    beside = Counter(cell_id.window for cell_id in rows)
    for window, blocks in kept.items():
        definition = definitions[window.metric]
        known = key_counts.get(window)
        keys_max = (known or 0) + sum(block.keys for block in blocks) + beside[window]
        fits = not definition.key_columns or keys_max <= key_limit(definition, window.size_s)
        if not fits or not all(is_clean(block) for block in blocks):
            plan.by_rows += blocks
        elif known is None:
            plan.fresh.append(blocks[0])
            plan.added += blocks[1:]
            if len(blocks) == 1:
                plan.new_keys[window] = blocks[0].keys
            else:
                plan.recounted.add(window)
        else:
            plan.added += blocks
            plan.recounted.add(window)
    return plan


def gather_blocks(
    cells: GatheredCells, blocks: Iterable[CellBlock], definitions: Definitions
) -> None:
    """Add the cells of blocks to `cells`, which has the cells of rows."""
    for block in blocks:
        for key, aggregate in decode(block, definitions[block.metric]):
            gather(cells, CellId(*window_of(block), key_hash(key)), key, aggregate)


def may_fall(plan: BulkPlan, definitions: Definitions) -> frozenset[WindowId]:
    """Return the windows with a ranking in which a value can be lower after the merge."""
    return frozenset(
        window
        for window in plan.recounted
        if definitions[window.metric].top is not None
        and definitions[window.metric].measure not in _RISING
    )


def statements(
    blocks: Iterable[CellBlock],
    definition: MetricDefinition,
    end: bytes,
    octets_max: int,
    *,
    numbers: Mapping[WindowId, int],
    seq: int,
) -> Iterator[bytes]:
    """Yield INSERT statements of about `octets_max` octets for one metric's blocks.

    Each statement ends with `end`. `numbers` are the ids of the blocks' windows. The limit does not
    include the window's id and `seq` of each tuple, so with short keys a statement can be almost
    twice as long.
    """
    begin = head(definition)
    some: list[bytes] = []
    octets = 0
    for block in blocks:
        number = numbers[window_of(block)]
        for stretch in stretches(block, octets_max):
            if some and octets + len(stretch) > octets_max:
                yield begin + b",".join(some) + end
                some, octets = [], 0
            some.append(opened(stretch, number, seq))
            octets += len(stretch) + 1
    if some:
        yield begin + b",".join(some) + end
