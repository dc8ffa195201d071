"""What the stream hands to the sinks: one micro-batch, already folded.

Plain data; imports nothing of Spark, MySQL or Redis. Times are epoch seconds where a name ends in
`_s`, epoch milliseconds where it ends in `_ms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sinks.local_time import LocalZone

ALL_WINDOW_S = 0

# Stands for the slice of lines without a readable time, which count in `all` alone.
NO_TIME_S = -1


@dataclass(frozen=True, slots=True)
class FoldRow:
    """One (metric, slice, key) of a batch with its mergeable aggregates.

    `slice_start_s` is a multiple of the metric's `slice_s`, 0 for a metric with `all` alone, or
    NO_TIME_S for lines without a time.
    `sum`, `min` and `max` are None where the measure has no value, `hll` and `kll` (Spark's
    sketch binaries) unless the measure needs them.
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
    """A line that did not parse, at its place in the topic; at most 4 KiB of it."""

    partition: int
    offset: int
    line: bytes


@dataclass(frozen=True, slots=True)
class UnparsedRow:
    """How many lines of a file did not parse for one reason, and the first of them."""

    topic: str
    file: str
    reason: str
    count: int
    samples: tuple[UnparsedSample, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a batch covers of one partition: from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Additive cells of one window of a metric, as text that MySQL takes (`sinks/cells/blocks.py`).

    `start_s` is the start of a configured window of `size_s`, 0 for `all`; `keys` is how many cells
    there are, each of another key.
    """

    metric: str
    size_s: int
    start_s: int
    keys: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one query.

    `lines` counts its records, `now_ms` is when it is merged, `lag` how many offsets were waiting
    behind it, where that is known. What stands in `blocks` stands in no row; a window may appear in
    several blocks, and rows of other keys may fall into it. Only MySQL takes blocks.

    A large batch may come in pieces, whose ranges follow each other. Only the last of them
    `is_last`, and with it the id counts as merged; only MySQL takes pieces.
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
        """The last id that is wholly merged with this."""
        return self.batch_id if self.is_last else self.batch_id - 1


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric as the sinks need it. `windows_s` are sizes in seconds, 0 for `all`.

    `topics` are those that its lines come from; none named means any. Windows begin by the clock of
    `zone`, or of UTC where it is None.

    `keep_redis_s` and `keep_mysql_s` map each size to how long a window is kept after its end; a
    size with None, or without an entry, is kept for ever. `definition_hash` is 16 bytes and changes
    with the metric's meaning.
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
    """A window's size as users write it: `10s`, `1m`, `1h`, `1d`, `all`."""
    if size_s == ALL_WINDOW_S:
        return "all"
    for suffix, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if size_s % length == 0:
            return f"{size_s // length}{suffix}"
    return f"{size_s}s"


def definitions_differing(
    definitions: Sequence[MetricDefinition], stored: dict[str, bytes]
) -> list[str]:
    """Names whose stored definition is not the given one."""
    return [
        definition.name
        for definition in definitions
        if stored.get(definition.name, definition.definition_hash) != definition.definition_hash
    ]
