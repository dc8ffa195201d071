"""Generates and compiles the source of a reader: buffer in, message out.

This module is pure. The code of a reader is straight-line for one (class, version). Neighbouring
fixed-width fields are read by one `struct` call, together with the length of the next string or
array. Arrays of structs are loops, without a call per element. Invariant: `pos` never exceeds
`limit`, because every length is compared with the remaining bytes first. Fixed-width reads after
the end raise struct.error or IndexError, which `Message.decode` translates.
"""

from collections.abc import Callable
from struct import Struct as Packed
from struct import calcsize, unpack_from
from typing import Any

from protocol.wire import primitives
from protocol.wire.fields import Field, Struct
from protocol.wire.limits import LIMITS

FIXED_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

NUMBER_KINDS = frozenset(FIXED_CODES) - {"uuid"}

_HELPERS = (
    "fail_count",
    "fail_length",
    "fail_marker",
    "fail_string",
    "fail_tag",
    "fail_tags",
    "read_tag",
    "read_tag_count",
    "read_uvarint",
    "skip_tags",
    "uuid_from_bytes",
)


def compile_reader(
    cls: type[Struct], version: int, flexible: bool, keep_views: bool, is_strict: bool = False
) -> Callable[[Any, int, int], tuple[Any, int]]:
    """Return `read(buffer, position, limit) -> (message, end)` for one version of one message.

    `keep_views`: the message has `records`, so the buffer is sliced as a memoryview. Otherwise the
    buffer is converted to bytes once, because slices of bytes decode faster. `is_strict`: an
    unknown tagged field raises BadTags; otherwise it is skipped.
    """
    source = _ReaderSource(version, flexible, keep_views, is_strict)
    text = source.function(cls)
    exec(compile(text, f"<reader of {cls.__name__} v{version}>", "exec"), source.scope)
    read: Callable[[Any, int, int], tuple[Any, int]] = source.scope["read"]
    return read


def least_size(field: "Field | type[Struct]", version: int, flexible: bool) -> int:
    """Return the fewest bytes of an array element; at least 1, so that counts are limited."""
    if isinstance(field, type):
        present = [f for f in field.fields if f.in_version(version) and f.tag is None]
        return max(1, sum(least_size(f, version, flexible) for f in present) + flexible)
    if field.kind in FIXED_CODES:
        return calcsize(">" + FIXED_CODES[field.kind])
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return 1 if field.nullable_in(version) else least_size(field.element, version, flexible)
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


