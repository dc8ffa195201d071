"""The checks of a configuration that need Spark, and the modes of the command that starts Spark."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sinks.config import SinksSettings
from stream.config.settings import StreamSection
from stream.describe import describe_plan
from stream.fold import compile as compile_module
from stream.parse.try_expression import attempt_of_user
from stream.plan_check import check_configuration, check_plan, notes_on
from tests.harness.stream import StreamProcess
from tests.interop.stream_spark import spark

pytestmark = pytest.mark.live

FROM = {"access": {"topic": "logs.access", "format": "combined"}}


def faults(**metric: Any) -> list[dict[str, object]]:
    section = {"from": FROM, "metrics": [{"name": "m", "from": "access", **metric}]}
    checked = StreamSection.model_validate(section)
    return [fault.to_json() for fault in check_configuration(spark(), checked)]


@pytest.mark.parametrize(
    ("where", "found", "expected"),
    [
        ("status >= AND 500", "at character", "an SQL expression"),
        ("status >= 500)", "at character 14", "an SQL expression"),
        (r"path rlike '\d\d' AND status > > 500", "at character 32", "an SQL expression"),
        ("substring(path) = 'a'", "at character 1", "over the columns of one line"),
        ("status = array(1)", "at character 1", "over the columns of one line"),
        ("status + 1", "type int", "true or false"),
        (r"path rlike '*.js'", "pattern '*.js' at character 12 (Dangling", r"write '\.js$'"),
        ("status = 1 or (path not regexp ('a(b'))", "at character 33 (Unclosed group", "Java"),
        ("regexp_extract(path, '[a', 0) = 'a'", "at character 22 (Unclosed", "Java"),
        ("split(path, 'a{2,1}')[0] = 'b'", "at character 13 (Illegal", "Java"),
        (r"path like 'C:\Users%'", "LIKE pattern", "only before %, _ and itself"),
        ("regexp_replace(path, '(?<a_b>x)', '') = 'a'", "at character 22 (named", "Java"),
    ],
)
def test_faults_carry_their_path(where: str, found: str, expected: str) -> None:
    (fault,) = faults(measure="count", where=where)
    assert fault["path"] == ["stream", "metrics", 0, "where"]
    assert found in str(fault["found"])
    assert expected in str(fault["expected"])


@pytest.mark.parametrize(
    ("measure", "value", "expected"),
    [("share", "status", "true or false"), ("sum", "time", "a number")],
)
def test_types_fit_the_measure(measure: str, value: str, expected: str) -> None:
    (fault,) = faults(measure=measure, value=value)
    assert fault["path"] == ["stream", "metrics", 0, "value"]
    assert expected in str(fault["expected"])


@pytest.mark.parametrize(
    ("where", "is_noted"),
    [
        (r"path rlike '^/(.*a){12}$'", True),
        (r"path rlike '(x+x+)+y'", True),
        (r"path rlike '.*.*.*=.*'", True),
        (r"path rlike '^/api/v\d+/.*\.js$'", False),
        (r"path rlike '.*foo.*bar'", False),
        (r"path rlike '(GET|POST) [^ ]+'", False),
        (r"user_agent rlike '(?i)bot|crawl|spider'", False),
        ("regexp_replace(path, '/[0-9]+(/|$)', '/:id/') = '/'", False),
    ],
)
def test_a_pattern_that_may_take_for_ever_is_noted(where: str, is_noted: bool) -> None:
    metric = {"name": "m", "from": "access", "measure": "count", "where": where}
    notes = notes_on(StreamSection.model_validate({"from": FROM, "metrics": [metric]}))
    assert [note.path for note in notes] == [("stream", "metrics", 0, "where")] * is_noted
    assert all("tries too many ways" in note.found for note in notes)
    assert faults(measure="count", where=where) == []


JSON = {"app": {"topic": "logs.app", "format": "json", "columns": {"a": "a string"}}}


@pytest.mark.parametrize(
    "columns",
    [
        {"l1": "Level string", "l2": "level string"},
        {"fields": "fields string", "words": "words int", "measured0": "m double"},
        {"a": "`_millrace_corrupt` string", "b": "`it's` int", "c": "`a``b` string"},
        {"deep": "a." * 99 + "z string"},
        {"reason": "a string", "topic": "b int", "value": "c timestamp", "offset": "d date"},
    ],
)
def test_whatever_columns_are_called_the_plan_can_be_run(columns: dict[str, str]) -> None:
    """The check must accept these names, which includes that Spark can compile the plan."""
    section = StreamSection.model_validate(
        {
            "from": {"json": {"topic": "logs.json", "format": "json", "columns": columns}},
            "metrics": [
                {"name": f"m{at}", "from": "json", "key": name, "measure": "unique", "value": name}
                for at, name in enumerate(columns)
            ],
        }
    )
    assert check_configuration(spark(), section) == []


@pytest.mark.parametrize(
    "given",
    [
        {"format": "regex", "pattern": r"^(?<a>\w+)$"},
        {"format": "json"},
        {"format": "csv"},
        {"format": "logfmt"},
        {"format": "syslog"},
    ],
    ids=lambda given: given["format"],
)
def test_an_input_of_which_only_lines_are_counted_can_be_run(given: dict[str, str]) -> None:
    """No column of the input is used. With a pattern this once gave invalid SQL."""
    config = {
        "from": {"app": {"topic": "logs.app", **given}},
        "metrics": [{"name": "n_lines", "from": "app", "measure": "count"}],
    }
    assert check_configuration(spark(), StreamSection.model_validate(config)) == []


@pytest.mark.parametrize(
    "where",
    [
        " OR ".join(f"path = '/{at}'" for at in range(2_000)),
        f"status IN ({', '.join(map(str, range(5_000)))})",
        "(" * 150 + "status = 1" + ")" * 150,
        "status > 0 " + "+ 1 " * 300,
        "CASE " + " ".join(f"WHEN status = {at} THEN true" for at in range(500)) + " END",
        " AND ".join(f"path NOT LIKE '%{at}_'" for at in range(300)),
    ],
    ids=["or", "in", "deep", "sum", "case", "like"],
)
def test_large_expressions_pass_and_can_be_run(where: str) -> None:
    assert faults(measure="count", where=where) == []


def test_a_plan_that_spark_cannot_run_is_told_at_its_metric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the bad metric is reported. The test plants an expression that no earlier check
    finds."""
    metrics = [
        {"name": f"m{at}", "from": "access", "measure": "count", "where": "status > 0"}
        for at in range(7)
    ]
    section = StreamSection.model_validate({"from": FROM, "metrics": metrics})
    bad = section.metrics[4].model_copy(update={"where": "status > (status)"})
    assert check_plan(spark(), section) == []
    section = section.model_copy(update={"metrics": (*section.metrics[:4], bad)})
    monkeypatch.setattr(
        compile_module,
        "attempt_of_user",
        lambda sql: f"no_such_function({sql})" if "(" in sql else attempt_of_user(sql),
    )
    (fault,) = check_plan(spark(), section)
    assert fault.path == ("stream", "metrics", 4)
    assert "no_such_function" in fault.found


