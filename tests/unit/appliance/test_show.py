"""`show` prints the same names and numbers as the metric's view in MySQL."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from appliance.cli.show_command import _print_reading, table_of
from appliance.config.load import load_text
from appliance.traffic import readings
from appliance.traffic.readings import MetricReading, NotCounted, Value, key_cells
from sinks.keys import OTHER, redis_field
from sinks.rows import MetricDefinition
from stream.config.metrics import resolve_metrics

TEXT = """
stream:
  from: {a: {topic: logs.access, format: combined}}
  metrics:
    - {name: plain, from: a, measure: count}
    - {name: two, from: a, key: [status, path], measure: count}
    - {name: taken, from: a, key: [user_agent], measure: sum, value: bytes}
    - {name: users, from: a, key: status, measure: unique, value: remote_addr}
    - {name: ranks, from: a, key: status, measure: percentile, value: bytes}
"""


def definition(name: str) -> MetricDefinition:
    section = load_text(TEXT, "m", Path("/x"), {}).config.stream
    return next(m.definition for m in resolve_metrics(section) if m.definition.name == name)


@pytest.mark.parametrize(
    ("name", "rows", "heads", "table"),
    [
        ("plain", [("*", "7")], ["COUNT"], [["7"]]),
        ("two", [("200|/a", "7")], ["STATUS", "PATH", "COUNT"], [["200", "/a", "7"]]),
        ("two", [("(other)", "7")], ["STATUS", "PATH", "COUNT"], [["(other)", "", "7"]]),
        ("taken", [("curl/8.1", "7.5")], ["USER_AGENT", "VALUE"], [["curl/8.1", "7.5"]]),
        ("ranks", [("200.p95", "7")], ["STATUS", "OF", "VALUE"], [["200", "p95", "7"]]),
    ],
)
def test_heads_and_cells(
    name: str, rows: list[tuple[str, str]], heads: list[str], table: list[list[str]]
) -> None:
    assert table_of(definition(name), rows) == (heads, table)


@pytest.mark.parametrize(
    "key", [("a|b", "c"), ("\\", "|"), ("@x", ""), ("(null)", "(other)"), ("\\|", "a\\")]
)
def test_a_field_comes_apart_as_it_was_put_together(key: tuple[str, ...]) -> None:
    assert key_cells(redis_field(key), len(key)) == list(key)
    assert key_cells(redis_field(OTHER), 2) == ["(other)", ""]


def test_a_number_of_mysql_reads_like_one_of_redis() -> None:
    heads = ["size", "start_at", "status", "count", "value"]
    rows: list[dict[str, Any]] = [
        dict(zip(heads, ["all", None, status, 3, value], strict=True))
        for status, value in (("a|b", Decimal("81636.000000")), ("c", Decimal("0.500000")))
    ]
    found = {key: value.text for key, value in readings._rows_as_values(heads, rows)}
    assert found == {"a\\|b": "81636", "c": "0.5"}


def test_a_metric_that_is_not_counted_yet_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> object:
        raise pymysql.err.ProgrammingError(1146, "Table 'millrace.m' doesn't exist")

    monkeypatch.setattr(pymysql, "connect", refuse)
    settings = {**dict.fromkeys(("host", "user", "password", "database"), "x"), "port": 1}
    with pytest.raises(NotCounted, match=r"the stream does not count m yet"):
        readings._from_mysql(settings, "m", "all")


@pytest.mark.parametrize(
    ("name", "values", "estimates", "error"),
    [
        ("users", {"200": ("1024", None), "404": ("1025", None)}, ["404"], 0.033),
        ("users", {"200": ("900", True), "404": ("7", False)}, ["200"], 0.033),
        (
            "ranks",
            {f"{k}.{r}": (v, None) for k, n in (("200", "201"), ("404", "200"))
             for r, v in (("p50", "0.5"), ("p95", "3"), ("count", n))},
            ["200.p95", "200.p50"],
            0.017,
        ),
        ("taken", {"curl": ("1725724716113000125", None)}, [], None),
    ],
)  # fmt: skip
def test_estimates_are_told_and_explained(
    name: str,
    values: dict[str, tuple[str, bool | None]],
    estimates: list[str],
    error: float | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Case 20: `show` must not print an estimate, such as 19,406 for 20,000 visitors, as if it were
    exact."""
    found = {key: Value(text, Decimal(text), told) for key, (text, told) in values.items()}
    reading = MetricReading(name, "all", "", "Redis", found)
    _print_reading(definition(name), reading, 50, as_json=True, clear=False)
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["estimates"], data["error"]) == (estimates, error)
    assert data["values"] == {key: text for key, (text, _) in values.items()}
    _print_reading(definition(name), reading, 50, as_json=False, clear=False)
    told = capsys.readouterr()
    assert ("above that an estimate" in told.out + told.err) is (error is not None)
