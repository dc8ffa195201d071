"""Convert blocks in a file's own encoding to blocks of UTF-8.

This module is pure. A block of valid text is converted at once. A block with invalid bytes is
converted line by line, to find out which lines have them.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from collector.text.encodings import Encoding, Positions
from collector.text.lines import Block, RecordKind, find_line_ends, single_block


def recode(blocks: Iterable[Block], encoding: Encoding) -> list[Block]:
    """Return the blocks with their lines as UTF-8. Lines for the dead letters become separate
    blocks.

    Positions and `source` remain those of the file.
    """
    out: list[Block] = []
    for block in blocks:
        if block.kind is RecordKind.LINES:
            out += _lines(block, encoding)
        elif block.kind is RecordKind.DEAD_LETTER:
            out.append(block)  # a dead letter keeps the file's bytes
        else:
            out.append(_single(block, encoding))
    return out


def _single(block: Block, encoding: Encoding) -> Block:
    """Convert a block of one record. A single newline byte follows its content."""
    content = block.data[:-1]
    text, is_text = _text(content, encoding)
    if text is None:
        return replace(block, kind=RecordKind.INVALID)
    again = single_block(
        memoryview(text),
        block.start,
        block.end,
        block.kind,
        source=block.source,
        evidence=block.evidence,
    )
    return again if is_text else replace(again, altered=np.zeros(1, dtype=np.int64))


def _lines(block: Block, encoding: Encoding) -> list[Block]:
    text, is_text = _text(block.data, encoding)
    if text is not None and is_text:
        newlines = find_line_ends(memoryview(text), encoding.line_end)
        return [_recoded(block, text, newlines, _ends(block, encoding))]
    return _line_by_line(block, encoding)


def _text(data: memoryview, encoding: Encoding) -> tuple[bytes | None, bool]:
    """Return the bytes as UTF-8 (None for the dead letters), and whether all were valid text."""
    try:
        return encoding.text(data), True
    except UnicodeDecodeError:
        return encoding.despite_faults(data), False


def _line_by_line(block: Block, encoding: Encoding) -> list[Block]:
    out: list[Block] = []
    texts: list[bytes] = []
    altered: list[int] = []
    first, begin = 0, 0
    ends = _ends(block, encoding)

    def close(count: int) -> None:
        """Add a block of the collected lines, which precede the line `count`."""
        if not texts:
            return
        source_begin = int(ends[first - 1]) if first else 0
        stretch = block.data[source_begin : int(ends[count - 1])]
        source = replace(block, data=stretch, start=block.start + source_begin)
        text = b"\n".join(texts) + b"\n"
        lengths = np.fromiter((len(one) + 1 for one in texts), dtype=np.int64, count=len(texts))
        found = _recoded(source, text, np.cumsum(lengths) - 1, ends[first:count] - source_begin)
        out.append(replace(found, altered=np.array(altered, dtype=np.int64)))
        texts.clear()
        altered.clear()

    for index, end in enumerate(ends.tolist()):
        line = block.data[begin : end - encoding.unit_bytes]
        text, is_text = _text(line, encoding)
        if text is None:
            close(index)
            first = index + 1
            out.append(
                single_block(
                    line,
                    block.start + begin,
                    block.start + end,
                    RecordKind.INVALID,
                    source=block.data[begin:end],
                )
            )
        else:
            if not is_text:
                altered.append(len(texts))
            texts.append(text)
        begin = end
    close(len(ends))
    return out


def _ends(block: Block, encoding: Encoding) -> Positions:
    return block.newlines + encoding.unit_bytes


def _recoded(source: Block, text: bytes, newlines: Positions, ends: Positions) -> Block:
    return Block(
        memoryview(text),
        newlines,
        source.start,
        source.start + len(source.data),
        source.cut_cr,
        RecordKind.LINES,
        source.data,
        source_ends=ends,
    )
