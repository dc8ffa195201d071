"""Bytes into lines: where each line ends, and what happens to one that is too long.

Floor: ground of the room. Pure. A `Block` is a stretch of whole lines, each closed by a newline in
`data`, with the newlines' places as an array; nothing here loops over ordinary lines. Overlong
lines leave as blocks of one record each: pieces of the limit's length (split), or the first bytes
only (cut, dead letter). A piece starts where the one before ended, so a position within a split
line serves as a line start: reading on from it gives the same pieces.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from collector.fingerprint import Evidence

NEWLINE = 10
CARRIAGE_RETURN = 13

Positions = NDArray[np.int64]


class Overlong(StrEnum):
    """What becomes of a line longer than the limit."""

    SPLIT = "split"
    CUT = "cut"
    DEAD_LETTER = "dead_letter"


class Kind(StrEnum):
    """What a block's records are; all but LINES hold exactly one record."""

    LINES = "lines"
    PIECE = "piece"
    CUT = "cut"
    DEAD_LETTER = "dead_letter"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class LineRules:
    """An input's rules for lines. `limit_bytes` counts a line without its line end."""

    limit_bytes: int
    cut_cr: bool = True
    on_overlong: Overlong = Overlong.SPLIT
    skips_bom: bool = True
    """A byte order mark of UTF-8 at a file's start is no part of its first line."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records ready to be encoded, and the stretch `start`..`end` of the source they stand for.

    `source` are the source's own bytes of that stretch; None where they were not all kept, and
    then `evidence` says what they amounted to.
    """

    data: memoryview
    newlines: Positions
    start: int
    end: int
    cut_cr: bool
    kind: Kind = Kind.LINES
    source: memoryview | None = None
    evidence: Evidence | None = None

    @property
    def count(self) -> int:
        """How many records the block gives."""
        return len(self.newlines)

    def split_at(self, count: int) -> tuple["Block", "Block"]:
        """The first `count` lines and the rest; only blocks of LINES have more than one."""
        cut = int(self.newlines[count - 1]) + 1
        first = lines_block(self.data[:cut], self.newlines[:count], self.start, self.cut_cr)
        rest = lines_block(
            self.data[cut:], self.newlines[count:] - cut, self.start + cut, self.cut_cr
        )
        return first, rest


def lines_block(data: memoryview, newlines: Positions, start: int, cut_cr: bool) -> Block:
    """A block of ordinary lines: its data are the source's bytes."""
    return Block(data, newlines, start, start + len(data), cut_cr, Kind.LINES, data)


def single_block(
    content: memoryview,
    start: int,
    end: int,
    kind: Kind,
    *,
    source: memoryview | None = None,
    evidence: Evidence | None = None,
) -> Block:
    """A block of one record without a line end of its own; a CR at its end is content."""
    data = memoryview(bytes(content) + b"\n")
    newlines = np.array([len(content)], dtype=np.int64)
    return Block(data, newlines, start, end, False, kind, source, evidence)


def find_newlines(data: memoryview) -> Positions:
    """The places of all newlines in `data`."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == NEWLINE)


def split_lines(data: memoryview, start: int, rules: LineRules) -> list[Block]:
    """The blocks of all complete lines in `data`, which begins at position `start`.

    What follows the last newline is left out: it waits in the file for its line end. Overlong
    lines come out as blocks of their own, in order.
    """
    newlines = find_newlines(data)
    if not len(newlines):
        return []
    begins = np.empty_like(newlines)
    begins[0] = 0
    begins[1:] = newlines[:-1] + 1
    overlong = np.flatnonzero(newlines - begins > rules.limit_bytes)
    if rules.cut_cr and len(overlong):
        # Exactly one byte too long, and that byte is the CR to be cut: not too long at all.
        octets = np.frombuffer(data, dtype=np.uint8)
        ends = newlines[overlong]
        cr = octets[ends - 1] == CARRIAGE_RETURN
        overlong = overlong[ends - begins[overlong] - cr > rules.limit_bytes]
    blocks: list[Block] = []
    done = 0
    for index in overlong.tolist():
        begin, end = int(begins[index]), int(newlines[index]) + 1
        if index > done:
            first = int(begins[done])
            block = lines_block(
                data[first:begin], newlines[done:index] - first, start + first, rules.cut_cr
            )
            blocks.append(block)
        blocks.extend(_overlong_line(data[begin:end], start + begin, rules))
        done = index + 1
    if done < len(newlines):
        first, last = int(begins[done]), int(newlines[-1]) + 1
        blocks.append(
            lines_block(data[first:last], newlines[done:] - first, start + first, rules.cut_cr)
        )
    return blocks


def _overlong_line(line: memoryview, start: int, rules: LineRules) -> list[Block]:
    """The blocks of one line (with its newline) that is longer than the limit."""
    limit, end = rules.limit_bytes, start + len(line)
    if rules.on_overlong is not Overlong.SPLIT:
        return [single_block(line[:limit], start, end, kind_of(rules), source=line)]
    content = len(line) - 1
    if rules.cut_cr and line[content - 1] == CARRIAGE_RETURN:
        content -= 1
    blocks = []
    last = (content - 1) // limit * limit
    for begin in range(0, last, limit):
        piece = line[begin : begin + limit]
        position = start + begin
        blocks.append(single_block(piece, position, position + limit, Kind.PIECE, source=piece))
    rest = line[last:]
    newlines = np.array([len(rest) - 1], dtype=np.int64)
    blocks.append(Block(rest, newlines, start + last, end, rules.cut_cr, Kind.PIECE, rest))
    return blocks


def kind_of(rules: LineRules) -> Kind:
    """The kind of the block an overlong line becomes when it is not split."""
    return Kind.CUT if rules.on_overlong is Overlong.CUT else Kind.DEAD_LETTER
