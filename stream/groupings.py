"""How Spark folds a large batch: one query that tallies lines, and one for each kind of grouping.

Floor: pure, no JVM. All queries read the view KEPT_VIEW, the judged lines of a batch, which Spark
holds in memory meanwhile. Additive measures are grouped apart from sketches: one sketch among the
aggregates makes Spark keep an object for every group, and sort once there are many.

Metrics with the same inputs, key and slice share a grouping. It groups lines by slice and key, and
those groups again for coarser windows. What comes out is text that MySQL takes as it is
(`sinks/blocks.py` says how it is written), one block for each metric and window: rows that become
Python objects cost several times what it costs to count them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sinks.keys import K_COLUMN_CHARACTERS, NO_KEY_TEXT, key_hash
from sinks.rows import ALL_WINDOW_S
from stream.compile import COUNTED, FAULTY, FoldPlan, Reading, ValueKind
from stream.expression import quote_text
from stream.numbers import EXACT_DECIMAL

KEPT_VIEW = "millrace_kept"
JUDGED_VIEW = "millrace_judged"

# Samples of lines that are not counted: at most this many a partition, file and reason.
SAMPLES = 1_000

HLL_LG_K = 12
KLL_K = 200

_ADDITIVE = frozenset({"count", "sum", "min", "max", "mean", "share"})
_KEY_COLUMNS = ("k1", "k2", "k3")
_LOW_BITS = 32


@dataclass(frozen=True, slots=True)
class Grouping:
    """Metrics that are counted by one grouping of the lines."""

    readings: tuple[Reading, ...]

    @property
    def slice_s(self) -> int:
        return self.readings[0].slice_s

    @property
    def key_count(self) -> int:
        return len(self.readings[0].keys)

    @property
    def coarser_s(self) -> tuple[int, ...]:
        """The windows of any of its metrics that are folded from slices."""
        sizes = {size for reading in self.readings for size in reading.windows_s}
        return tuple(sorted(sizes - {self.slice_s}))


def additive_groupings(plan: FoldPlan) -> tuple[Grouping, ...]:
    """The groupings of a plan's additive metrics, in the order of their first metrics."""
    found: dict[tuple[object, ...], list[Reading]] = {}
    for reading in plan.readings:
        if reading.measure in _ADDITIVE:
            shared = (reading.topics, reading.keys, reading.slice_s)
            found.setdefault(shared, []).append(reading)
    return tuple(Grouping(tuple(readings)) for readings in found.values())


def sketched_readings(plan: FoldPlan) -> tuple[Reading, ...]:
    """The metrics that need a sketch."""
    return tuple(r for r in plan.readings if r.measure not in _ADDITIVE)


def tally_sql(plan: FoldPlan) -> str:
    """How many lines there are of each partition, file and reason, and how many faults.

    Columns: topic, partition, file, reason, lines, low, high, latest, and an array with the number
    of faults for each metric that has a verdict (`faulty_readings`).
    """
    faults = (f"count_if({reading.verdict} = {FAULTY})" for reading in faulty_readings(plan))
    return (
        "SELECT topic, partition, file, reason, count(1) AS lines, min(offset) AS low,"
        " max(offset) AS high, max(IF(reason IS NULL, seconds, NULL)) AS latest,"
        f" array({', '.join(faults)}) AS faults"
        f" FROM {KEPT_VIEW} GROUP BY topic, partition, file, reason"
    )


def faulty_readings(plan: FoldPlan) -> tuple[Reading, ...]:
    """The metrics for which a line can be at fault."""
    return tuple(reading for reading in plan.readings if reading.verdict is not None)


def samples_sql(plan: FoldPlan) -> str:
    """Samples of lines that are not counted, of a view JUDGED_VIEW: the first of each place.

    Columns: topic, partition, file, reason, number (of the first metric at fault, where there is no
    reason), low, sample.
    """
    cases = (f"WHEN {r.verdict} = {FAULTY} THEN {r.number}" for r in faulty_readings(plan))
    number = f"CASE WHEN reason IS NOT NULL THEN NULL {' '.join(cases)} END"
    return (
        "SELECT topic, partition, file, reason, number, min(offset) AS low,"
        " min_by(sample, offset) AS sample"
        f" FROM (SELECT topic, partition, offset, file, reason, {number} AS number, sample"
        f" FROM {JUDGED_VIEW} WHERE sample IS NOT NULL)"
        f" GROUP BY topic, partition, file, reason, number, offset % {SAMPLES}"
    )


