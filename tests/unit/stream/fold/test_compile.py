"""The query of a configuration: what its columns mean, and how each expression is wrapped."""

import re
from typing import Any

import pytest

from stream.config.settings import StreamSection
from stream.fold.compile import FoldPlan, ValueKind, compile_plan
from tests.unit.stream.parse.test_columns import FORMATS, section

COLUMN = re.compile(r"^  (.*) AS `([^`]+)`", re.MULTILINE)
IN_AN_ATTEMPT = re.compile(r"IF\(`(\w+)\.is`, millrace_try(_of_user)?\(.*\), NULL\)", re.DOTALL)


def plan_of(*metrics: dict[str, Any], line_format: str = "logfmt") -> FoldPlan:
    given = {"topic": "logs.t", "format": line_format, **FORMATS[line_format]}
    given_all = {
        "from": {"t": given, "raw": {"topic": "logs.raw", "format": "raw"}},
        "defaults": {"windows": ["1m", "all"]},
        "metrics": [{"from": "t", "measure": "count", **metric} for metric in metrics],
    }
    return compile_plan(StreamSection.model_validate(given_all))


def columns_of(plan: FoldPlan) -> dict[str, str]:
    """Return the expressions that the steps of the query add, by column name."""
    return {name: sql for sql, name in COLUMN.findall(plan.lines_sql)}


@pytest.mark.parametrize("line_format", FORMATS)
def test_whatever_reads_a_line_stands_in_an_attempt_within_a_branch(line_format: str) -> None:
    """Spark moves a subexpression that two columns share out of a `try`, but never out of a
    branch."""
    wanted = section(line_format).column_types()
    plan = plan_of(
        *({"name": f"m_{at}", "key": name} for at, name in enumerate(wanted)),
        {"name": "long_lines", "where": "length(line) > 3"},
        {"name": "half", "measure": "sum", "value": "length(file) / 2"},
        line_format=line_format,
    )
    found = {name: sql for name, sql in columns_of(plan).items() if re.search("[.:]", name)}
    found = {name: sql for name, sql in found.items() if not name.endswith(".is")}
    assert {f"t:{name}" for name in plan.inputs["t"].columns} < found.keys()
    for name, sql in found.items():
        match = IN_AN_ATTEMPT.fullmatch(sql)
        assert match is not None, name
        assert match[1] == re.split("[.:]", name)[0]
        assert bool(match[2]) is (".measured" in name)


@pytest.mark.parametrize("line_format", FORMATS)
def test_no_step_is_without_a_column(line_format: str) -> None:
    """A step needs a column even if no field of a line is read and only parsing counts."""
    plan = plan_of({"name": "m"}, line_format=line_format)
    assert re.findall(r"\w+ AS \(SELECT \* FROM \w+\)", plan.lines_sql) == []


def test_every_line_counts_where_a_metric_asks_for_nothing() -> None:
    plan = plan_of({"name": "m", "key": "who"}, {"name": "n", "where": "n > 3"})
    asks_nothing, asks = plan.readings
    assert (asks_nothing.verdict, asks_nothing.value, asks_nothing.kind) == (None, None, None)
    assert asks.verdict in plan.columns
    assert asks_nothing.keys[0] in plan.columns


def test_what_metrics_share_is_judged_once() -> None:
    shared = {"where": "n > 3", "measure": "sum", "value": "ms", "key": "who"}
    one, other = plan_of({"name": "a", **shared}, {"name": "b", **shared}).readings
    assert (one.verdict, one.value, one.keys) == (other.verdict, other.value, other.keys)
    once = columns_of(plan_of({"name": "a", **shared}))
    assert columns_of(plan_of({"name": "a", **shared}, {"name": "b", **shared})) == once


