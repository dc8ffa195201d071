"""Remove from lines what is not text: byte order marks and terminal escape sequences.

This module is pure. Positions and `source` stay those of the file. A block without such bytes is
returned unchanged.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from collector.text.encodings import NEWLINE
from collector.text.lines import Block, RecordKind, find_line_ends, single_block

_MARK = b"\xef\xbb\xbf"
_ESCAPE = 27
# ECMA-48: a control sequence, a string such as a window's title or a link, and short escapes.
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n\x00]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])"
)
_MARKS = {
    end: re.compile(rb"(?:\A|(?<=" + re.escape(bytes([end])) + rb"))(?:\xef\xbb\xbf)+")
    for end in (0, NEWLINE)
}


def clean(blocks: Iterable[Block], line_end: int, *, strip_ansi: bool) -> list[Block]:
    """Return the blocks of lines without byte order marks at the start of lines.

    With `strip_ansi`, escape sequences of terminals are removed too.
    """
    return [
        block if block.is_dead_letter else _cleaned(block, line_end, strip_ansi=strip_ansi)
        for block in blocks
    ]


def _cleaned(block: Block, line_end: int, *, strip_ansi: bool) -> Block:
    octets = np.frombuffer(block.data, dtype=np.uint8)
    has_escapes = strip_ansi and bool((octets == _ESCAPE).any())
    begins = block.newlines[:-1] + 1
    has_marks = block.kind is not RecordKind.PIECE and (
        octets[0] == _MARK[0] or bool((octets[begins] == _MARK[0]).any())
    )
    if not (has_escapes or has_marks):
        return block
    text = bytes(block.data)
    if has_escapes:
        text = _ESCAPES.sub(b"", text)
    if has_marks:
        text = _MARKS[line_end].sub(b"", text)
    if len(text) == len(block.data):
        return block
    if block.kind is not RecordKind.LINES:
        content = memoryview(text)[:-1]
        again = single_block(content, block.start, block.end, block.kind, source=block.source)
        return replace(again, evidence=block.evidence, altered=block.altered)
    data = memoryview(text)
    ends = block.newlines + 1 if block.source_ends is None else block.source_ends
    return replace(block, data=data, newlines=find_line_ends(data, line_end), source_ends=ends)