def additive_sql(plan: FoldPlan, grouping: Grouping, *, as_blocks: bool) -> str:
    """Cells of a grouping's metrics, one row for each metric and window.

    Columns: m (metric number), size, start, n (keys in the block), body (the block), cells (an
    array of the slices that stand in no block, `ARRAY<k1, k2, k3, c, t, l, h>`: those with a key
    too long to be written as it is, and all of them unless `as_blocks`).
    """
    # No common table expressions: Spark does not look for what it keeps in memory inside of them.
    finest = _finest_sql(grouping)
    windowed = f"SELECT {grouping.slice_s} AS size, s AS start, * EXCEPT (s) FROM ({finest})"
    if as_blocks and grouping.coarser_s:
        windowed += f" UNION ALL {_coarser_sql(grouping, finest)}"
    cells = _cells_sql(grouping, windowed, as_blocks=as_blocks)
    gathered = (
        "SELECT m, size, start, collect_list(tail) AS tails, collect_list(cell) AS cells"
        f" FROM ({cells}) GROUP BY m, size, start"
    )
    names = " ".join(
        f"WHEN {reading.number} THEN {quote_text(_text_literal(plan.metrics[reading.number].name))}"
        for reading in grouping.readings
    )
    head = (
        f"concat('(', CASE m {names} END, ',', size, ',',"
        " date_format(timestamp_seconds(start), 'yyyyMMddHHmmss'), ',')"
    )
    body = f"concat({head}, array_join(tails, concat('),', {head})), ')')"
    return (
        "SELECT m, size, start, size(tails) AS n,"
        f" IF(size(tails) = 0, NULL, CAST({body} AS BINARY)) AS body, cells FROM ({gathered})"
    )


def sketched_sql(reading: Reading) -> str:
    """Slices of a metric with a sketch. Columns: s, k1, k2, k3, c, t, l, h, sketch."""
    if reading.measure == "unique":
        exact = "CAST(NULL AS DECIMAL(38,12)) AS t, NULL AS l, NULL AS h"
        sketch = f"hll_sketch_agg({reading.value}, {HLL_LG_K})"
    else:
        value = reading.value
        exact = f"sum({value}) AS t, min({value}) AS l, max({value}) AS h"
        sketch = f"kll_sketch_agg_double(CAST({value} AS DOUBLE), {KLL_K})"
    keys = [*reading.keys, *["CAST(NULL AS STRING)"] * (len(_KEY_COLUMNS) - len(reading.keys))]
    return (
        f"SELECT {_slice_sql(reading.slice_s)} AS s,"
        f" {', '.join(f'{sql} AS {name}' for sql, name in zip(keys, _KEY_COLUMNS, strict=True))},"
        f" count(1) AS c, {exact}, {sketch} AS sketch FROM {KEPT_VIEW}"
        f" WHERE {_is_counted([reading])} GROUP BY ALL"
    )


def _slice_sql(slice_s: int) -> str:
    return f"seconds - seconds % {slice_s}" if slice_s else "0L"


def _is_counted(readings: Sequence[Reading]) -> str:
    """Which lines any of these metrics counts; all of them read the same inputs."""
    topics = ", ".join(quote_text(topic) for topic in readings[0].topics)
    conditions = ["reason IS NULL", f"topic IN ({topics})"]
    verdicts = dict.fromkeys(reading.verdict for reading in readings)
    if None not in verdicts:
        conditions.append("(" + " OR ".join(f"{name} = {COUNTED}" for name in verdicts) + ")")
    return " AND ".join(conditions)


def _finest_sql(grouping: Grouping) -> str:
    """Lines by slice and key: c, and for metrics with a value t, l, h, with the metric's place."""
    keys = [
        f"{name} AS {column}"
        for name, column in zip(grouping.readings[0].keys, _KEY_COLUMNS, strict=False)
    ]
    columns = [f"{_slice_sql(grouping.slice_s)} AS s", *keys]
    for place, reading in enumerate(grouping.readings):
        is_counted = None if reading.verdict is None else f"{reading.verdict} = {COUNTED}"
        counted = "count(1)" if is_counted is None else f"count_if({is_counted})"
        columns.append(f"{counted} AS c{place}")
        if reading.kind is not None:
            assert reading.value is not None
            value = f"IF({is_counted}, {reading.value}, NULL)"
            columns += [
                f"{_sum_sql(reading.kind, value)} AS t{place}",
                f"min({value}) AS l{place}",
                f"max({value}) AS h{place}",
            ]
    return (
        f"SELECT {', '.join(columns)} FROM {KEPT_VIEW}"
        f" WHERE {_is_counted(grouping.readings)} GROUP BY s{_key_list(grouping)}"
    )


def _sum_sql(kind: ValueKind, value: str) -> str:
    """The exact sum. Whole numbers are added in two halves, for a BIGINT would overflow."""
    if kind is not ValueKind.WHOLE:
        return f"sum({value})"
    high = f"CAST(sum(shiftright({value}, {_LOW_BITS})) AS DECIMAL(19,0))"
    low = f"CAST(sum({value} & {2**_LOW_BITS - 1}L) AS DECIMAL(19,0))"
    return f"{high} * {2**_LOW_BITS}BD + {low}"


def _coarser_sql(grouping: Grouping, finest: str) -> str:
    """Slices by the further windows that hold them."""
    sizes = ", ".join(str(size) for size in grouping.coarser_s)
    columns = ["size", f"IF(size = {ALL_WINDOW_S}, 0L, s - s % size) AS start"]
    columns += _KEY_COLUMNS[: grouping.key_count]
    for place, reading in enumerate(grouping.readings):
        columns.append(f"sum(c{place}) AS c{place}")
        if reading.kind is not None:
            columns += [
                f"sum(t{place}) AS t{place}",
                f"min(l{place}) AS l{place}",
                f"max(h{place}) AS h{place}",
            ]
    return (
        f"SELECT {', '.join(columns)}"
        f" FROM (SELECT *, explode(array({sizes})) AS size FROM ({finest}))"
        f" GROUP BY size, start{_key_list(grouping)}"
    )


