"""A path finds the same value in a line of JSON, no matter which other paths the query reads."""

import json
from itertools import permutations
from typing import Any

import pytest

from tests.interop.stream_spark import count_lines, keys, one_input, reasons

pytestmark = pytest.mark.live


def values(columns: dict[str, Any], line: str | bytes, *names: str) -> dict[str, Any]:
    """Return the text of each column in one line. Each column is read by a separate metric."""
    config = one_input(
        {"format": "json", "columns": columns},
        *({"name": f"m_{name}", "key": name} for name in names or columns),
    )
    counts = count_lines(config, [line])
    found = {name: keys(counts, f"m_{name}") for name in names or columns}
    return {name: next(iter(cells)) for name, cells in found.items()}


DOCKER = (
    '{"log":"{\\"level\\":\\"error\\",\\"ms\\":12}\\n","stream":"stdout",'
    '"time":"2024-09-07T15:58:36.123456789Z"}'
)


@pytest.mark.parametrize("names", [("level",), ("level", "whole"), ("whole", "level")])
def test_a_metric_counts_the_same_beside_another_one(names: tuple[str, ...]) -> None:
    """Case 14: JSON within JSON, as written by Docker's json-file driver (fluent-bit#617)."""
    columns = {"level": "log.level string", "whole": "log string"}
    metrics = [{"name": f"m_{name}", "key": name} for name in names]
    given = {"format": "json", "time": "time", "columns": columns}
    counts = count_lines(one_input(given, *metrics), [DOCKER] * 3)
    assert keys(counts, "m_level") == {"error": 3}
    if "whole" in names:
        assert keys(counts, "m_whole") == {'{"level":"error","ms":12}\n': 3}


@pytest.mark.parametrize("names", list(permutations(["upper", "lower"])))
def test_keys_that_differ_only_in_case_are_distinct(names: tuple[str, ...]) -> None:
    """Case 01: Hive-JSON-Serde#104 and duckdb#13807 mixed up keys that differ only in case."""
    columns = {"upper": "Level string", "lower": "level string"}
    line = '{"t":1725724716,"Level":"A","level":"b"}'
    assert values(columns, line, *names) == {"upper": "A", "lower": "b"}


def test_keys_of_an_inner_object_that_differ_only_in_case_are_distinct() -> None:
    columns = {"a": "x.Id string", "b": "x.ID string", "c": "X.Id string"}
    line = '{"x":{"Id":"1","ID":"2"},"X":{"Id":"3"}}'
    assert values(columns, line) == {"a": "1", "b": "2", "c": "3"}


SHAPES = {
    "whole": "a string",
    "inner": "a.b string",
    "deep": "a.b.c string",
    "first": "a[0] string",
    "first_b": "a[0].b string",
    "inner_first": "a.b[0] string",
}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"a": {"b": {"c": 1.50}}}', ['{"b":{"c":1.50}}', '{"c":1.50}', "1.50", None, None, None]),
        ('{"a": {"b": [7, 8]}}', ['{"b":[7,8]}', "[7,8]", None, None, None, "7"]),
        ('{"a": [{"b": 5}, 6]}', ['[{"b":5},6]', None, None, '{"b":5}', "5", None]),
        (r'{"a": "{\"b\": {\"c\": 2}}"}', ['{"b": {"c": 2}}', '{"c":2}', "2", None, None, None]),
        (r'{"a": {"b": "[9]"}}', [r'{"b":"[9]"}', "[9]", None, None, None, "9"]),
        (r'{"a": "[{\"b\": 3}]"}', ['[{"b": 3}]', None, None, '{"b":3}', "3", None]),
        ('{"a": "text"}', ["text", None, None, None, None, None]),
        (r'{"a": "{\"b\": 1"}', ['{"b": 1', None, None, None, None, None]),
        (r'{"a": "{\"b\": 1} x"}', ['{"b": 1} x', None, None, None, None, None]),
        ('{"a": null}', [None] * 6),
        ('{"a": {"b": 1}, "a": {}}', ["{}", None, None, None, None, None]),
        ('{"a": {}, "a": {"b": 1}}', ['{"b":1}', "1", None, None, None, None]),
    ],
)
def test_shapes_do_not_depend_on_what_else_is_asked_for(
    line: str, expected: list[str | None]
) -> None:
    alone = {name: values({name: path}, line)[name] for name, path in SHAPES.items()}
    assert alone == dict(zip(SHAPES, expected, strict=True))
    assert values(SHAPES, line) == alone
    backwards = dict(reversed(SHAPES.items()))
    assert values(backwards, line) == alone


def test_numbers_are_as_the_document_spells_them() -> None:
    columns = {"a": "a string", "b": "b.c string", "whole": "b string"}
    line = '{"a": 1234567890123456789.1230, "b": {"c": 1E400, "d": -0, "e": 0.10}}'
    assert values(columns, line) == {
        "a": "1234567890123456789.1230",
        "b": "1E400",
        "whole": '{"c":1E400,"d":-0,"e":0.10}',
    }


def test_keys_may_hold_anything() -> None:
    odd = ["_millrace_corrupt", "it's", "back\\slash", "tick`", "dot.ted", "ünï", "a b", "[0]", "$"]
    columns = {f"c{at}": "`" + key.replace("`", "``") + "` int" for at, key in enumerate(odd)}
    line = json.dumps({key: at for at, key in enumerate(odd)})
    assert values(columns, line) == {f"c{at}": str(at) for at in range(len(odd))}


def test_a_line_without_columns_is_json_or_not() -> None:
    counts = count_lines(
        one_input({"format": "json"}, {"name": "n_lines"}),
        ["{}", '{"a": 1}', "[1]", '{"a": 1}{"b": 2}', '{"a": 1', "7"],
    )
    assert keys(counts, "n_lines") == {(): 2}
    assert reasons(counts) == {"format:json": 4}
