"""How a message is declared: one slotted class per body for all versions.

Floor: wire. Pure. A class lists its fields in wire order:

    class ListOffsetsTopic(Struct):
        name: str = string()
        partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)

    class ListOffsetsRequest(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 7), flexible=6):
        replica_id: int = int32(default=-1)
        isolation_level: int = int8(since=2)
        topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)

A field says from which version (`since`) to which (`until`, inclusive) it is on the wire, from
which version null is allowed (`nullable`), which tag it has (`tag`: it then lives in the tagged
section and is left out at its default), its `default`, and whether a value that the version cannot
carry is dropped (`ignorable`) or refused with EncodeError, as in Kafka's own definitions.

Readers and writers are source text compiled per (class, version) at first use: `reader` and
`writer` beside this file. Decoded `records` are slices of the buffer; all else is copied out. A
tagged struct that was not on the wire is None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import error as StructError
from typing import Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform

from protocol.errors import BadString, BufferUnderflow, EncodeError, UnknownVersion, WireError
from protocol.types import ZERO_UUID
from protocol.wire.primitives import Buffer

VERSION_MAX = 0x7FFF
NEVER_FLEXIBLE = VERSION_MAX

CHUNK_SIZE_BYTES = 32 << 10
"""`encode_chunks` hands out `records` of at least this size by themselves, without a copy."""

Kind: TypeAlias = Literal[
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid",
    "string", "bytes", "records", "array", "struct",
]  # fmt: skip

Records: TypeAlias = Any
"""A memoryview once decoded; to be encoded, any bytes-like or, for `encode_chunks`, a sized region.

It is Any because the three sides differ: who reads gets a memoryview, who builds has a bytearray,
and a broker answers with a region of a file.
"""

_Reader: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
_Writer: TypeAlias = Callable[[Any, Callable[[Any], None]], None]

_MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<default>"})()


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field; `name` is filled in by the class that holds it."""

    kind: Kind
    element: "Field | type[Struct] | None"
    since: int
    until: int
    nullable: int | None
    tag: int | None
    default: Any
    ignorable: bool
    name: str = ""

    def in_version(self, version: int) -> bool:
        """Whether the version carries the field at all."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Whether the version allows null."""
        return self.nullable is not None and version >= self.nullable

    def new_default(self) -> Any:
        """The default, a fresh list or struct where it is one."""
        if self.default is not _MISSING:
            return self.default
        return self.element() if self.kind == "struct" and isinstance(self.element, type) else []


def _field(kind: Kind, default: Any) -> Callable[..., Any]:
    def declare(
        *,
        since: int = 0,
        until: int = VERSION_MAX,
        nullable: int | None = None,
        tag: int | None = None,
        default: Any = default,
        ignorable: bool = False,
    ) -> Any:
        return Field(kind, None, since, until, nullable, tag, default, ignorable)

    declare.__name__ = declare.__qualname__ = kind
    return declare


boolean = _field("bool", False)
int8 = _field("int8", 0)
int16 = _field("int16", 0)
uint16 = _field("uint16", 0)
int32 = _field("int32", 0)
uint32 = _field("uint32", 0)
int64 = _field("int64", 0)
float64 = _field("float64", 0.0)
uuid_ = _field("uuid", ZERO_UUID)
string = _field("string", "")
bytes_ = _field("bytes", b"")
records_ = _field("records", None)


def array(
    element: "Callable[..., Any] | type[Struct]",
    *,
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: int | None = None,
    tag: int | None = None,
    default: Any = _MISSING,
    ignorable: bool = False,
) -> Any:
    """An array of structs (pass the class) or of simple values (pass `int32`, `string`, ...)."""
    of = element if isinstance(element, type) else element()
    return Field("array", of, since, until, nullable, tag, default, ignorable)