def _cells_sql(grouping: Grouping, windowed: str, *, as_blocks: bool) -> str:
    """Each metric's cells, as the end of a tuple of a block or, outside of blocks, as values."""
    keys = _KEY_COLUMNS[: grouping.key_count]
    too_long = " OR ".join(f"length({key}) > {K_COLUMN_CHARACTERS}" for key in keys)
    # A NULL key is not too long; the comparison with NULL would say neither.
    apart = f"coalesce({too_long}, false)" if keys and as_blocks else str(not as_blocks).lower()
    structs = []
    for place, reading in enumerate(grouping.readings):
        sizes = ", ".join(str(size) for size in reading.windows_s)
        in_block = f"NOT {apart} AND size IN ({sizes})"
        in_cell = f"{apart} AND size = {grouping.slice_s}"
        structs.append(
            f"named_struct('m', IF(c{place} > 0, {reading.number}, NULL), 'size', size,"
            f" 'start', start, 'tail', IF({in_block}, {_tail_sql(place, reading)}, NULL),"
            f" 'cell', IF({in_cell}, {_cell_sql(place, reading)}, NULL))"
        )
    return (
        f"SELECT * FROM (SELECT inline(array({', '.join(structs)})) FROM ({windowed}))"
        " WHERE m IS NOT NULL AND (tail IS NOT NULL OR cell IS NOT NULL)"
    )


def _cell_sql(place: int, reading: Reading) -> str:
    columns = [*_KEY_COLUMNS[: len(reading.keys)]]
    columns += ["CAST(NULL AS STRING)"] * (len(_KEY_COLUMNS) - len(columns))
    columns.append(f"c{place}")
    if reading.kind is None:
        columns += ["CAST(NULL AS DECIMAL(38,12))"] + [f"CAST(NULL AS {EXACT_DECIMAL})"] * 2
    else:
        columns.append(f"CAST(t{place} AS DECIMAL(38,12))")
        columns += [f"CAST({name}{place} AS {EXACT_DECIMAL})" for name in ("l", "h")]
    names = (*_KEY_COLUMNS, "c", "t", "l", "h")
    fields = (f"'{name}', {sql}" for name, sql in zip(names, columns, strict=True))
    return f"named_struct({', '.join(fields)})"


def _tail_sql(place: int, reading: Reading) -> str:
    """A tuple of a block from the hash on, without its opening."""
    keys = _KEY_COLUMNS[: len(reading.keys)]
    pieces = [quote_text("0x"), _hash_sql(keys)]
    for key in keys:
        pieces += ["','", _key_text_sql(key)]
    if not keys:
        pieces.append(quote_text(f",{_text_literal(NO_KEY_TEXT)}"))
    pieces += ["','", f"c{place}", "','"]
    if reading.kind is None:
        pieces.append(f"c{place}")
    else:
        numbers = {"sum": f"t{place}", "min": f"l{place}", "max": f"h{place}"}
        for column in numbers.values():
            # Quoted, for the server would read an exponent's number as a double.
            pieces += [quote_text("'"), column, quote_text("',")]
        shown = numbers.get(reading.measure)
        pieces += ["'NULL'"] if shown is None else [quote_text("'"), shown, quote_text("'")]
    pieces.append(quote_text(",@seq"))
    return f"concat({', '.join(pieces)})"


def _hash_sql(keys: Sequence[str]) -> str:
    """The key's hash in hexadecimal digits, as `sinks.keys.key_hash` makes it."""
    if not keys:
        return quote_text(key_hash(()).hex())
    parts = (f"coalesce(concat(octet_length({key}), ':', {key}), '-')" for key in keys)
    return f"substring(sha2(concat({', '.join(parts)}), 256), 1, {2 * len(key_hash(()))})"


def _key_text_sql(key: str) -> str:
    """A key as a literal of MySQL's; what would need escapes is written in hexadecimal digits."""
    awkward = " OR ".join(
        f"locate({quote_text(character)}, {key}) > 0" for character in ("'", "\\", "\0")
    )
    plain = f"concat({quote_text(chr(39))}, {key}, {quote_text(chr(39))})"
    digits = f"concat('_utf8mb4 0x', hex({key}))"
    return f"CASE WHEN {key} IS NULL THEN 'NULL' WHEN {awkward} THEN {digits} ELSE {plain} END"


def _text_literal(text: str) -> str:
    """A literal of MySQL's for a text without quotes and backslashes, such as a metric's name."""
    assert not set(text) & {"'", "\\", "\0"}
    return f"'{text}'"


def _key_list(grouping: Grouping) -> str:
    return "".join(f", {column}" for column in _KEY_COLUMNS[: grouping.key_count])