class _ReaderSource:
    def __init__(self, version: int, flexible: bool, keep_views: bool, is_strict: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.keep_views = keep_views
        self.is_strict = is_strict
        self.scope: dict[str, Any] = {name: getattr(primitives, name) for name in _HELPERS}
        self.scope |= {"new": object.__new__, "unpack_from": unpack_from}
        self.scope["NUMBER_COUNT_MAX"] = LIMITS.number_count_max
        self.scope["STRING_BYTES_MAX"] = primitives.STRING_BYTES_MAX
        self.scope["ELEMENT_COUNT_MAX"] = LIMITS.element_count_max
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.has_numbers = False
        # Fixed-width fields that are not read yet, (struct code, target), and the code to run after
        # reading them.
        self.run: list[tuple[str, str]] = []
        self.after: list[str] = []

    def function(self, cls: type[Struct]) -> str:
        self.line(
            "if type(buf) is not memoryview: buf = memoryview(buf)"
            if self.keep_views
            else "if type(buf) is not bytes: buf = bytes(buf)"
        )
        self.line("room = ELEMENT_COUNT_MAX")
        target = self.struct_fields(cls)
        self.flush()
        self.line(f"return {target}, pos")
        begin = ["def read(buf, pos, limit):"]
        if self.has_numbers:
            begin.append("    number_room = NUMBER_COUNT_MAX")
        return "\n".join([*begin, *self.lines])

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, prefix: str, value: object) -> str:
        name = f"{prefix}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def flush(self) -> None:
        """Generate one call that reads the collected fixed-width fields."""
        if not self.run:
            return
        codes = ">" + "".join(code for code, _ in self.run)
        if codes == ">B":
            self.line(f"{self.run[0][1]} = buf[pos]")
        else:
            unpack = "unpack" + codes[1:].replace("?", "t")
            self.scope.setdefault(unpack, Packed(codes).unpack_from)
            targets = ", ".join(target for _, target in self.run)
            comma = "," if len(self.run) == 1 else ""
            self.line(f"{targets}{comma} = {unpack}(buf, pos)")
        self.line(f"pos += {calcsize(codes)}")
        for text in self.after:
            self.line(text)
        self.run = []
        self.after = []

    def struct_fields(self, cls: type[Struct]) -> str:
        """Generate the code that creates an instance and reads its fields. Return its variable."""
        instance = self.name("o")
        self.line(f"{instance} = new({self.class_name(cls)})")
        known_tags = []
        for field in cls.fields:
            target = f"{instance}.{field.name}"
            if not field.in_version(self.version):
                self.assign_default(field, target)
            elif field.tag is not None and self.flexible:
                self.assign_default(field, target)
                known_tags.append(field)
            else:
                self.value(field, target, f"{cls.__name__}.{field.name}")
        if self.flexible:
            self.tags(cls, instance, known_tags)
        return instance

    def class_name(self, cls: type) -> str:
        self.scope[cls.__name__] = cls
        return cls.__name__

    def assign_default(self, field: Field, target: str) -> None:
        default = field.new_default()
        if isinstance(default, list):
            self.line(f"{target} = []")
        elif default is None or isinstance(default, (bool, int, str)):
            self.line(f"{target} = {default!r}")
        else:
            self.line(f"{target} = {self.constant('default', default)}")

    def value(self, field: Field, target: str, what: str) -> None:
        """Generate the code that reads one value of any kind into `target`."""
        if field.kind in FIXED_CODES:
            if field.kind == "uuid":
                raw = self.name("raw")
                self.run.append(("16s", raw))
                self.after.append(f"{target} = uuid_from_bytes({raw})")
            else:
                self.run.append((FIXED_CODES[field.kind], target))
        elif field.kind == "array":
            self.array(field, target, what)
        elif field.kind == "struct":
            self.nested(field, target, what)
        else:
            self.sized(field, target, what)

    def length(self, short: bool) -> str:
        """Generate the code that reads a length or count. Null becomes -1 in every format."""
        length = self.name("n")
        if self.flexible:
            self.run.append(("B", length))
            self.flush()
            self.line(f"if {length} > 127: {length}, pos = read_uvarint(buf, pos - 1)")
            self.line(f"{length} -= 1")
        else:
            self.run.append(("h" if short else "i", length))
            self.flush()
        return length

    def sized(self, field: Field, target: str, what: str) -> None:
        """Generate the code that reads a string, bytes or records."""
        length = self.length(short=field.kind == "string")
        nullable = field.nullable_in(self.version)
        if nullable:
            self.line(f"if {length} == -1: {target} = None")
            self.line("else:")
            self.depth += 1
        if self.flexible and field.kind == "string":
            self.line(f"if {length} > STRING_BYTES_MAX: fail_string({length}, {what!r})")
        self.line(f"end = pos + {length}")
        self.line(f"if {length} < 0 or end > limit: fail_length({length}, limit - pos, {what!r})")
        if field.kind == "records" or (field.kind == "bytes" and not self.keep_views):
            self.line(f"{target} = buf[pos:end]")
        elif field.kind == "bytes":
            self.line(f"{target} = bytes(buf[pos:end])")
        elif self.keep_views:
            self.line(f"{target} = str(buf[pos:end], 'utf-8')")
        else:
            self.line(f"{target} = buf[pos:end].decode()")
        self.line("pos = end")
        if nullable:
            self.depth -= 1

    def array(self, field: Field, target: str, what: str) -> None:
        count = self.length(short=False)
        element = field.element
        assert element is not None
        nullable = field.nullable_in(self.version)
        if nullable:
            self.line(f"if {count} == -1: {target} = None")
            self.line("else:")
            self.depth += 1
        least = least_size(element, self.version, self.flexible)
        is_numbers = not isinstance(element, type) and element.kind in NUMBER_KINDS
        count_max = "number_room" if is_numbers else "room"
        self.line(
            f"if not 0 <= {count} <= {count_max} or {count} * {least} > limit - pos: "
            f"fail_count({count}, {count_max}, limit - pos, {what!r})"
        )
        if is_numbers:
            assert not isinstance(element, type)
            self.has_numbers = True
            self.line(f"number_room -= {count}")
            self.numbers(FIXED_CODES[element.kind], count, target)
        else:
            self.line(f"room -= {count}")
            self.elements(element, count, target, what)
        if nullable:
            self.depth -= 1

    def numbers(self, code: str, count: str, target: str) -> None:
        """Generate one struct call that reads an array of fixed-width numbers."""
        table = f"unpack_many_{code if code != '?' else 't'}"
        self.scope.setdefault(table, primitives.array_unpackers(code))
        self.line(
            f"if {count} < {primitives.SMALL_COUNT}: {target} = list({table}[{count}](buf, pos))"
        )
        self.line(f"else: {target} = list(unpack_from(f'>{{{count}}}{code}', buf, pos))")
        self.line(f"pos += {count} * {calcsize('>' + code)}")

    def elements(self, element: Any, count: str, target: str, what: str) -> None:
        """Generate a loop that reads an array of structs, strings or ids."""
        items = self.name("items")
        self.line(f"{items} = []")
        self.line(f"{target} = {items}")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        if isinstance(element, type):
            item = self.struct_fields(element)
        else:
            item = self.name("item")
            self.value(element, item, what)
        self.flush()
        self.line(f"{items}.append({item})")
        self.depth -= 1

    def nested(self, field: Field, target: str, what: str) -> None:
        """Generate the code that reads a struct.

        Only a nullable struct starts with a marker byte.
        """
        assert isinstance(field.element, type)
        if field.nullable_in(self.version):
            marker = self.name("marker")
            self.run.append(("b", marker))
            self.flush()
            self.line(f"if {marker} == -1: {target} = None")
            self.line(f"elif {marker} != 1: fail_marker({marker}, {what!r})")
            self.line("else:")
            self.depth += 1
            self.line(f"{target} = {self.nested_instance(field.element)}")
            self.depth -= 1
        else:
            self.line(f"{target} = {self.nested_instance(field.element)}")

    def nested_instance(self, cls: type[Struct]) -> str:
        self.flush()
        instance = self.struct_fields(cls)
        self.flush()
        return instance

    def tags(self, cls: type[Struct], instance: str, known: "list[Field]") -> None:
        """Generate the code that reads the tagged fields at the end of a struct of a flexible
        version."""
        count = self.name("tags")
        unknown = f"fail_tags({cls.__name__!r})"
        self.run.append(("B", count))
        self.flush()
        if not known:
            skip = "pos = skip_tags(buf, pos - 1, limit)"
            self.line(f"if {count}: {unknown if self.is_strict else skip}")
            return
        self.line(f"if {count}:")
        self.depth += 1
        tag, end, start = self.name("tag"), self.name("tag_end"), self.name("tag_start")
        self.line(f"{count}, pos = read_tag_count(buf, pos - 1)")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, {start}, {end} = read_tag(buf, pos, limit)")
        self.line(f"pos = {start}")
        for number, field in enumerate(known):
            self.line(f"{'el' if number else ''}if {tag} == {field.tag}:")
            self.depth += 1
            what = f"{cls.__name__}.{field.name}"
            self.value(field, f"{instance}.{field.name}", what)
            self.flush()
            self.line(f"if pos != {end}: fail_tag({tag}, {end} - {start}, {cls.__name__!r})")
            self.depth -= 1
        self.line(f"else: {unknown if self.is_strict else f'pos = {end}'}")
        self.depth -= 2
