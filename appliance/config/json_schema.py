"""The JSON Schema of the configuration file, made from its models, for editors and programs.

This module is pure. `described_schema` has every key with its meaning, default and example; the
pages of docs/reference are made from it. `json_schema` is for editors: it accepts everything that
`config check` accepts. In addition, it accepts values that do not fit the values of other keys.
"""

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from appliance.config.model import MillConfig
from broker.config import BROKER_ROWS, TOPIC_ROWS
from protocol.units import format_duration_ms, format_size_bytes

JsonSchema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = {"$ref": "#/$defs/Reference"}
_SHOWN_AS: Mapping[str, Callable[[int], str]] = {
    "size": format_size_bytes,
    "duration-ms": format_duration_ms,
}
# Our own names for forms of texts. Editors know other forms under some of these names.
_OWN_FORMATS = (*_SHOWN_AS, "duration")
_LIMITS = ("enum", "const", "pattern", "minLength", "maxLength")
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")
_KEPT_OUTSIDE = ("description", "default", "examples")


def described_schema(model: type[BaseModel] = MillConfig) -> JsonSchema:
    """Return the schema of a model, with sizes and durations as a user writes them."""
    schema = model.model_json_schema()
    for node in _nodes(schema):
        if isinstance(default := node.get("default"), int) and not isinstance(default, bool):
            for format_name in _formats_of(node):
                node["default"] = _SHOWN_AS[format_name](default)
    return schema


def json_schema() -> JsonSchema:
    """Return the schema of the file in the dialect of 2020-12."""
    schema = described_schema()
    for node in _nodes(schema):
        node.pop("title", None)
        if "description" in node:
            # Links in descriptions are for the pages of the reference, so remove them for editors.
            node["description"] = _LINK.sub(r"\1", node["description"])
        if node.get("format") in _OWN_FORMATS:
            del node["format"]
    definitions = schema.pop("$defs")
    for definition in (schema, *definitions.values()):
        _allow_references(definition)
    for name, section in schema["properties"].items():
        if "$ref" in section:
            # A section with nothing below it means its defaults.
            schema["properties"][name] = _or(section, {"type": "null"})
    return {
        "$schema": DIALECT,
        "title": "configs/millrace.yaml",
        **schema,
        **_kafka_keys(),
        "$defs": {
            **definitions,
            "Reference": {
                "description": "a value from outside of the file: ${VAR} or ${file:path}",
                "type": "string",
                "pattern": r"\$\{[^}]+\}",
            },
        },
    }


def schema_text() -> str:
    """Return the schema as the text of its file, without the last newline."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False)


def _nodes(schema: JsonSchema) -> list[JsonSchema]:
    """Return the schema and all schemas inside of it."""
    found, waiting = [], [schema]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += _inner(node)
    return found


def _inner(node: JsonSchema) -> list[JsonSchema]:
    """Return the schemas directly inside of a schema."""
    inner = [one for key in ("$defs", "properties") for one in node.get(key, {}).values()]
    inner += list(node.get("anyOf", ()))
    inner += [one for key in ("items", "additionalProperties") if (one := node.get(key))]
    return [one for one in inner if isinstance(one, dict)]


def _formats_of(node: JsonSchema) -> list[str]:
    parts = [node, *node.get("anyOf", ())]
    return [part["format"] for part in parts if part.get("format") in _SHOWN_AS]


def _allow_references(node: JsonSchema) -> None:
    """Accept a reference in place of each value, unless the value can be any text."""
    for part in _inner(node):
        _allow_references(part)
    for name, value in node.get("properties", {}).items():
        node["properties"][name] = _or_reference(value)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = _or_reference(node[key])


def _or_reference(value: JsonSchema) -> JsonSchema:
    parts = value.get("anyOf", [value])
    is_scalar = all("$ref" not in part for part in parts) and any(
        {"enum", "const"} & part.keys()
        or {"string", "integer", "number", "boolean"} & set(_types(part))
        for part in parts
    )
    is_any_text = any(
        "string" in _types(part) and not any(limit in part for limit in _LIMITS) for part in parts
    )
    return _or(value, _REFERENCE) if is_scalar and not is_any_text else value


def _types(part: JsonSchema) -> list[str]:
    given = part.get("type", ())
    return [given] if isinstance(given, str) else list(given)


def _or(value: JsonSchema, other: JsonSchema) -> JsonSchema:
    """Return a schema that accepts `other` as well. The description of the key stays at the outer
    level."""
    outside = {key: value[key] for key in _KEPT_OUTSIDE if key in value}
    rest = {key: one for key, one in value.items() if key not in outside}
    parts = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {**outside, "anyOf": [*parts, copy.copy(other)]}


def _kafka_keys() -> JsonSchema:
    """Return the rule that only the broker's keys are valid settings, unless the mill uses an
    existing cluster."""
    has_own_cluster = {
        "required": ["cluster"],
        "properties": {
            "cluster": {
                "type": "object",
                "required": ["bootstrap_servers"],
                "properties": {"bootstrap_servers": {"type": "string"}},
            }
        },
    }
    settings = {
        name: {"properties": {"settings": {"propertyNames": {"enum": sorted(rows)}}}}
        for name, rows in (("cluster", BROKER_ROWS), ("topics", TOPIC_ROWS))
    }
    bundled = {"cluster": settings["cluster"], "topics": {"items": settings["topics"]}}
    return {"if": has_own_cluster, "then": True, "else": {"properties": bundled}}
