"""Declares the fields of a message, and the struct class that holds them.

This module is pure. `schema` documents the options and re-exports everything for messages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, dataclass_transform

from protocol.types import ZERO_UUID

VERSION_MAX = 0x7FFF
NEVER_FLEXIBLE = VERSION_MAX

Kind: TypeAlias = Literal[
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid",
    "string", "bytes", "records", "array", "struct",
]  # fmt: skip

Records: TypeAlias = Any
"""The type of a `records` field. Decoding gives a memoryview; encoding takes any bytes-like object.

`encode_chunks` also takes a sized file region. The type is Any because the three uses differ: a
reader gets a memoryview, a builder has a bytearray, and a broker answers with a file region.
"""

_MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<default>"})()


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field. The class that has the field sets `name`."""

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
        """Return whether the version has the field."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Return whether the version allows null."""
        return self.nullable is not None and version >= self.nullable

    def new_default(self) -> Any:
        """Return the default. If it is a list or struct, return a new one."""
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
    """Declare an array of structs (pass the class) or of simple values (pass `int32`, `string`,
    ...)."""
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
    """Declare one nested struct.

    If it is nullable or tagged, its default is None, which means absent. Otherwise the default is a
    new instance.
    """
    default = _MISSING if nullable is None and tag is None else None
    return Field("struct", element, since, until, nullable, tag, default, ignorable)


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """The metaclass of Struct: makes slots, constructor, equality and repr from declared fields."""

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
    """A part of a message. It is mutable, and equal to another struct if all fields are equal."""

    fields: ClassVar[tuple[Field, ...]]
