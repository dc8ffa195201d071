"""The tables of the reference pages, generated from the code's own tables and models.

    python -m tests.harness.reference_pages    writes docs/reference/*.md

A page is prose with places `<!-- made: NAME -->` … `<!-- /made -->`. This module generates the
content of these places and keeps the prose around them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml
from annotated_types import Ge, Le
from pydantic import BaseModel

from appliance.config.inputs import OTHER_VARIABLES
from appliance.config.json_schema import described_schema
from protocol.units import format_duration_ms, format_size_bytes
from sinks.estimates import note_of
from sinks.values import Measure
from stream.config.format_files import find_format, shipped_names
from stream.config.formats import ADDRESSES, COMMON_COLUMNS, FORMAT_COLUMNS
from tests.harness import ROOT
from tests.harness.reference_facts import (
    REFERENCE,
    columns_of,
    format_names,
    models,
    tables,
    view_columns,
)
from tests.harness.reference_tables import (
    LINE_COLUMNS,
    MEASURES,
    META_FIELDS,
    READER_COLUMNS,
    REDIS_KEYS,
    TABLES,
    VALUE_FIELDS,
    VIEW_COLUMNS,
)

DEFAULT_CHARACTERS_MAX = 80
ENUM_MAX = 8
_PLACE = re.compile(r"(<!-- made: ([^>]+) -->\n).*?(<!-- /made -->)", re.DOTALL)
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
    "null": "null",
}
_FIXTURES = ROOT / "tests" / "fixtures" / "formats"


def filled(page: str) -> str:
    """Return a page after generating the content of its places from the code."""
    return _PLACE.sub(lambda match: f"{match[1]}{made(match[2])}\n{match[3]}", page)


def made(name: str) -> str:
    """Return the content of the place with this name."""
    kind, _, of_what = name.partition(" ")
    rows: Iterable[tuple[str, ...]]
    match kind:
        case "keys":
            return keys_table(models()[of_what])
        case "formats":
            return "\n\n".join([_all_formats(), *map(_format, format_names())])
        case "line-columns":
            rows = ((_code(c), kind, LINE_COLUMNS[c]) for c, kind in COMMON_COLUMNS.items())
            return _table(("column", "type", "meaning"), rows)
        case "measures":
            return _measures()
        case "view":
            rows = ((_code(column), VIEW_COLUMNS[column]) for column in view_columns())
            return _table(("column", "meaning"), rows)
        case "tables":
            return "\n\n".join(map(_sql_table, sorted(tables(), key=list(TABLES).index)))
        case "redis":
            rows = ((_code(k), v.type, v.holds, _code(v.example)) for k, v in REDIS_KEYS.items())
            return _table(("key", "type", "holds", "example"), rows)
        case "redis-fields":
            return _table(("field", "holds"), ((_code(k), v) for k, v in VALUE_FIELDS.items()))
        case "redis-meta":
            return _table(("field", "holds"), ((_code(k), v) for k, v in META_FIELDS.items()))
        case "environment":
            rows = ((_code(k), v) for k, v in OTHER_VARIABLES.items())
            return _table(("variable", "meaning"), rows)
    raise ValueError(f"found the place {name!r}, expected a table of this module")


def keys_table(model: type[BaseModel]) -> str:
    """Return the table of a model's keys, with type, default, meaning and examples."""
    schema = described_schema(model)
    definitions = schema.get("$defs", {})
    mapping = _mapping(schema)
    required = mapping.get("required", ())
    rows = []
    for key, node in mapping["properties"].items():
        default = "required" if key in required else _default(node)
        examples = ", ".join(_code(_flow(key, one)) for one in node.get("examples", ()))
        limits = _limits(model, key, node)
        kind = _kind(node, definitions) + limits
        rows.append((_code(key), kind, default, node.get("description", ""), examples))
    return _table(("key", "type", "default", "meaning", "example"), rows)


