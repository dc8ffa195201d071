"""Generates and compiles the source of a writer: message in, encoded parts out.

This module is pure. It is the counterpart of `reader`. Neighbouring fixed-width fields, and the
length after them, are packed by one `struct` call. Arrays of structs are loops. The encoded parts
are appended to a list that the caller joins once, so `records` are never copied.
"""

from collections.abc import Callable
from struct import Struct as Packed
from struct import pack
from typing import Any

from protocol.errors import EncodeError
from protocol.wire import primitives
from protocol.wire.fields import Field, Struct
from protocol.wire.reader import FIXED_CODES, NUMBER_KINDS


def compile_writer(
    cls: type[Struct], version: int, flexible: bool
) -> Callable[[Any, Callable[[Any], None]], None]:
    """Return `write(message, append)` for one version of one message."""
    source = _WriterSource(version, flexible)
    text = source.function(cls)
    exec(compile(text, f"<writer of {cls.__name__} v{version}>", "exec"), source.scope)
    write: Callable[[Any, Callable[[Any], None]], None] = source.scope["write"]
    return write


def fail_null(what: str) -> None:
    """Raise the error for a null in a field that must not be null in this version."""
    raise EncodeError(f"{what} is None")


def fail_unsupported(what: str) -> None:
    """Raise the error for a value that the version cannot encode and that must not be dropped."""
    raise EncodeError(f"{what} cannot be carried by this version")


