"""Turn blocks of lines into blocks of multi-line events.

This module is pure. An event is one record, whose lines are separated by newlines. The last event
of a read is open as long as the next line can belong to it.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from collector.config.multiline import By, EventRules
from collector.text.encodings import Positions
from collector.text.lines import Block, RecordKind, find_line_ends, single_block
from collector.text.partial import join_parts


def gather(blocks: Iterable[Block], rules: EventRules) -> tuple[list[Block], Block | None]:
    """Return blocks with the lines joined to events, and the event that is open at the end, if any.

    A block that holds no lines (an overlong line, a dead letter) ends the event before it.
    """
    out: list[Block] = []
    open_event: Block | None = None
    for block in blocks:
        if open_event is not None:
            out.append(open_event)
            open_event = None
        if block.kind is RecordKind.LINES and rules.by is By.PARTIAL:
            parts, open_event = join_parts(_without_cr(block), rules)
            out += parts
        elif block.kind is RecordKind.LINES:
            closed, open_event = _group(_without_cr(block), rules)
            if closed is not None:
                out.append(closed)
        else:
            out.append(block)
    return out, open_event


def continues(event: Block, block: Block, rules: EventRules) -> bool:
    """Tell whether the first record of a block continues an open event, within the limits."""
    if rules.by is By.PARTIAL:
        return False
    first = _lines(event)
    more = _lines(block.split_at(1)[0] if block.count > 1 else block)
    if rules.begins((first[-1], more[0]))[1] or len(first) + len(more) > rules.max_lines:
        return False
    return _source_bytes(event) + int(_ends(block)[0]) <= rules.max_bytes


def joined(event: Block, first: Block) -> Block:
    """Join an open event and the one-record block that continues the event. Return them as one
    record.

    The record has the second block's range in the source file.
    """
    data = bytes(event.data) + bytes(first.data)
    newlines = np.array([len(data) - 1], dtype=np.int64)
    return replace(
        first,
        data=memoryview(data),
        newlines=newlines,
        cut_cr=False,
        kind=RecordKind.EVENTS if first.kind is RecordKind.LINES else first.kind,
        source_ends=None if first.source is None else _ends(first),
    )


def unfinished(event: Block | None, last: Block, rules: EventRules) -> list[Block]:
    """Return the last records of a closed file: the open event and the unfinished line.

    The line is joined to the event if it continues the event.
    """
    if event is None:
        return [last]
    if last.kind is not RecordKind.UNFINISHED or not continues(event, last, rules):
        return [event, last]
    content = bytes(event.data) + bytes(last.data[:-1])
    return [
        single_block(
            memoryview(content),
            event.start,
            last.end,
            RecordKind.UNFINISHED,
            evidence=last.evidence,
        )
    ]


def _group(block: Block, rules: EventRules) -> tuple[Block | None, Block | None]:
    """Return the complete events of one block of lines, and the open event."""
    lines = _lines(block)
    ends = _ends(block)
    lasts, cut = _last_lines(lines, ends.tolist(), rules)
    if len(lasts) == block.count:
        return block, None
    first_open = lasts[-1] + 1 if lasts else 0
    if first_open == block.count:
        return _events(block, lasts, cut), None
    if not lasts:
        return None, _events(block, [block.count - 1], [])
    whole, rest = replace(block, source_ends=ends).split_at(first_open)
    return _events(whole, lasts, cut), _events(rest, [rest.count - 1], [])


def _last_lines(
    lines: list[str], ends: list[int], rules: EventRules
) -> tuple[list[int], list[int]]:
    """Return the last line of each complete event, and which of these events a limit ended."""
    begins = rules.begins(lines)
    lasts: list[int] = []
    cut: list[int] = []
    first, begin = 0, 0
    for index in range(1, len(lines)):
        is_full = index - first >= rules.max_lines
        if begins[index] or is_full or ends[index] - begin > rules.max_bytes:
            if is_full or not begins[index]:
                cut.append(len(lasts))
            lasts.append(index - 1)
            first, begin = index, ends[index - 1]
    is_full = len(lines) - first >= rules.max_lines
    if is_full or rules.ends(lines[-1]):
        if is_full:
            cut.append(len(lasts))
        lasts.append(len(lines) - 1)
    return lasts, cut


def _events(block: Block, lasts: list[int], cut: list[int]) -> Block:
    """Return the block with records that end at the given lines."""
    if len(lasts) == block.count:
        return block
    places = np.array(lasts, dtype=np.int64)
    altered = block.altered
    return replace(
        block,
        newlines=block.newlines[places],
        kind=RecordKind.EVENTS,
        source_ends=_ends(block)[places],
        altered=None if altered is None else np.unique(np.searchsorted(places, altered)),
        shortened=np.array(cut, dtype=np.int64) if cut else None,
    )


def _lines(block: Block) -> list[str]:
    text = bytes(block.data[:-1]).decode(errors="replace")
    return [line.removesuffix("\r") if block.cut_cr else line for line in text.split("\n")]


def _ends(block: Block) -> Positions:
    """Return the offset in the block's source at which each record ends."""
    if block.source_ends is not None:
        return block.source_ends
    if block.kind is RecordKind.LINES:
        return block.newlines + 1
    return np.array([block.end - block.start], dtype=np.int64)


def _source_bytes(block: Block) -> int:
    return block.end - block.start


def _without_cr(block: Block) -> Block:
    """Remove the CRs at line ends, because they would otherwise be inside events."""
    if not block.cut_cr:
        return block
    data = bytes(block.data)
    if b"\r\n" not in data:
        return replace(block, cut_cr=False)
    text = memoryview(data.replace(b"\r\n", b"\n"))
    return replace(
        block, data=text, newlines=find_line_ends(text), cut_cr=False, source_ends=_ends(block)
    )