@pytest.mark.parametrize(
    ("measure", "value", "kind"),
    [
        ("sum", "n", ValueKind.WHOLE),
        ("sum", "ms", ValueKind.DECIMAL),
        ("sum", "n + 1", ValueKind.DECIMAL),
        ("max", "n", ValueKind.WHOLE),
        ("percentile", "n", ValueKind.DECIMAL),
        ("share", "n > 3", ValueKind.WHOLE),
        ("unique", "n", ValueKind.TEXT),
    ],
)
def test_how_a_value_travels(measure: str, value: str, kind: ValueKind) -> None:
    (reading,) = plan_of({"name": "m", "measure": measure, "value": value}).readings
    assert reading.kind is kind
    sql = {"whole": "BIGINT", "decimal": "DECIMAL(38,12)", "text": "STRING"}[kind]
    assert reading.value is not None
    assert columns_of_judged(plan_of({"name": "m", "measure": measure, "value": value}))[
        reading.value
    ].endswith(f"AS {sql})")


def columns_of_judged(plan: FoldPlan) -> dict[str, str]:
    return {name: sql for name, sql in columns_of(plan).items() if "." not in name}


def test_a_field_that_is_absent_is_no_fault_and_a_value_that_is_null_is_one() -> None:
    bare, computed = plan_of(
        {"name": "bare", "measure": "sum", "value": "n"},
        {"name": "computed", "measure": "sum", "value": "n + 1"},
    ).entries.values()
    assert bare.absent == "`t.n.text` IS NULL"
    assert computed.absent is None


def test_inputs_whose_values_differ_in_kind_share_decimals() -> None:
    given = {
        "from": {
            "a": {"topic": "logs.a", "format": "logfmt", "columns": {"n": "n bigint"}},
            "b": {"topic": "logs.b", "format": "logfmt", "columns": {"n": "n double"}},
        },
        "defaults": {"windows": ["all"]},
        "metrics": [{"name": "m", "from": ["a", "b"], "measure": "sum", "value": "n"}],
    }
    plan = compile_plan(StreamSection.model_validate(given))
    (reading,) = plan.readings
    assert reading.kind is ValueKind.DECIMAL
    assert reading.topics == ("logs.a", "logs.b")
    assert reading.value is not None
    assert columns_of_judged(plan)[reading.value].count("WHEN") == 2


@pytest.mark.parametrize("column", ["fields", "words", "is", "measured0", "TEXT", "reason", "key0"])
def test_a_column_may_be_called_like_a_step_of_the_query(column: str) -> None:
    given = {"topic": "logs.t", "format": "json", "columns": {column: f"`{column}` string"}}
    metric = {"name": "m", "from": "t", "key": column, "measure": "unique", "value": column}
    section = StreamSection.model_validate({"from": {"t": given}, "metrics": [metric]})
    names = [name.lower() for _, name in COLUMN.findall(compile_plan(section).lines_sql)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("given", "column", "expected"),
    [
        ({"format": "combined"}, "host", "collector_host"),
        ({"format": "combined"}, "collector_host", "collector_host"),
        ({"format": "syslog"}, "host", "t:host"),
        ({"format": "syslog"}, "collector_host", "collector_host"),
        ({"format": "json", "columns": {"Host": "host string"}}, "host", "t:Host"),
        (
            {"format": "json", "columns": {"collector_host": "x int"}},
            "collector_host",
            "t:collector_host",
        ),
        ({"format": "regex", "pattern": r"(?<host>\S+)"}, "host", "t:host"),
        ({"format": "csv", "header": "a,host", "columns": {}}, "host", "t:host"),
    ],
)
def test_an_own_column_wins_over_the_name_of_the_collector(
    given: dict[str, Any], column: str, expected: str
) -> None:
    section = StreamSection.model_validate(
        {
            "from": {"t": {"topic": "logs.t", **given}},
            "metrics": [{"name": "m", "from": "t", "key": column, "measure": "count"}],
        }
    )
    plan = compile_plan(section)
    (entry,) = plan.entries.values()
    assert entry.keys == (f"`{expected}`",)
    # The header is not read for a metric that does not need it.
    assert ("millrace.host" in plan.lines_sql) is (expected == "collector_host")
