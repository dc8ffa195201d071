"""Declared columns: their forms, their faults, and which key each fault names."""

from typing import Any

import pytest
from pydantic import ValidationError

from stream.config.input_section import ParsedInputSection
from stream.config.settings import StreamSection

PATTERN = r"(?<level>\w+) (?<ms>\d+)"


def declared(line_format: str, columns: dict[str, Any], **more: Any) -> dict[str, tuple[Any, str]]:
    if line_format == "regex":
        more["pattern"] = PATTERN
    given = ParsedInputSection.model_validate(
        {"topic": "logs.t", "format": line_format, "columns": columns, **more}
    )
    again = ParsedInputSection.model_validate_json(given.model_dump_json(by_alias=True))
    assert again == given
    return {one.name: (one.steps, one.type) for one in given.declared()}


def faults(line_format: str, columns: Any, **more: Any) -> dict[str, str]:
    """Return the message of each fault, by its key below `columns`."""
    if line_format == "regex":
        more["pattern"] = PATTERN
    section = {"t": {"topic": "logs.t", "format": line_format, "columns": columns, **more}}
    with pytest.raises(ValidationError) as caught:
        StreamSection.model_validate({"from": section})
    return {".".join(map(str, one["loc"][3:])): one["msg"] for one in caught.value.errors()}


@pytest.mark.parametrize(
    ("line_format", "given", "expected"),
    [
        ("json", "string", (("c",), "string")),
        ("json", "int", (("c",), "int")),
        ("json", "Long", (("c",), "bigint")),
        ("json", "decimal(10, 2)", (("c",), "decimal(10,2)")),
        ("json", {"type": "timestamp"}, (("c",), "timestamp")),
        ("json", {"path": "timing.total", "type": "double"}, (("timing", "total"), "double")),
        ("json", {"path": "a[0].b"}, (("a", 0, "b"), "string")),
        ("json", {"path": "string"}, (("string",), "string")),
        ("json", {"path": "date", "type": "date"}, (("date",), "date")),
        ("json", "timing.total double", (("timing", "total"), "double")),
        ("json", "date string", (("date",), "string")),
        ("json", "level", (("level",), "string")),
        ("json", "`int`", (("int",), "string")),
        ("logfmt", "int", (("c",), "int")),
        ("logfmt", {"key": "request-id"}, (("request-id",), "string")),
        ("csv", {"position": 3, "type": "int"}, ((3,), "int")),
        ("csv", "3 int", ((3,), "int")),
        ("csv", "3", ((3,), "string")),
        ("regex", {"group": "ms", "type": "int"}, (("ms",), "int")),
        ("regex", "ms int", (("ms",), "int")),
    ],
)
def test_forms(line_format: str, given: Any, expected: tuple[Any, str]) -> None:
    assert declared(line_format, {"c": given})["c"] == expected


def test_a_bare_type_of_a_group_reads_the_group_of_that_name() -> None:
    assert declared("regex", {"ms": "int"}) == {
        "ms": (("ms",), "int"),
        "level": (("level",), "string"),
    }


@pytest.mark.parametrize(
    ("line_format", "given", "key", "text"),
    [
        ("json", "date", "c", "{type: date} for the type, or {path: date, type: string}"),
        ("json", "Timestamp", "c", "{type: Timestamp} for the type"),
        ("logfmt", "text", "c", "{key: text, type: string} for the key"),
        ("csv", "int", "c", "expected {position: N, type: int}"),
        ("csv", {"type": "int"}, "c", "found no position"),
        ("csv", {"position": "3"}, "c", "position: found '3', expected a number from 1 on"),
        ("csv", {"position": 0}, "c", "found position '0'"),
        ("json", {"key": "a"}, "c", "found the key 'key', expected path and type"),
        ("json", {"pth": "a"}, "c", "did you mean path?"),
        ("json", {"path": "a..b"}, "c", "found path 'a..b'"),
        ("json", {"path": ["a"]}, "c", "path: found ['a'], expected text"),
        ("json", {"type": "strnig"}, "c", "did you mean string?"),
        ("json", "a strnig", "c", "did you mean string?"),
        ("json", None, "c", "found nothing, expected a type such as string, or {path: …"),
        ("json", 7, "c", "found 7, expected a type such as string"),
        ("json", ["a"], "c", "expected a type such as string"),
        ("regex", "int", "c", "found group 'c', expected one of the pattern's: level, ms"),
    ],
)
def test_faults(line_format: str, given: Any, key: str, text: str) -> None:
    (found,) = faults(line_format, {"c": given}).items()
    assert found[0] == key
    assert text in found[1]


def test_every_fault_of_every_column_is_told_at_once() -> None:
    found = faults("json", {"a": "a strnig", "b": {"path": "x..y"}, "ok": "int", "time": "int"})
    assert set(found) == {"a", "b", "time"}


def test_a_name_in_two_cases_is_a_fault_of_the_second() -> None:
    assert set(faults("json", {"Level": "string", "level": "string"})) == {"level"}
