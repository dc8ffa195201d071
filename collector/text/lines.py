"""Split bytes into lines, and handle lines that are too long.

This module is pure. A `Block` holds consecutive whole lines in `data`, each ended by a newline, and
the indices of these newlines as an array. No Python loop runs over ordinary lines. Each overlong
line becomes one or more blocks of one record. Its pieces are as long as the limit (split), or only
its first bytes are kept (cut, dead letter). A piece starts where the previous piece ended. So a
position within a split line can be used as a line start: reading from it gives the same pieces.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from collector.config.multiline import EventRules
from collector.text.encodings import NEWLINE, Encoding, Positions
from collector.text.fingerprint import Evidence


class Overlong(StrEnum):
    """The handling of a line longer than the limit."""

    SPLIT = "split"
    CUT = "cut"
    DEAD_LETTER = "dead_letter"


class RecordKind(StrEnum):
    """The kind of the records of a block. A block of any kind but LINES and EVENTS has one
    record."""

    LINES = "lines"
    EVENTS = "events"  # records of more than one line, separated by newlines
    PIECE = "piece"
    CUT = "cut"
    DEAD_LETTER = "dead_letter"
    INVALID = "invalid"  # not valid in the file's encoding; also a kind of dead letter
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class LineRules:
    """The rules of an input for splitting bytes into lines.

    `limit_bytes` counts the source bytes of a line without its line end. It is a multiple of the
    code unit.
    """

    limit_bytes: int
    cut_cr: bool = True
    on_overlong: Overlong = Overlong.SPLIT
    encoding: Encoding = Encoding()  # noqa: RUF009  (frozen)
    events: EventRules | None = None
    strip_ansi: bool = False

    @property
    def unfinished_max(self) -> int:
        """The most bytes without a line end that can still become a line within the limit."""
        return self.limit_bytes + self.encoding.unit_bytes

    @property
    def look_bytes(self) -> int:
        """The number of bytes that must be read to contain the end of any line or event at their
        start."""
        unit = self.encoding.unit_bytes
        event_bytes = 0 if self.events is None else self.limit_bytes + 2 * unit
        return event_bytes + self.unfinished_max + unit


@dataclass(frozen=True, slots=True)
class Block:
    """Records ready to be encoded, and the range `start`..`end` of the file that they cover.

    `source` holds the file's bytes of that range. It is None if not all of them were kept; then
    `evidence` is the evidence at the end of the range. If `data` differs from the source,
    `source_ends` gives the offset in the source at which each record ends. Three arrays hold
    indices of records. `altered` records had bytes that are not valid text, `shortened` records are
    events that a limit ended, and `bare` records could not get fields. The records of a group
    (`is_group`) are handed out together. `is_rest` marks the remaining part of a group.
    """

    data: memoryview
    newlines: Positions
    start: int
    end: int
    cut_cr: bool
    kind: RecordKind = RecordKind.LINES
    source: memoryview | None = None
    evidence: Evidence | None = None
    source_ends: Positions | None = None
    altered: Positions | None = None
    shortened: Positions | None = None
    bare: Positions | None = None
    is_group: bool = False
    is_rest: bool = False

    @property
    def count(self) -> int:
        """The number of records in the block."""
        return len(self.newlines)

    @property
    def is_dead_letter(self) -> bool:
        """True if the record of the block goes to the dead letters."""
        return self.kind in (RecordKind.DEAD_LETTER, RecordKind.INVALID)

    @property
    def holds_lines(self) -> bool:
        """True if the records of the block are whole lines or events of the file."""
        return self.kind in (RecordKind.LINES, RecordKind.EVENTS)

    def copy(self) -> "Block":
        """Return an equal block that owns its memory."""
        source = None if self.source is None else memoryview(bytes(self.source))
        return replace(self, data=memoryview(bytes(self.data)), source=source)

    def split_at(self, count: int) -> tuple["Block", "Block"]:
        """Return a block of the first `count` records and a block of the rest; both are not
        empty."""
        cut = int(self.newlines[count - 1]) + 1
        if self.source_ends is not None:
            return self._split_recoded(count, cut, self.source_ends)
        first = lines_block(self.data[:cut], self.newlines[:count], self.start, self.cut_cr)
        rest = lines_block(
            self.data[cut:], self.newlines[count:] - cut, self.start + cut, self.cut_cr
        )
        return first, rest

    def _split_recoded(self, count: int, cut: int, ends: Positions) -> tuple["Block", "Block"]:
        assert self.source is not None
        source_cut = int(ends[count - 1])
        first = replace(
            self,
            data=self.data[:cut],
            newlines=self.newlines[:count],
            end=self.start + source_cut,
            source=self.source[:source_cut],
            source_ends=ends[:count],
            altered=_below(self.altered, count),
            shortened=_below(self.shortened, count),
            bare=_below(self.bare, count),
        )
        rest = replace(
            self,
            data=self.data[cut:],
            newlines=self.newlines[count:] - cut,
            start=self.start + source_cut,
            source=self.source[source_cut:],
            source_ends=ends[count:] - source_cut,
            altered=_from(self.altered, count),
            shortened=_from(self.shortened, count),
            bare=_from(self.bare, count),
            is_rest=self.is_group,
        )
        return first, rest


def _below(indices: Positions | None, count: int) -> Positions | None:
    return None if indices is None else indices[indices < count]


def _from(indices: Positions | None, count: int) -> Positions | None:
    return None if indices is None else indices[indices >= count] - count


def lines_block(data: memoryview, newlines: Positions, start: int, cut_cr: bool) -> Block:
    """Return a block of ordinary lines, whose data are the bytes of the source."""
    return Block(data, newlines, start, start + len(data), cut_cr, RecordKind.LINES, data)


def single_block(
    content: memoryview,
    start: int,
    end: int,
    kind: RecordKind,
    *,
    source: memoryview | None = None,
    evidence: Evidence | None = None,
) -> Block:
    """Return a block of one record. `content` has no line end, and a CR at its end is kept."""
    data = memoryview(bytes(content) + b"\n")
    newlines = np.array([len(content)], dtype=np.int64)
    return Block(data, newlines, start, end, False, kind, source, evidence)


def find_line_ends(data: memoryview, line_end: int = NEWLINE) -> Positions:
    """Return the indices of all line ends in `data`."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == line_end)


