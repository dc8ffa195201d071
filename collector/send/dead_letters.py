"""Dead letters: lines that could not be sent, with the reason and their place in the file.

Room: above `encode` and `generation`. Pure. A dead letter is sent in the transaction of the lines
around it. Its value holds the file's own bytes, as many as its topic accepts. Its headers are:
`reason` (overlong, invalid_bytes, damaged_archive), `topic` (of the line), `file`, `offset` and
`length` (in bytes of the file, decompressed), `key` if the line's key differs from the letter's
(empty for no key), and `header.NAME` for each header of the line.
"""

from dataclasses import replace

from collector.config.settings import BATCH_OVERHEAD_BYTES
from collector.identity.generation import Generation
from collector.text.encode import Header, Piece, header_octets, record_overhead_max
from collector.text.lines import Block, RecordKind, single_block

LINE_HEADER = b"header."
"""The prefix for the name of each header of the line."""


def dead_letter(generation: Generation, line: Piece, key: bytes, batch_limit: int) -> Piece:
    """Return the dead letter for a line; `batch_limit` is the most bytes of its batch."""
    block = line.block
    headers: tuple[Header, ...] = (
        (b"reason", _reason(generation, block)),
        (b"topic", generation.topic.encode()),
        (b"file", generation.path.encode(errors="surrogateescape")),
        (b"offset", str(block.start).encode()),
        (b"length", str(block.end - block.start).encode()),
    )
    if line.key != key:
        headers += ((b"key", line.key or b""),)
    headers += tuple((LINE_HEADER + name, content) for name, content in line.headers)
    overhead = record_overhead_max(key) + len(header_octets(headers)) + BATCH_OVERHEAD_BYTES // 8
    room = max(0, batch_limit - overhead)
    if len(block.data) - 1 > room:
        cut = single_block(block.data[:room], block.start, block.end, block.kind)
        block = replace(block, data=cut.data, newlines=cut.newlines)
    return Piece(key, block, headers)


def _reason(generation: Generation, block: Block) -> bytes:
    if block.kind is RecordKind.INVALID:
        return b"invalid_bytes"
    is_damaged = generation.archive is not None and generation.archive.damage is not None
    return b"damaged_archive" if is_damaged else b"overlong"