def test_good_expressions_have_no_faults() -> None:
    assert faults(measure="share", value="status >= 500", where="path LIKE '/api/%'") == []


def pattern_faults(pattern: str) -> list[tuple[str | int, ...]]:
    section = StreamSection.model_validate(
        {"from": {"app": {"topic": "logs.app", "format": "regex", "pattern": pattern}}}
    )
    return [fault.path for fault in check_configuration(spark(), section)]


def test_patterns_are_tried_before_they_run() -> None:
    assert pattern_faults(r"(?<a>x") == [("stream", "from", "app", "pattern")]


def test_a_pattern_that_recurses_is_tried_at_the_length_that_it_meets() -> None:
    """A recursive pattern passes, because the stream never matches it against lines that are too
    long for it (test_stream_poison tests this)."""
    assert pattern_faults(r'(?<a>(?:[^"\\]|\\.)*)$') == []


def run_mode(
    tmp_path: Path, section: dict[str, Any], *arguments: str, given: str | None = None
) -> tuple[int, str]:
    """Run one mode of the command in a separate process. `given` is its standard input. Return its
    exit code and output."""
    stream = StreamProcess(tmp_path, section, SinksSettings(), "")
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    process = stream.launch(*arguments, stdin=stdin, stdout=subprocess.PIPE)
    output, _ = process.communicate(None if given is None else given.encode(), timeout=120)
    return process.returncode, output.decode()


def test_the_check_prints_json_alone(tmp_path: Path) -> None:
    metric = {"name": "m", "from": "access", "measure": "count", "where": "status >= AND 5"}
    code, output = run_mode(tmp_path, {"from": FROM, "metrics": [metric]}, "--check")
    assert code == 2
    assert json.loads(output)[0]["path"] == ["stream", "metrics", 0, "where"]


def test_a_dry_run_shows_what_counts_and_what_does_not(tmp_path: Path) -> None:
    line = '1.2.3.4 - - [01/Aug/2026:10:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "x"'
    metric = {"name": "by_status", "from": "access", "measure": "count", "key": "status"}
    section = {"from": FROM, "metrics": [metric]}
    records = [b64encode(record.encode()).decode() for record in (line, "not a line", line)]
    given = [{"name": "access", "key": "access/sample.log", "records": records}]
    code, output = run_mode(tmp_path, section, "--dry-run", given=json.dumps(given))
    assert code == 0
    assert "as access: 3 lines, 2 parse" in output
    assert "1 not counted: format:combined" in output
    assert "line 2: 'not a line'" in output
    assert "200  count 2" in output


def test_a_dry_run_shows_values_as_the_sinks_do(tmp_path: Path) -> None:
    head = '1.2.3.4 - - [01/Aug/2026:10:00:01 +0000] "GET'
    records = [
        b64encode(f'{head} /{path} HTTP/1.1" {status} {size} "-" "x"'.encode()).decode()
        for path, status, size in (("a", 200, 2), ("a", 200, 3), ("b", 200, 4), ("b", 500, 5))
    ]
    shown = {
        ("share", "status >= 500"): "share 0.25  count 4",
        ("mean", "status"): "mean 275  count 4",
        ("sum", "bytes"): "sum 14  count 4",
        ("unique", "path"): "unique 2  count 4",
        ("percentile", "bytes"): "p50 3  count 4",
    }
    metrics = [
        {"name": f"m_{measure}", "from": "access", "measure": measure, "value": value}
        for measure, value in shown
    ]
    given = [{"name": "access", "key": "access/sample.log", "records": records}]
    section = {"from": FROM, "metrics": metrics}
    code, output = run_mode(tmp_path, section, "--dry-run", given=json.dumps(given))
    assert code == 0
    for (measure, _), numbers in shown.items():
        cells = output.partition(f"m_{measure} (")[2].partition("\n\n")[0]
        assert cells.rstrip().endswith(f"  2026-08-01 10:00:00  *  {numbers}"), output


def test_the_plan_names_every_metric() -> None:
    metric = {"name": "errors", "from": "access", "measure": "share", "value": "status >= 500"}
    text = describe_plan(StreamSection.model_validate({"from": FROM, "metrics": [metric]}))
    assert "errors: share of lines for which status >= 500" in text
    assert "windows  1m, 1h, all; a batch is folded per 1m" in text
