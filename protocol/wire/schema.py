"""Declares messages: one slotted class per body for all versions.

This module is pure. A class lists its fields in wire order:

    class ListOffsetsTopic(Struct):
        name: str = string()
        partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)

    class ListOffsetsRequest(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 7), flexible=6):
        replica_id: int = int32(default=-1)
        isolation_level: int = int8(since=2)
        topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)

A field declares its first (`since`) and last version (`until`, inclusive), the first version that
allows null (`nullable`), its tag (`tag`: it is in the tagged section and omitted at its default),
and its `default`. As in Kafka's own definitions, a value that the version cannot carry is dropped
(`ignorable`) or refused with EncodeError.

Readers and writers are source text, compiled per (class, version) at first use by `reader` and
`writer`. Decoded `records` are slices of the buffer; everything else is copied. A tagged struct
that was not on the wire is None.
"""

from collections.abc import Callable
from struct import error as StructError
from typing import Any, ClassVar, Self, TypeAlias

from protocol.errors import BadString, BufferUnderflow, EncodeError, UnknownVersion, WireError
from protocol.wire.fields import (
    NEVER_FLEXIBLE,
    VERSION_MAX,
    Field,
    Records,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    uint16,
    uint32,
    uuid_,
)
from protocol.wire.primitives import Buffer
from protocol.wire.reader import compile_reader
from protocol.wire.writer import compile_writer

__all__ = [
    "CHUNK_SIZE_BYTES",
    "NEVER_FLEXIBLE",
    "VERSION_MAX",
    "Field",
    "Message",
    "Records",
    "Struct",
    "array",
    "boolean",
    "bytes_",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "join_chunks",
    "records_",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid_",
]

CHUNK_SIZE_BYTES = 32 << 10
"""The size from which `encode_chunks` returns `records` as separate chunks, without a copy."""

_Reader: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
_Writer: TypeAlias = Callable[[Any, Callable[[Any], None]], None]


class Message(Struct):
    """A whole request or response body.

    `valid_versions`: the versions that this class can read and write. `flexible_from`: the first
    version with compact lengths and tagged fields. `has_records`: decoding returns slices of the
    buffer, so the caller must not change the buffer while it uses them.
    """

    api_key: ClassVar[int]
    valid_versions: ClassVar[range]
    flexible_from: ClassVar[int]
    has_records: ClassVar[bool]
    _readers: ClassVar[dict[int, _Reader]]
    _strict_readers: ClassVar[dict[int, _Reader]]
    _writers: ClassVar[dict[int, _Writer]]

    def __init_subclass__(cls, *, api_key: int, versions: tuple[int, int], flexible: int) -> None:
        cls.api_key = api_key
        cls.valid_versions = range(versions[0], versions[1] + 1)
        cls.flexible_from = flexible
        cls.has_records = _holds_records(cls)
        cls._readers = {}
        cls._strict_readers = {}
        cls._writers = {}

    @classmethod
    def decode(
        cls, buffer: Buffer, version: int, position: int = 0, *, is_strict: bool = False
    ) -> tuple[Self, int]:
        """Decode one body that starts at `position`. Return the body and its end.

        Every fault of the bytes raises a WireError. The caller decides about bytes after the end.
        With `is_strict` an unknown tagged field also raises an error; otherwise it is skipped.
        """
        readers = cls._strict_readers if is_strict else cls._readers
        reader = readers.get(version) or cls._reader(version, is_strict)
        try:
            return reader(buffer, position, len(buffer))
        except (StructError, IndexError) as error:
            raise BufferUnderflow(f"{cls.__name__} v{version} ends early: {error}") from None
        except UnicodeDecodeError as error:
            raise BadString(f"{cls.__name__} v{version}: {error}") from None
        except WireError as error:
            raise type(error)(f"{cls.__name__} v{version}: {error}") from None

    def encode(self, version: int) -> bytes:
        """Return the whole body as bytes. `records` must be bytes-like."""
        parts = self.encode_parts(version)
        try:
            return b"".join(parts)
        except TypeError as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from None

    def encode_parts(self, version: int) -> list[Any]:
        """Return the body as a list of encoded parts, with `records` unchanged.

        It is for callers that join the parts with a header; see `messages.headers`.
        """
        writer = self._writers.get(version) or self._writer(version)
        parts: list[Any] = []
        try:
            writer(self, parts.append)
        except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        except EncodeError as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from None
        return parts

    def encode_chunks(self, version: int) -> list[Any]:
        """Return the body in few chunks. Large `records` are separate chunks, which are not copied.

        A file region (any sized object that is not bytes-like) is always a separate chunk. The
        lengths before it include its length.
        """
        return join_chunks(self.encode_parts(version))

    @classmethod
    def check_version(cls, version: int) -> None:
        """Raise UnknownVersion unless this class can read and write the version."""
        if version not in cls.valid_versions:
            valid = f"{cls.valid_versions[0]} to {cls.valid_versions[-1]}"
            raise UnknownVersion(f"{cls.__name__} v{version}, only {valid} are known")

    @classmethod
    def _reader(cls, version: int, is_strict: bool) -> _Reader:
        cls.check_version(version)
        is_flexible = version >= cls.flexible_from
        reader = compile_reader(cls, version, is_flexible, cls.has_records, is_strict)
        (cls._strict_readers if is_strict else cls._readers)[version] = reader
        return reader

    @classmethod
    def _writer(cls, version: int) -> _Writer:
        cls.check_version(version)
        writer = compile_writer(cls, version, version >= cls.flexible_from)
        cls._writers[version] = writer
        return writer


def join_chunks(parts: list[Any]) -> list[Any]:
    """Join neighbouring small parts. Keep large parts and file regions unchanged, in order."""
    chunks: list[Any] = []
    small: list[Any] = []
    for part in parts:
        if isinstance(part, (bytes, bytearray, memoryview)) and len(part) < CHUNK_SIZE_BYTES:
            small.append(part)
            continue
        if small:
            chunks.append(b"".join(small))
            small = []
        chunks.append(part)
    if small:
        chunks.append(b"".join(small))
    return chunks


def _holds_records(cls: type[Struct]) -> bool:
    return any(
        field.kind == "records"
        or (isinstance(field.element, type) and _holds_records(field.element))
        for field in cls.fields
    )