def _mapping(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a model's schema that describes a mapping, if there is a short form,
    too."""
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    parts: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return next(part for part in parts if "properties" in part)


def _kind(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return the type of a value in words, given its schema."""
    if "$ref" in node:
        return _kind(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if (form := str(node.get("format", "")).partition("-")[0]) in ("size", "duration"):
        return form
    if "const" in node:
        return _code(str(node["const"]))
    if "enum" in node and len(node["enum"]) <= ENUM_MAX:
        return " or ".join(_code(_scalar(value)) for value in node["enum"])
    if "anyOf" in node and "type" not in node:
        kinds = (_kind(part, definitions) for part in node["anyOf"])
        return " or ".join(dict.fromkeys(kinds))
    kinds = node.get("type", "string")
    return " or ".join(_KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _limits(model: type[BaseModel], key: str, node: dict[str, Any]) -> str:
    """Return the least and greatest value of a number, a size or a duration."""
    field = next(f for name, f in model.model_fields.items() if key in (name, f.alias))
    least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    if least is None and most is None:
        return ""
    forms = [part.get("format") for part in (node, *node.get("anyOf", ()))]
    spell: Any = str
    if "size" in forms:
        spell = format_size_bytes
    elif "duration-ms" in forms:
        spell = format_duration_ms
    return f", {spell(least)} or more" if most is None else f", {spell(least)} to {spell(most)}"


def _default(node: dict[str, Any]) -> str:
    if "default" not in node:
        return ""
    text = _scalar(node["default"])
    return _code(text) if len(text) <= DEFAULT_CHARACTERS_MAX else "see below"


def _scalar(value: object) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _flow(key: str, value: object) -> str:
    return f"{key}: {_scalar(value)}"


def _all_formats() -> str:
    shipped = {name: find_format(name) for name in shipped_names()}
    titles = {name: one.title for name, one in shipped.items() if one is not None}
    own = {
        "raw": "Any text: the whole line",
        "csv": "Values with a delimiter between them, with or without a header",
        "w3c": "W3C extended log format, with the header that you declare",
        "regex": "Lines that your regular expression takes apart",
    }
    rows = []
    for name in format_names():
        declared = ADDRESSES.get(_reader(name))
        columns = f"declared by {_code(declared)}" if declared else ""
        rows.append((f"[{_code(name)}](#{name})", {**own, **titles}[name], columns))
    return _table(("format", "lines", "further columns"), rows)


def _reader(name: str) -> str:
    given = find_format(name)
    return name if name in FORMAT_COLUMNS or given is None else given.reader


def _format(name: str) -> str:
    """Return the section of one format."""
    given = find_format(name)
    about = {
        **READER_COLUMNS.get(name, {}),
        **({} if given is None else {n: one.about for n, one in given.columns.items()}),
    }
    text = [f"### `{name}`", ""]
    if given is not None and name not in FORMAT_COLUMNS:
        text += [f"Reader {_code(given.reader)}. {_time_of(name)}", ""]
    columns = columns_of(name)
    if columns:
        rows = (
            (_code(c), kind, about[c] if c in about else _field_text(name, c))
            for c, kind in columns.items()
        )
        text += [_table(("column", "type", "meaning"), rows), ""]
    else:
        text += ["No columns of its own, besides those of every line.", ""]
    return "\n".join([*text, "```text", *_sample(name), "```"])


def _time_of(name: str) -> str:
    given = find_format(name)
    time = None if given is None else given.time
    if time is None:
        return "The time is that of the reader." if _reader(name) == "w3c" else ""
    layouts = "".join(f", spelled {_code(layout)}" for layout in time.layout)
    return f"The time is in {', '.join(_code(one) for one in time.column)}{layouts}."


def _field_text(name: str, column: str) -> str:
    """Return the description of a column whose name comes only from the header or the pattern."""
    return f"the {'field' if _reader(name) in ('csv', 'w3c') else 'group'} of this name"


def _sample(name: str) -> list[str]:
    """Return the lines of a sample event of a format, for the format's section."""
    given = find_format(name)
    if given is not None and given.samples:
        return given.samples[0].splitlines()
    fixture = _FIXTURES / f"{name}.jsonl"
    if fixture.exists():
        return str(json.loads(fixture.read_text().splitlines()[0])[0]).splitlines()
    return _WRITTEN[name].splitlines()


_WRITTEN = {
    "raw": "any text",
    "csv": '2024-09-07T16:12:01Z,42,"a, b"',
    "tsv": "2024-09-07T16:12:01Z\t42\ta, b",
    "w3c": "2024-09-07 16:12:01 192.0.2.7 GET /index.html 200",
    "regex": "INFO 42",
}


def _measures() -> str:
    rows = []
    for measure in Measure:
        text = MEASURES[measure]
        needs = "nothing" if measure is Measure.COUNT else "`value`"
        example = text.example.replace("{", "{name: m, from: access, ", 1)
        rows.append(
            (_code(measure), needs, text.gives, note_of(measure) or "exact", _code(example))
        )
    return _table(("measure", "needs", "gives", "exactness", "example"), rows)


def _sql_table(name: str) -> str:
    about, columns = TABLES[name]
    rows = ((_code(column), columns[column]) for column in tables()[name])
    return f"### `{name}`\n\n{about}\n\n{_table(('column', 'meaning'), rows)}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *(tuple(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---")


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
