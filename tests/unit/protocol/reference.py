"""A second, slow and simple encoder that walks the field tables. The generated encoder must equal
it.

It shares only the declarations with `protocol.wire.writer`. It can also add unknown tagged fields
to every struct, and it yields its parts with their names, for the vectors.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from protocol.wire.schema import Field, Message, Struct

NUMBERS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}

Piece = tuple[bytes, str]
UnknownTags = Callable[[], dict[int, bytes]]


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, lowest first."""
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def encode(message: Message, version: int, unknown_tags: UnknownTags = dict) -> bytes:
    """Encode the body of a message. `unknown_tags` is called once per struct for tags to add."""
    return b"".join(piece for piece, _ in pieces(message, version, unknown_tags))


def pieces(message: Message, version: int, unknown_tags: UnknownTags = dict) -> Iterator[Piece]:
    """Yield the body field by field, with a comment on each."""
    flexible = version >= message.flexible_from
    yield from _struct(message, version, flexible, type(message).__name__, unknown_tags)


def _struct(
    value: Struct, version: int, flexible: bool, path: str, unknown_tags: UnknownTags
) -> Iterator[Piece]:
    tagged: dict[int, bytes] = {}
    for field in value.fields:
        if not field.since <= version <= field.until:
            continue
        content = getattr(value, field.name)
        if field.tag is None or not flexible:
            yield from _value(
                field, content, version, flexible, f"{path}.{field.name}", unknown_tags
            )
        elif not _is_default(field, content):
            parts = _value(field, content, version, flexible, path, unknown_tags)
            tagged[field.tag] = b"".join(part for part, _ in parts)
    if flexible:
        tagged |= unknown_tags()
        yield uvarint(len(tagged)), f"{path}: {len(tagged)} tagged fields"
        for tag, content in sorted(tagged.items()):
            yield uvarint(tag) + uvarint(len(content)) + content, f"{path}: tagged field {tag}"


def _is_default(field: Field, content: Any) -> bool:
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return content is None or content == field.element()
    return bool(content == field.new_default())


def _value(
    field: Field, content: Any, version: int, flexible: bool, path: str, unknown_tags: UnknownTags
) -> Iterator[Piece]:
    if field.kind in NUMBERS:
        yield struct.pack(NUMBERS[field.kind], content), f"{path} = {content}"
    elif field.kind == "uuid":
        yield content.bytes, f"{path} = {content}"
    elif field.kind == "array":
        count = None if content is None else len(content)
        yield _length(count, flexible, short=False), f"{path}: {_count(count)}"
        for index, item in enumerate(content or ()):
            at = f"{path}[{index}]"
            if isinstance(field.element, type):
                yield from _struct(item, version, flexible, at, unknown_tags)
            else:
                assert field.element is not None
                yield from _value(field.element, item, version, flexible, at, unknown_tags)
    elif field.kind == "struct":
        nullable = field.nullable is not None and version >= field.nullable
        if nullable:
            yield (b"\xff" if content is None else b"\x01"), f"{path}: null or not"
        if content is not None:
            yield from _struct(content, version, flexible, path, unknown_tags)
    else:
        raw = content.encode() if isinstance(content, str) else content
        size = None if raw is None else len(raw)
        length = _length(size, flexible, short=field.kind == "string")
        yield length + bytes(raw or b""), f"{path} = {content!r}"


def _count(count: int | None) -> str:
    return "null" if count is None else f"{count} elements"


def _length(length: int | None, flexible: bool, short: bool) -> bytes:
    if flexible:
        return uvarint(0 if length is None else length + 1)
    return struct.pack(">h" if short else ">i", -1 if length is None else length)
