"""Cells as SQL text: how a block of cells is written, added to the database and read back.

This module is pure. A block is a list of SQL tuples separated by commas, one for each key of one
window:

    ('',<k_id>,<k1>[,<k2>[,<k3>]],<count>)
    ('',<k_id>,<k1>[,<k2>[,<k3>]],<count>,<sum>,<min>,<max>)

The short form is for the measure `count`. Every tuple begins with OPENING, a placeholder: the
writer of a block does not know the id of the window (`window_number`) and the merge's `seq`, so
they are inserted into the statement later. No key can look like OPENING, because no quoted text
contains a quote.
`k_id` is `keys.key_id`: a text that begins with `=`, or 0x23 and the 32 digits of the hash. There
are as many k columns as the metric has key columns. A metric without a key has only k1 with `'*'`.
A key that its `k_id` contains has NULL in its k column. A text is quoted unchanged, unless it
contains a quote, a backslash or a NUL. Such a text is hexadecimal, with `_utf8mb4` before it in a k
column. Decimals are quoted, because the server would read a number with an exponent as a double.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache

from sinks.keys import Key, shown_columns, text_of_id
from sinks.rows import CellBlock, MetricDefinition
from sinks.values import SUM_MAX, Aggregate, Measure

ADDITIVE = frozenset(
    {Measure.COUNT, Measure.SUM, Measure.MIN, Measure.MAX, Measure.MEAN, Measure.SHARE}
)
# The placeholder for the window's id and the merge's `seq`.
OPENING = b"('',"

_NUMBERS = ("sum", "min", "max")
_AWKWARD = ("'", "\\", "\0")
# Adds two sums as `values` does in Python: a sum that has reached the limit of its column stays
# there.
_SUM_SQL = (
    f"IF(ABS(`sum`)>={SUM_MAX},`sum`,COALESCE(LEAST(GREATEST(`sum`+VALUES(`sum`),"
    f"-{SUM_MAX}),{SUM_MAX}),`sum`,VALUES(`sum`)))"
)


def head(definition: MetricDefinition) -> bytes:
    """Return the beginning of the INSERT statement for a metric's blocks, up to the tuples."""
    keys = [f"k{place}" for place in range(1, max(1, len(definition.key_columns)) + 1)]
    numbers = () if definition.measure == Measure.COUNT else (f"`{name}`" for name in _NUMBERS)
    columns = ["window_number", "seq", "k_id", *keys, "`count`", *numbers]
    return f"INSERT INTO window_cells ({','.join(columns)}) VALUES ".encode()


def tail(definition: MetricDefinition) -> bytes:
    """Return the end of the INSERT statement after the tuples, which adds to existing cells."""
    changes = ["`count`=`count`+VALUES(`count`)"]
    if definition.measure != Measure.COUNT:
        changes.append(f"`sum`={_SUM_SQL}")
        for name, function in (("min", "LEAST"), ("max", "GREATEST")):
            joined = f"{function}(`{name}`,VALUES(`{name}`))"
            changes.append(f"`{name}`=COALESCE({joined},`{name}`,VALUES(`{name}`))")
    changes.append("seq=VALUES(seq)")
    return f" ON DUPLICATE KEY UPDATE {','.join(changes)}".encode()


def opened(tuples: bytes, number: int, seq: int) -> bytes:
    """Return the tuples of one window with the window's id and the merge's `seq` in place of the
    placeholder OPENING."""
    return tuples.replace(OPENING, f"({number},{seq},".encode())


def decode(block: CellBlock, definition: MetricDefinition) -> list[tuple[Key, Aggregate]]:
    """Return the cells of a block. Raises ValueError if the block is damaged.

    Octets that are not UTF-8 are replaced by U+FFFD.
    """
    text = block.body.decode("utf-8", "replace")
    pattern = _tuple_pattern(len(definition.key_columns), definition.measure == Measure.COUNT)
    cells: list[tuple[Key, Aggregate]] = []
    place = 0
    while place < len(text):
        found = pattern.match(text, place)
        if found is None:
            raise ValueError(f"a block of {block.metric} cannot be read from character {place} on")
        cells.append(_cell(found.groups(), definition))
        place = found.end()
    if len(cells) != block.keys:
        raise ValueError(
            f"a block of {block.metric} has {len(cells)} cells, but its header says {block.keys}"
        )
    return cells


def identity(k_id: bytes) -> str:
    """Return the identity of a key (`keys.key_id`) as an SQL literal."""
    text = text_of_id(k_id)
    if text is None or any(character in text for character in _AWKWARD):
        return f"0x{k_id.hex()}"
    return f"'{k_id.decode()}'"


def literal(text: str | None) -> str:
    """Return a text of a key column as an SQL literal."""
    if text is None:
        return "NULL"
    if any(character in text for character in _AWKWARD):
        return f"_utf8mb4 0x{text.encode().hex()}"
    return f"'{text}'"


def decimal_literal(number: Decimal | None) -> str:
    """Return a decimal as an SQL literal that keeps all of its digits."""
    return "NULL" if number is None else f"'{number}'"


def is_clean(block: CellBlock) -> bool:
    """Tell whether a block is valid UTF-8, so that the server accepts its text."""
    try:
        block.body.decode()
    except UnicodeDecodeError:
        return False
    return True


def stretches(block: CellBlock, octets_max: int) -> Iterator[bytes]:
    """Yield a block's tuples in parts of at most `octets_max` octets.

    A longer tuple becomes a separate part.
    """
    border = b")," + OPENING
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


def columns_beside(k_id: bytes, key: Key) -> tuple[str | None, str | None, str | None]:
    """Return the columns k1 to k3 as they are stored; all None if the identity contains the key."""
    return shown_columns(key) if text_of_id(k_id) is None else (None, None, None)


@lru_cache
def _tuple_pattern(key_columns: int, is_count: bool) -> re.Pattern[str]:
    k_id = r"('=[^']*'|0x3[Dd](?:[0-9A-Fa-f]{2})*|0x23[0-9A-Fa-f]{32})"
    key = r"(NULL|'[^']*'|_utf8mb4 0x[0-9A-Fa-f]+)"
    number = r"(NULL|'[^']*')"
    parts = [k_id, *[key] * max(1, key_columns), r"(\d+)"]
    if not is_count:
        parts += [number] * len(_NUMBERS)
    return re.compile(re.escape(OPENING.decode()) + ",".join(parts) + r"\)(?:,(?=\()|\Z)")


def _cell(groups: tuple[str, ...], definition: MetricDefinition) -> tuple[Key, Aggregate]:
    columns = max(1, len(definition.key_columns))
    k_id, *groups_left = groups
    key: Key = ()
    if definition.key_columns:
        if k_id.startswith("'="):
            key = (k_id[2:-1],)
        elif k_id[:4].lower() == "0x3d":
            key = (bytes.fromhex(k_id[4:]).decode("utf-8", "replace"),)
        else:
            key = tuple(_text(part) for part in groups_left[:columns])
    count, *numbers = groups_left[columns:]
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