def struct(
    element: "type[Struct]",
    *,
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """One nested struct.

    Where it is nullable or tagged its default is None, "not there"; else a new one of its kind.
    """
    default = _MISSING if nullable is None and tag is None else None
    return Field("struct", element, since, until, nullable, tag, default, ignorable)


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Turns declared fields into slots, a keyword constructor, equality and a repr."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "StructMeta":
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                del namespace[key]
                fields.append(
                    Field(
                        value.kind, value.element, value.since, value.until, value.nullable,
                        value.tag, value.default, value.ignorable, key,
                    )
                )  # fmt: skip
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["fields"] = tuple(fields)
        namespace.update(_dunders(name, fields))
        return super().__new__(mcs, name, bases, namespace, **options)


def _dunders(name: str, fields: list[Field]) -> dict[str, Any]:
    scope: dict[str, Any] = {"_MISSING": _MISSING}
    parameters, assignments = [], []
    for field in fields:
        if field.default is _MISSING:
            fresh = "[]"
            if field.kind == "struct":
                fresh = f"new_{field.name}()"
                scope[f"new_{field.name}"] = field.element
            parameters.append(f"{field.name}=_MISSING")
            assignments.append(
                f"self.{field.name} = {fresh} if {field.name} is _MISSING else {field.name}"
            )
        else:
            scope[f"default_{field.name}"] = field.default
            parameters.append(f"{field.name}=default_{field.name}")
            assignments.append(f"self.{field.name} = {field.name}")
    takes = f"*, {', '.join(parameters)}" if fields else ""
    same = " and ".join(f"self.{f.name} == other.{f.name}" for f in fields) or "True"
    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in fields)
    source = "\n".join(
        [
            f"def __init__(self, {takes}):",
            *(f"    {line}" for line in assignments or ["pass"]),
            "def __eq__(self, other):",
            "    if type(other) is not type(self): return NotImplemented",
            f"    return {same}",
            "def __repr__(self):",
            f"    return f'{name}({shown})'",
        ]
    )
    exec(compile(source, f"<fields of {name}>", "exec"), scope)
    return {key: scope[key] for key in ("__init__", "__eq__", "__repr__")} | {"__hash__": None}


class Struct(metaclass=StructMeta):
    """A part of a message. Plain mutable data; equal when all fields are equal."""

    fields: ClassVar[tuple[Field, ...]]


class Message(Struct):
    """A whole request or response body, which can be encoded and decoded by itself.

    `valid_versions`: the versions this class can read and write. `flexible_from`: the first version
    with compact lengths and tagged fields. `has_records`: decoding returns slices of the buffer,
    which the caller must keep unchanged for as long as it uses them.
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
        """Read one body from `position`; returns it and where it ended.

        Any fault of the bytes is a WireError. Bytes behind the end are the caller's to judge.
        `is_strict`: so is a tagged field that is not known, which others step over.
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
        """The whole body as bytes; `records` must be bytes-like."""
        parts = self.encode_parts(version)
        try:
            return b"".join(parts)
        except TypeError as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from None

    def encode_parts(self, version: int) -> list[Any]:
        """The body as the pieces it was written in, `records` as they were given.

        For callers that join them with a header of their own; see `messages.headers`.
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
        """The body as few chunks: bytes, and between them `records` that are large or no bytes.

        A region (any sized object that is not bytes-like) is handed back as it is, whatever its
        size, and counts with its length in the lengths around it.
        """
        return join_chunks(self.encode_parts(version))

    @classmethod
    def check_version(cls, version: int) -> None:
        """UnknownVersion unless this class can read and write the version."""
        if version not in cls.valid_versions:
            valid = f"{cls.valid_versions[0]} to {cls.valid_versions[-1]}"
            raise UnknownVersion(f"{cls.__name__} v{version}, only {valid} are known")

    @classmethod
    def _reader(cls, version: int, is_strict: bool) -> _Reader:
        from protocol.wire.reader import compile_reader

        cls.check_version(version)
        is_flexible = version >= cls.flexible_from
        reader = compile_reader(cls, version, is_flexible, cls.has_records, is_strict)
        (cls._strict_readers if is_strict else cls._readers)[version] = reader
        return reader

    @classmethod
    def _writer(cls, version: int) -> _Writer:
        from protocol.wire.writer import compile_writer

        cls.check_version(version)
        writer = compile_writer(cls, version, version >= cls.flexible_from)
        cls._writers[version] = writer
        return writer


def join_chunks(parts: list[Any]) -> list[Any]:
    """Join neighbouring small pieces; leave large ones and regions alone, in order."""
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
