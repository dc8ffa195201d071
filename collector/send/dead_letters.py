"""Dead letters: lines that could not be sent, with the reason and their offset in the file.

This module is pure. A dead letter is sent in the same transaction as the lines before and after it.
Its value holds as many bytes of the file as its topic accepts. It has these headers:
- `reason`: overlong, invalid_bytes or damaged_archive
- `topic`: the topic of the line
- `file`, `offset` and `length`: the line's byte range in the file, of an archive in its content
- `key`: the key of the line if it differs from the key of the letter (empty for no key)
- `header.NAME`: each header of the line
"""

from dataclasses import replace

from collector.config.settings import BATCH_OVERHEAD_BYTES
from collector.identity.generation import Generation
from collector.text.encode import Header, Piece, header_octets, record_overhead_max
from collector.text.lines import Block, RecordKind, single_block

LINE_HEADER = b"header."
"""The prefix of a dead letter's header that holds a header of the line."""


def dead_letter(generation: Generation, line: Piece, key: bytes, batch_limit: int) -> Piece:
    """Return the dead letter for a line.

    `batch_limit` is the most bytes that its batch can have.
    """
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
