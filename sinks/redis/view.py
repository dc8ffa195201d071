"""The live view: the Redis keys for each cell.

This module is pure. `mill:<metric>:<size>:<start>` is one window. `mill:<metric>:<size>` is the
latest window that is not more than an hour ahead. `mill:<metric>:all` has the totals. The ranking
of each is in `…:top`. Values are absolute, so writing them twice changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby

from sinks.cell_reader import Ranking
from sinks.cells.merge import Cell, CellId, WindowId, is_kept
from sinks.keys import is_other, redis_field
from sinks.number_text import plain
from sinks.rows import ALL_WINDOW_S, MetricDefinition, size_text
from sinks.values import Measure, quantiles_of, value_of

PREFIX = "mill:"
AHEAD_S_MAX = 3_600
FIELDS_PER_CALL = 1_000
NO_RANKINGS: Mapping[WindowId, Ranking] = {}


@dataclass(slots=True)
class Write:
    """The data for one window's keys: hash fields, ranking, expiry (epoch seconds, 0: never).

    `latest` names the key for the latest window if this window may be it. `replace` marks a
    complete ranking. It is needed when a value fell, because a trimmed ranking lacks the key that
    rises.
    """

    key: str
    start: str
    expire_at_s: int
    latest: str | None
    top: int | None
    replace: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    ranking: dict[str, str] = field(default_factory=dict)


def start_text(start_s: int) -> str:
    """Return a window's start as in keys: `20260801T100000Z`."""
    return datetime.fromtimestamp(start_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def latest_key(metric: str, size_s: int) -> str:
    """Return the key of the latest window, or of the totals."""
    return f"{PREFIX}{metric}:{size_text(size_s)}"


def window_key(metric: str, size_s: int, start_s: int) -> str:
    """Return the key of one window. For size 0 return the key of the totals."""
    base = latest_key(metric, size_s)
    return base if size_s == ALL_WINDOW_S else f"{base}:{start_text(start_s)}"


def oldest_kept_s(definition: MetricDefinition, size_s: int, now_s: int) -> int:
    """Return the start of the oldest window of a size that the live view still shows."""
    keep_s = definition.keep_redis_s.get(size_s)
    return 0 if size_s == ALL_WINDOW_S or keep_s is None else max(0, now_s - keep_s - size_s + 1)


def is_shown(window: WindowId, definitions: Mapping[str, MetricDefinition], now_s: int) -> bool:
    """Tell whether the live view still shows a window."""
    keep_s = definitions[window.metric].keep_redis_s.get(window.size_s)
    return is_kept(window.start_s, window.size_s, keep_s, now_s)


def writes(
    cells: Iterable[tuple[CellId, Cell]],
    definitions: Mapping[str, MetricDefinition],
    now_s: int,
    rankings: Mapping[WindowId, Ranking] = NO_RANKINGS,
) -> Iterator[Write]:
    """Yield the writes for cells sorted by window, each with up to FIELDS_PER_CALL fields.

    `rankings` has complete rankings for windows in which a value fell.
    """
    for window, some in groupby(cells, key=lambda pair: pair[0].window):
        if not is_shown(window, definitions, now_s):
            continue
        definition = definitions[window.metric]
        write = _new_write(window, definition, now_s)
        if complete := rankings.get(window):
            write.ranking = {redis_field(name): plain(value) for name, value in complete}
            write.replace = True
        for _, cell in some:
            if len(write.fields) >= FIELDS_PER_CALL:
                yield write
                write = replace(write, fields={}, ranking=dict(write.ranking) if complete else {})
            _add(write, cell, definition)
        yield write


def matured(
    windows: Iterable[WindowId], definitions: Mapping[str, MetricDefinition], now_s: int
) -> Iterator[Write]:
    """Yield writes that show as latest the windows that are no longer too far ahead."""
    for window in sorted(windows):
        yield _new_write(window, definitions[window.metric], now_s)


def _new_write(window: WindowId, definition: MetricDefinition, now_s: int) -> Write:
    keep_s = definition.keep_redis_s.get(window.size_s)
    is_all = window.size_s == ALL_WINDOW_S
    may_be_latest = not is_all and window.start_s <= now_s + AHEAD_S_MAX
    return Write(
        key=window_key(*window),
        start="" if is_all else start_text(window.start_s),
        expire_at_s=0 if is_all or keep_s is None else window.start_s + window.size_s + keep_s,
        latest=latest_key(definition.name, window.size_s) if may_be_latest else None,
        top=definition.top,
    )


def _add(write: Write, cell: Cell, definition: MetricDefinition) -> None:
    name = redis_field(cell.key)
    value = value_of(definition.measure, cell.aggregate)
    if definition.measure == Measure.PERCENTILE:
        quantiles = quantiles_of(cell.aggregate) or {}
        write.fields.update({f"{name}.{rank}": plain(at) for rank, at in quantiles.items()})
        write.fields[f"{name}.count"] = plain(cell.aggregate.count)
    elif value is not None:
        write.fields[name] = plain(value)
    if write.replace:
        return
    if definition.top is not None and value is not None and not is_other(cell.key):
        write.ranking[name] = plain(value)


def calls(of: Iterable[Write], *, fields_max: int = FIELDS_PER_CALL) -> Iterator[list[Write]]:
    """Group writes into calls of about `fields_max` fields; a large write is a call alone."""
    packed: list[Write] = []
    count = 0
    for write in of:
        if packed and count + len(write.fields) > fields_max:
            yield packed
            packed, count = [], 0
        packed.append(write)
        count += len(write.fields)
    if packed:
        yield packed