def as_events(block: Block) -> Block:
    """Return the block as EVENTS if its records can contain newlines, because NULs end its
    lines."""
    if block.kind is not RecordKind.LINES:
        return block
    ends = block.newlines + 1 if block.source_ends is None else block.source_ends
    return replace(block, kind=RecordKind.EVENTS, source_ends=ends)


def split_lines(data: memoryview, start: int, rules: LineRules) -> list[Block]:
    """Return blocks of all complete lines in `data`, which begins at position `start`.

    The bytes after the last newline are left out: they stay in the file until their line end is
    written. Overlong lines become separate blocks, in order. The blocks hold the bytes of the
    source in its own encoding.
    """
    newlines = rules.encoding.newlines(data)
    if not len(newlines):
        return []
    unit = rules.encoding.unit_bytes
    begins = np.empty_like(newlines)
    begins[0] = 0
    begins[1:] = newlines[:-1] + unit
    texts = rules.encoding.text_begins(data, begins)
    overlong = [
        index
        for index in np.flatnonzero(newlines - texts > rules.limit_bytes).tolist()
        if _is_overlong(data[int(texts[index]) : int(newlines[index])], rules)
    ]
    blocks: list[Block] = []
    done = 0
    for index in overlong:
        begin, end = int(begins[index]), int(newlines[index]) + unit
        if index > done:
            first = int(begins[done])
            block = lines_block(
                data[first:begin], newlines[done:index] - first, start + first, rules.cut_cr
            )
            blocks.append(block)
        blocks.extend(_overlong_line(data[begin:end], start + begin, rules))
        done = index + 1
    if done < len(newlines):
        first, last = int(begins[done]), int(newlines[-1]) + unit
        blocks.append(
            lines_block(data[first:last], newlines[done:] - first, start + first, rules.cut_cr)
        )
    return blocks


def _is_overlong(line: memoryview, rules: LineRules) -> bool:
    """Tell whether a line above the limit is still too long without the CR that is removed."""
    if len(line) > rules.unfinished_max or not rules.cut_cr:
        return True
    return not rules.encoding.ends_in_cr(line)


def _overlong_line(line: memoryview, start: int, rules: LineRules) -> list[Block]:
    """Return the blocks of one line (with its newline) that is longer than the limit.

    NULs at the beginning or the end of a piece are not part of its record.
    """
    limit, end, unit = rules.limit_bytes, start + len(line), rules.encoding.unit_bytes
    text = rules.encoding.leading_nul_bytes(line)
    if rules.on_overlong is not Overlong.SPLIT:
        first = first_bytes(line[text : text + limit], rules)
        return [single_block(first, start, end, kind_of(rules), source=line)]
    content = len(line) - unit
    if rules.cut_cr and rules.encoding.ends_in_cr(line[:content]):
        content -= unit
    blocks = []
    begin = 0
    while content - text > limit:
        piece = first_piece(line[text:], rules)
        after = text + len(piece)
        blocks.append(piece_block(piece, start + begin, line[begin:after], rules))
        begin = after
        text = begin + rules.encoding.leading_nul_bytes(line[begin:content])
    rest = line[text:content]
    blocks.append(single_block(rest, start + begin, end, RecordKind.PIECE, source=line[begin:]))
    return blocks


def first_piece(data: memoryview, rules: LineRules) -> memoryview:
    """Return the first part of an overlong line that is split.

    The part is at most as long as the limit.
    """
    return data[: rules.encoding.whole_bytes(data[: rules.limit_bytes])]


def piece_block(piece: memoryview, start: int, source: memoryview, rules: LineRules) -> Block:
    """Return the block of a piece of an overlong line; `source` is its range in the file from
    `start`."""
    text = piece[: len(piece) - rules.encoding.trailing_nul_bytes(piece)]
    return single_block(text, start, start + len(source), RecordKind.PIECE, source=source)


def first_bytes(data: memoryview, rules: LineRules) -> memoryview:
    """Return the first bytes of an overlong line. If the line is cut, they are whole characters."""
    data = data[: len(data) - rules.encoding.trailing_nul_bytes(data)]
    is_cut = rules.on_overlong is Overlong.CUT
    return data[: rules.encoding.whole_bytes(data)] if is_cut else data


def kind_of(rules: LineRules) -> RecordKind:
    """Return the kind of record for an overlong line that is not split."""
    return RecordKind.CUT if rules.on_overlong is Overlong.CUT else RecordKind.DEAD_LETTER