class _WriterSource:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.scope: dict[str, Any] = {
            "UVARINT_1": primitives.UVARINT_1,
            "encode_uvarint": primitives.encode_uvarint,
            "fail_null": fail_null,
            "fail_unsupported": fail_unsupported,
            "pack": pack,
        }
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        # Fixed-width values that are not packed yet, (struct code, expression). "x" packs a zero
        # byte.
        self.run: list[tuple[str, str]] = []

    def function(self, cls: type[Struct]) -> str:
        self.struct_fields(cls, "message")
        self.flush()
        return "\n".join(["def write(message, append):", *self.lines, "    return None"])

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, prefix: str, value: object) -> str:
        name = f"{prefix}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def packed(self, extra: str = "", value: str = "") -> str:
        """Return the expression that packs the collected values and, if `value` is given, this
        value too."""
        run = [*self.run, (extra, value)] if extra else self.run
        codes = "".join(code for code, _ in run)
        values = ", ".join(expression for _, expression in run if expression)
        if not values:
            return repr(bytes(len(codes)))
        if codes == "B":
            return f"UVARINT_1[{values}]"
        name = "pack_" + codes.replace("?", "t")
        self.scope.setdefault(name, Packed(">" + codes).pack)
        return f"{name}({values})"

    def flush(self) -> None:
        """Generate one call that packs the collected fixed-width values."""
        if self.run:
            self.line(f"append({self.packed()})")
            self.run = []

    def length(self, length: str, null: str, short: bool) -> None:
        """Generate the code that writes a length. It is null if the condition `null` is true."""
        if not self.flexible:
            value = f"-1 if {null} else {length}" if null else length
            self.run.append(("h" if short else "i", value))
            self.flush()
            return
        size = self.name("size")
        self.line(f"{size} = 0 if {null} else {length} + 1" if null else f"{size} = {length} + 1")
        self.line(f"if {size} < 128: append({self.packed('B', size)})")
        self.line("else:")
        self.depth += 1
        self.flush()
        self.line(f"append(encode_uvarint({size}))")
        self.depth -= 1

    def struct_fields(self, cls: type[Struct], instance: str) -> None:
        tagged = []
        for field in cls.fields:
            what = f"{cls.__name__}.{field.name}"
            source = f"{instance}.{field.name}"
            if not field.in_version(self.version):
                if not field.ignorable:
                    self.line(f"if {self.differs(field, source)}: fail_unsupported({what!r})")
            elif field.tag is not None and self.flexible:
                tagged.append(field)
            else:
                self.value(field, source, what)
        if self.flexible:
            self.tags(cls, instance, tagged)

    def differs(self, field: Field, source: str) -> str:
        """Return the condition under which a field differs from its default."""
        default = field.new_default()
        if default is None:
            return f"{source} is not None"
        if default is True:
            return f"not {source}"
        if isinstance(default, list) or default in (0, "", b""):
            return source
        if isinstance(default, int):
            return f"{source} != {default!r}"
        return f"{source} != {self.constant('default', default)}"

    def value(self, field: Field, source: str, what: str) -> None:
        if field.kind == "uuid":
            self.run.append(("16s", f"{source}.bytes"))
        elif field.kind in FIXED_CODES:
            self.run.append((FIXED_CODES[field.kind], source))
        elif field.kind == "array":
            self.array(field, source, what)
        elif field.kind == "struct":
            self.nested(field, source, what)
        else:
            self.sized(field, source, what)

    def sized(self, field: Field, source: str, what: str) -> None:
        """Generate the code that writes a string, bytes or records."""
        raw = self.name("b")
        nullable = field.nullable_in(self.version)
        encode = ".encode()" if field.kind == "string" else ""
        self.line(f"{raw} = {source}")
        if nullable:
            if encode:
                self.line(f"if {raw} is not None: {raw} = {raw}{encode}")
            self.length(f"len({raw})", f"{raw} is None", field.kind == "string")
            self.line(
                f"if {raw}: append({raw})" if encode else f"if {raw} is not None: append({raw})"
            )
            return
        self.line(f"if {raw} is None: fail_null({what!r})")
        if encode:
            self.line(f"{raw} = {raw}{encode}")
        self.length(f"len({raw})", "", field.kind == "string")
        self.line(f"append({raw})")

    def array(self, field: Field, source: str, what: str) -> None:
        values = self.name("v")
        self.line(f"{values} = {source}")
        nullable = field.nullable_in(self.version)
        if not nullable:
            self.line(f"if {values} is None: fail_null({what!r})")
        self.length(f"len({values})", f"{values} is None" if nullable else "", short=False)
        element = field.element
        assert element is not None
        if not isinstance(element, type) and element.kind in NUMBER_KINDS:
            self.numbers(FIXED_CODES[element.kind], values)
            return
        item = self.name("o")
        self.line(f"for {item} in {values} or ():" if nullable else f"for {item} in {values}:")
        self.depth += 1
        self.line("pass")
        if isinstance(element, type):
            self.struct_fields(element, item)
        else:
            self.value(element, item, what)
        self.flush()
        self.depth -= 1

    def numbers(self, code: str, values: str) -> None:
        table = f"pack_many_{code if code != '?' else 't'}"
        self.scope.setdefault(table, primitives.array_packers(code))
        count = self.name("count")
        self.line(f"if {values}:")
        self.depth += 1
        self.line(f"{count} = len({values})")
        self.line(
            f"append({table}[{count}](*{values}) if {count} < {primitives.SMALL_COUNT} "
            f"else pack(f'>{{{count}}}{code}', *{values}))"
        )
        self.depth -= 1

    def nested(self, field: Field, source: str, what: str) -> None:
        """Generate the code that writes a struct.

        Only a nullable struct starts with a marker byte.
        """
        assert isinstance(field.element, type)
        nested = self.name("o")
        self.flush()
        self.line(f"{nested} = {source}")
        if not field.nullable_in(self.version):
            self.line(f"if {nested} is None: fail_null({what!r})")
            self.struct_fields(field.element, nested)
            self.flush()
            return
        self.line(f"if {nested} is None: append(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.line("append(b'\\x01')")
        self.struct_fields(field.element, nested)
        self.flush()
        self.depth -= 1

    def tags(self, cls: type[Struct], instance: str, tagged: "list[Field]") -> None:
        """Generate the code that writes the tagged fields by ascending tag, except defaults."""
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        tagged.sort(key=lambda field: field.tag or 0)
        unset = " or ".join(self.differs(f, f"{instance}.{f.name}") for f in tagged)
        self.line(f"if not ({unset}): append(b'\\x00')")
        self.line("else:")
        self.depth += 1
        outer, section = self.name("append"), self.name("section")
        self.line(f"{outer} = append; {section} = []")
        for field in tagged:
            source = f"{instance}.{field.name}"
            pieces = self.name("pieces")
            condition = self.differs(field, source)
            if field.kind == "struct":
                assert isinstance(field.element, type)
                empty = self.constant("default", field.element())
                condition = f"{source} is not None and {source} != {empty}"
            self.line(f"if {condition}:")
            self.depth += 1
            self.line(f"{pieces} = []; append = {pieces}.append")
            self.value(field, source, f"{cls.__name__}.{field.name}")
            self.flush()
            self.line(f"{section}.append(({field.tag}, b''.join({pieces})))")
            self.depth -= 1
        self.line(f"append = {outer}")
        tag, content = self.name("tag"), self.name("content")
        self.line(f"append(encode_uvarint(len({section})))")
        self.line(f"for {tag}, {content} in {section}:")
        self.line(f"    append(encode_uvarint({tag}) + encode_uvarint(len({content})) + {content})")
        self.depth -= 1
