"""Add fields to lines that are JSON objects.

This module is pure. The new fields come after the fields of the line, whose own bytes are
unchanged. A field that the line already has is not added. A line that is not a JSON object is sent
unchanged. Parsing each line is slow, so inputs without fields skip this module.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.config.headers import FieldValue
from collector.text.encodings import Positions
from collector.text.lines import Block, RecordKind

WHITESPACE = b" \t\r"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# Numbers are not converted, so a number of any length is accepted.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


@dataclass(frozen=True, slots=True)
class Fields:
    """The names of the fields to add, and the JSON text of each field."""

    names: tuple[str, ...]
    texts: tuple[bytes, ...]

    @property
    def bytes_max(self) -> int:
        """The most bytes that the fields add to a line."""
        return sum(len(text) + 1 for text in self.texts)

    def put_into(self, line: bytes) -> bytes | None:
        """Return the line with the fields that it lacks; None if it is not a JSON object."""
        end = len(line.rstrip(WHITESPACE)) - 1
        if end < 1 or line[end] != ord("}"):
            return None
        try:
            found = _DECODER.decode(line.decode())
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        texts = [
            text for name, text in zip(self.names, self.texts, strict=True) if name not in found
        ]
        if not texts:
            return line
        before = [line[:end]] if found else [line[:end] + texts.pop(0)]
        return b",".join(before + texts) + line[end:]


def fields_of(values: Mapping[str, FieldValue]) -> Fields:
    """Return the fields as JSON text. Raises ValueError for a number that JSON cannot represent."""
    return Fields(
        tuple(values), tuple(_text(name) + b":" + _text(value) for name, value in values.items())
    )


def put_fields(blocks: Iterable[Block], fields: Fields) -> list[Block]:
    """Return the blocks with the fields added to the records that are JSON objects.

    Positions and `source` remain those of the file. `bare` lists the records without the added
    fields.
    """
    return [block if block.is_dead_letter else _with_fields(block, fields) for block in blocks]


def _with_fields(block: Block, fields: Fields) -> Block:
    if block.kind in (RecordKind.PIECE, RecordKind.CUT):
        return replace(block, bare=np.arange(block.count, dtype=np.int64))
    lines, bare = _lines(block, fields)
    data = memoryview(b"\n".join(lines) + b"\n")
    lengths = np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines))
    return replace(
        block,
        data=data,
        newlines=np.cumsum(lengths) - 1,
        source_ends=_source_ends(block),
        bare=np.array(bare, dtype=np.int64),
    )


def _lines(block: Block, fields: Fields) -> tuple[Sequence[bytes], list[int]]:
    """Return the new text of each record, and the indices of the records that are not JSON
    objects."""
    text = bytes(block.data)
    lines, bare, begin = [], [], 0
    for index, newline in enumerate(block.newlines.tolist()):
        line = text[begin:newline]
        with_fields = fields.put_into(line)
        if with_fields is None:
            bare.append(index)
        lines.append(line if with_fields is None else with_fields)
        begin = newline + 1
    return lines, bare


def _source_ends(block: Block) -> Positions | None:
    """Return the source offset at which each record ends; None if the block has only one record."""
    if block.source_ends is not None or block.kind is not RecordKind.LINES:
        return block.source_ends
    return block.newlines + 1


def _text(value: FieldValue) -> bytes:
    # Write a lone surrogate as a JSON escape, because UTF-8 cannot encode it.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace")
