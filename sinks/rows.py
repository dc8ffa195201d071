"""The data that the stream passes to the sinks: one micro-batch, already aggregated.

This module has only data classes and imports nothing of Spark, MySQL or Redis. Names ending in `_s`
are in epoch seconds, those ending in `_ms` in epoch milliseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sinks.local_time import LocalZone

ALL_WINDOW_S = 0

# The slice of lines without a readable time, which count only in the window `all`.
NO_TIME_S = -1


@dataclass(frozen=True, slots=True)
class FoldRow:
    """The aggregates of one metric, slice and key in a batch, which the sinks can merge.

    `slice_start_s` is a multiple of the metric's `slice_s`. It is 0 if the metric's only window is
    `all`, and NO_TIME_S for lines without a time.

    `sum`, `min` and `max` are None if the measure has no value. `hll` and `kll` (binary sketches of
    Spark) are None unless the measure needs them.
    """

    metric: str
    slice_start_s: int
    key: tuple[str | None, ...]
    count: int
    sum: Decimal | None = None
    min: Decimal | None = None
    max: Decimal | None = None
    hll: bytes | None = None
    kll: bytes | None = None


@dataclass(frozen=True, slots=True)
class UnparsedSample:
    """A line that did not parse, with its partition and offset; at most 4 KiB of the line."""

    partition: int
    offset: int
    line: bytes


@dataclass(frozen=True, slots=True)
class UnparsedRow:
    """The number of lines of a file that did not parse for one reason, and the first of them."""

    topic: str
    file: str
    reason: str
    count: int
    samples: tuple[UnparsedSample, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition in a batch: from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Additive cells of one window, as SQL text for MySQL (`sinks/cells/blocks.py`).

    `start_s` is the start of a window of `size_s`, and 0 for the window `all`. `keys` is the number
    of cells, each with a different key.
    """

    metric: str
    size_s: int
    start_s: int
    keys: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one query.

    `lines` is the number of its records. `now_ms` is the time at which it is merged. `lag` is the
    number of offsets that waited after it, or None if that is unknown. Cells in `blocks` are not in
    `rows`. Several blocks can be of the same window, and so can rows of other keys. Only MySQL
    accepts blocks.

    A large batch can come in pieces with consecutive ranges. The batch id counts as merged with the
    last piece (`is_last`). Only MySQL accepts pieces.
    """

    query_id: str
    batch_id: int
    rows: Sequence[FoldRow]
    unparsed: Sequence[UnparsedRow]
    ranges: Sequence[OffsetRange]
    lines: int
    now_ms: int
    lag: int | None = None
    blocks: Sequence[CellBlock] = ()
    is_last: bool = True

    @property
    def merged_id(self) -> int:
        """The last batch id that is completely merged with this piece."""
        return self.batch_id if self.is_last else self.batch_id - 1


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric as the sinks need it. `windows_s` are its window sizes in seconds, 0 for `all`.

    `topics` are the topics of its lines; empty means any topic. Windows begin by the clock of
    `zone`, or of UTC if it is None.

    `keep_redis_s` and `keep_mysql_s` map each size to how long a window is kept after its end. A
    size with None, or without an entry, is kept forever. `definition_hash` has 16 bytes and
    changes with the metric's definition.
    """

    name: str
    key_columns: tuple[str, ...]
    measure: str
    windows_s: tuple[int, ...]
    slice_s: int
    keep_redis_s: Mapping[int, int | None]
    keep_mysql_s: Mapping[int, int | None]
    top: int | None
    max_keys: int | None
    definition_hash: bytes
    topics: tuple[str, ...] = ()
    zone: LocalZone | None = None


def size_text(size_s: int) -> str:
    """Return a window's size as users write it: `10s`, `1m`, `1h`, `1d`, `all`."""
    if size_s == ALL_WINDOW_S:
        return "all"
    for suffix, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if size_s % length == 0:
            return f"{size_s // length}{suffix}"
    return f"{size_s}s"


def definitions_differing(
    definitions: Sequence[MetricDefinition], stored: dict[str, bytes]
) -> list[str]:
    """Return the names of metrics whose stored definition differs."""
    return [
        definition.name
        for definition in definitions
        if stored.get(definition.name, definition.definition_hash) != definition.definition_hash
    ]
