"""Bulk cells as text that MySQL takes as it is: how a block is written, added and read back. Pure.

A block is SQL tuples separated by commas, one for each key of one window:

    ('<metric>',<size_s>,<start>,0x<hash>,<k1>[,<k2>[,<k3>]],<count>,<value>,@seq)
    ('<metric>',<size_s>,<start>,0x<hash>,<k1>[,…],<count>,<sum>,<min>,<max>,<value>,@seq)

The short form is that of measure `count`, whose value is the count. `start` is a number of 14
digits, yyyymmddHHMMSS in UTC; `hash` are the 32 hexadecimal digits of `keys.key_hash`. There are as
many k columns as the metric has key columns; a metric without a key has the one k1 `'*'`. A text
stands in quotes as it is, unless it holds a quote, a backslash or a NUL: then it is `_utf8mb4
0x<octets>`. Decimals are quoted, for the server would read a number with an exponent as a double.
The value is the sum, min or max itself; a mean's or a share's is NULL, for the server divides.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from sinks.keys import Key, key_hash, shown_columns
from sinks.merge import WindowId
from sinks.rows import CellBlock, MetricDefinition
from sinks.values import QUOTIENT_PLACES, SUM_MAX, Aggregate, Measure

ADDITIVE = frozenset(
    {Measure.COUNT, Measure.SUM, Measure.MIN, Measure.MAX, Measure.MEAN, Measure.SHARE}
)
QUOTIENTS = frozenset({Measure.MEAN, Measure.SHARE})
QUOTIENT_SQL = f"ROUND(`sum`/`count`,{QUOTIENT_PLACES})"

_NUMBERS = ("sum", "min", "max")
_AWKWARD = ("'", "\\", "\0")
# As in Python's sum: one that has reached the limit of its column stays there.
_SUM_SQL = (
    f"IF(ABS(`sum`)>={SUM_MAX},`sum`,COALESCE(LEAST(GREATEST(`sum`+VALUES(`sum`),"
    f"-{SUM_MAX}),{SUM_MAX}),`sum`,VALUES(`sum`)))"
)


def head(definition: MetricDefinition) -> bytes:
    """What stands before the tuples of one or more blocks of a metric."""
    keys = [f"k{place}" for place in range(1, max(1, len(definition.key_columns)) + 1)]
    numbers = () if definition.measure == Measure.COUNT else (f"`{name}`" for name in _NUMBERS)
    columns = ["metric", "size_s", "start_at", "k_hash", *keys, "`count`", *numbers, "value", "seq"]
    return f"INSERT INTO windows ({','.join(columns)}) VALUES ".encode()


def tail(definition: MetricDefinition) -> bytes:
    """What stands behind the tuples to add them to cells that may be there.

    Columns are set from left to right, so a value is made of the sums as they become.
    """
    changes = ["`count`=`count`+VALUES(`count`)"]
    if definition.measure != Measure.COUNT:
        changes.append(f"`sum`={_SUM_SQL}")
        for name, function in (("min", "LEAST"), ("max", "GREATEST")):
            joined = f"{function}(`{name}`,VALUES(`{name}`))"
            changes.append(f"`{name}`=COALESCE({joined},`{name}`,VALUES(`{name}`))")
    shown = QUOTIENT_SQL if definition.measure in QUOTIENTS else f"`{definition.measure}`"
    changes += [f"value={shown}", "seq=VALUES(seq)"]
    return f" ON DUPLICATE KEY UPDATE {','.join(changes)}".encode()


def encode(
    definition: MetricDefinition,
    size_s: int,
    start_s: int,
    cells: Iterable[tuple[Key, Aggregate]],
) -> CellBlock:
    """The block of some cells of one window; each key stands in it once."""
    begin = opening(WindowId(definition.name, size_s, start_s))
    tuples = [
        f"{begin}{key_hash(key).hex()},{_columns(definition, key)},"
        f"{_numbers(definition.measure, one)},@seq)"
        for key, one in cells
    ]
    return CellBlock(definition.name, size_s, start_s, len(tuples), ",".join(tuples).encode())


def decode(block: CellBlock, definition: MetricDefinition) -> list[tuple[Key, Aggregate]]:
    """The cells of a block; octets that are no UTF-8 are replaced. Raises ValueError."""
    text = block.body.decode("utf-8", "replace")
    pattern = _tuple_pattern(len(definition.key_columns), definition.measure == Measure.COUNT)
    cells: list[tuple[Key, Aggregate]] = []
    place = 0
    while place < len(text):
        found = pattern.match(text, place)
        if found is None:
            raise ValueError(f"a block of {block.metric} cannot be read at {place}")
        cells.append(_cell(found.groups(), definition))
        place = found.end()
    if len(cells) != block.keys:
        raise ValueError(f"a block of {block.metric} has {len(cells)} cells, said {block.keys}")
    return cells


def opening(window: WindowId) -> str:
    """How each tuple of a window begins, up to the digits of the hash."""
    moment = datetime.fromtimestamp(window.start_s, UTC).strftime("%Y%m%d%H%M%S")
    return f"('{window.metric}',{window.size_s},{moment},0x"


def literal(text: str | None) -> str:
    """A text of at most the length of a key column as the server reads it."""
    if text is None:
        return "NULL"
    if any(character in text for character in _AWKWARD):
        return f"_utf8mb4 0x{text.encode().hex()}"
    return f"'{text}'"


def decimal_literal(number: Decimal | None) -> str:
    """A decimal as the server reads it exactly."""
    return "NULL" if number is None else f"'{number}'"


def is_clean(block: CellBlock) -> bool:
    """Whether the server can take the text; decoding replaces what is no UTF-8."""
    try:
        block.body.decode()
    except UnicodeDecodeError:
        return False
    return True


def pieces(block: CellBlock, octets_max: int) -> Iterator[bytes]:
    """The body cut between tuples, into pieces of at most `octets_max`, or of one tuple."""
    # Nothing in a tuple looks like this: a key has no quote, so what follows one is never a name.
    border = f",@seq),('{block.metric}',".encode()
    before = border.index(b",(")
    begin = 0
    while len(block.body) - begin > octets_max:
        cut_at = block.body.rfind(border, begin, begin + octets_max + len(border) - before)
        if cut_at < 0:
            cut_at = block.body.find(border, begin)
        if cut_at < 0:
            break
        yield block.body[begin : cut_at + before]
        begin = cut_at + before + 1
    yield block.body[begin:]


def _columns(definition: MetricDefinition, key: Key) -> str:
    columns = shown_columns(key)[: max(1, len(definition.key_columns))]
    return ",".join(literal(part) for part in columns)


def _numbers(measure: str, one: Aggregate) -> str:
    if measure == Measure.COUNT:
        return f"{one.count},{one.count}"
    numbers = {
        "sum": decimal_literal(one.sum),
        "min": decimal_literal(one.min),
        "max": decimal_literal(one.max),
    }
    return ",".join([str(one.count), *numbers.values(), numbers.get(measure, "NULL")])


@lru_cache
def _tuple_pattern(key_columns: int, is_count: bool) -> re.Pattern[str]:
    key = r"(NULL|'[^']*'|_utf8mb4 0x[0-9A-Fa-f]+)"
    number = r"(NULL|'[^']*')"
    parts = [r"\('[a-z0-9_]+'", r"\d+", r"\d+", "0x[0-9A-Fa-f]{32}", *[key] * max(1, key_columns)]
    parts += [r"(\d+)", r"\d+"] if is_count else [r"(\d+)", number, number, number, r"[^,()]+"]
    return re.compile(",".join(parts) + r",@seq\)(?:,(?=\()|\Z)")


def _cell(groups: tuple[str, ...], definition: MetricDefinition) -> tuple[Key, Aggregate]:
    columns = max(1, len(definition.key_columns))
    key = tuple(_text(part) for part in groups[:columns]) if definition.key_columns else ()
    count, *numbers = groups[columns:]
    total, least, most = (
        None if text == "NULL" else Decimal(text[1:-1]) for text in numbers or ["NULL"] * 3
    )
    return key, Aggregate(int(count), total, least, most)


def _text(literal: str) -> str | None:
    if literal == "NULL":
        return None
    if literal.startswith("'"):
        return literal[1:-1]
    return bytes.fromhex(literal.removeprefix("_utf8mb4 0x")).decode("utf-8", "replace")
