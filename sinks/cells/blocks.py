"""Bulk cells as text that MySQL takes as it is: how a block is written, added and read back. Pure.

A block is SQL tuples separated by commas, one for each key of one window:

    ('',<k_id>,<k1>[,<k2>[,<k3>]],<count>)
    ('',<k_id>,<k1>[,<k2>[,<k3>]],<count>,<sum>,<min>,<max>)

The short form is that of measure `count`. OPENING, with which every tuple begins, becomes the
window's number and the merge's `seq` when a statement is made: whoever writes a block knows
neither. No key reads like it, for no text holds a quote. `k_id` is `keys.key_id`: a text that
begins with `=`, or 0x23 and the hash's 32 digits. There are as many k columns as the metric has key
columns, a metric without a key has the one k1 `'*'`, and a key that stands in its `k_id` has NULL.
A text stands in quotes as it is, unless it holds a quote, a backslash or a NUL: then it is
hexadecimal, as a k column with `_utf8mb4` before it. Decimals are quoted, for the server would read
a number with an exponent as a double.
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
# What stands where the window's number and the merge's `seq` come.
OPENING = b"('',"

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
    columns = ["window_number", "seq", "k_id", *keys, "`count`", *numbers]
    return f"INSERT INTO window_cells ({','.join(columns)}) VALUES ".encode()


def tail(definition: MetricDefinition) -> bytes:
    """What stands behind the tuples to add them to cells that may be there."""
    changes = ["`count`=`count`+VALUES(`count`)"]
    if definition.measure != Measure.COUNT:
        changes.append(f"`sum`={_SUM_SQL}")
        for name, function in (("min", "LEAST"), ("max", "GREATEST")):
            joined = f"{function}(`{name}`,VALUES(`{name}`))"
            changes.append(f"`{name}`=COALESCE({joined},`{name}`,VALUES(`{name}`))")
    changes.append("seq=VALUES(seq)")
    return f" ON DUPLICATE KEY UPDATE {','.join(changes)}".encode()


def opened(tuples: bytes, number: int, seq: int) -> bytes:
    """Tuples of one window under its number and the merge's `seq`, as they are sent."""
    return tuples.replace(OPENING, f"({number},{seq},".encode())


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


def identity(k_id: bytes) -> str:
    """An identity as the server reads it."""
    text = text_of_id(k_id)
    if text is None or any(character in text for character in _AWKWARD):
        return f"0x{k_id.hex()}"
    return f"'{k_id.decode()}'"


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


def stretches(block: CellBlock, octets_max: int) -> Iterator[bytes]:
    """The body cut between tuples, into stretches of at most `octets_max`, or of one tuple."""
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
    """k1 to k3 as they are stored: a text that stands in the identity stands nowhere else."""
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
