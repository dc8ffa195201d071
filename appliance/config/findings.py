"""Translate pydantic's errors into faults that a user can act on.

This module is pure. The sections' own checks raise ValueError("found …, expected …"). This module
puts all other errors of pydantic into the same form, and names the known keys and values.
"""

import re
import types
import typing
from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from appliance.config.faults import Path, did_you_mean, found_text

_FOUND_EXPECTED = re.compile(r"\s*found (?P<found>.*), expected (?P<expected>.*)\Z", re.DOTALL)
_KEYED = re.compile(r"(?P<key>[A-Za-z_][\w.]*): found ")
_FORMS = ("bool", "float", "int", "str")
_SECRET_WORDS = ("password", "secret", "token", "webhook")

_EXPECTED = {
    "string_type": "text",
    "string_unicode": "text in UTF-8",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of at most 18 digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
    "path_type": "a path",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "one of {expected}",
    "invalid_key": "text as the name of a key",
}
"""The text for what was expected, for each of pydantic's types of errors.

Placeholders in braces are filled from the error.
"""

_ANOTHER_FORM = "a value of another form; see the key in docs/reference/configuration.md"


_TEXTS = {
    "trigger": "a duration such as 100ms",
    "every": "a duration such as 10m",
    "refresh": "a duration such as 2s",
    "retain": "a duration such as 90d",
    "repeat": "a duration such as 4h",
    "for": "a duration such as 1m",
    "clear": "a duration such as 1m",
    "heap": "a size such as 1GiB",
    "windows": "a window such as 10s, 1m, 1h or all",
    "keep": "a duration such as 30d, or forever",
}
"""The keys whose text values have a format of their own, with an example of each format."""


def is_secret(path: Path) -> bool:
    """Return whether the value at a path must not be shown."""
    return bool(path) and any(word in str(path[-1]).lower() for word in _SECRET_WORDS)


def finding(error: ErrorDetails, root: type[BaseModel]) -> tuple[Path, str, str, bool]:
    """Return one error as (path, what was found, what was expected, whether the key itself is
    wrong).
    """
    kind = error["type"]
    path = _without_forms(root, tuple(error["loc"]), kind)
    if kind == "extra_forbidden":
        known = sorted(keys_at(root, path[:-1]))
        word = str(path[-1])
        expected = f"one of {', '.join(known)}{did_you_mean(word, known)}"
        return path, f"the unknown key {word!r}", expected, True
    if kind == "missing":
        return path, "nothing", "a value: this key is required", False
    shown = "a value that is not shown" if is_secret(path) else found_text(error["input"])
    if kind == "value_error":
        return _of_room(path, str(error["ctx"]["error"]), shown)
    if kind == "string_type":
        words = (_TEXTS[str(step)] for step in reversed(path) if step in _TEXTS)
        return path, shown, next(words, _EXPECTED[kind]), False
    return path, shown, _EXPECTED.get(kind, _ANOTHER_FORM).format(**error.get("ctx", {})), False


def _without_forms(root: type[BaseModel], path: Path, kind: str) -> Path:
    """Return a path without pydantic's names for alternative types of a value, such as `int`."""
    if path and kind not in ("extra_forbidden", "missing") and path[-1] in _FORMS:
        known = keys_at(root, path[:-1])
        return path if path[-1] in known else path[:-1]
    return path


def _of_room(path: Path, text: str, shown: str) -> tuple[Path, str, str, bool]:
    """Parse the message of a section's own check, which has the form `found …, expected …`,
    possibly with a key in front."""
    keyed = _KEYED.match(text)
    if keyed:
        path = (*path, *keyed["key"].split("."))
        text = text[keyed.end("key") + 1 :]
    match = _FOUND_EXPECTED.match(text)
    if match:
        return path, match["found"], match["expected"], False
    return path, shown, text, False


def keys_at(root: type[BaseModel], path: Path) -> set[str]:
    """Return the keys that a mapping at this path can have; empty if the user chooses the names."""
    found: list[object] = [root]
    for step in path:
        found = [inner for annotation in found for inner in _step(annotation, step)]
    return {key for annotation in found for key in _keys(annotation)}


def parts_of(annotation: object) -> Iterator[object]:
    """Yield the parts of a union, an Annotated or an alias."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from parts_of(part)
    elif origin is typing.Annotated:
        yield from parts_of(typing.get_args(annotation)[0])
    else:
        yield annotation


def _step(annotation: object, step: str | int) -> Iterator[object]:
    for part in parts_of(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            for name, field in part.model_fields.items():
                if step in (name, field.alias):
                    yield field.annotation
            continue
        arguments = typing.get_args(part)
        origin = typing.get_origin(part)
        if isinstance(step, int) and origin in (list, tuple) and arguments:
            yield arguments[0]
        elif isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
            yield arguments[1]


def _keys(annotation: object) -> Iterator[str]:
    for part in parts_of(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            for name, field in part.model_fields.items():
                yield field.alias or name
