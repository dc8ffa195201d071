"""What only Spark can judge, and the modes of the command that start it."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sinks.config import SinksSettings
from stream.config.settings import StreamSection
from stream.describe import describe_plan
from stream.parse.check import check_section
from tests.harness.stream import StreamProcess
from tests.interop.stream_spark import spark

pytestmark = pytest.mark.live

FROM = {"access": {"topic": "logs.access", "format": "combined"}}


def faults(**metric: Any) -> list[dict[str, object]]:
    section = {"from": FROM, "metrics": [{"name": "m", "from": "access", **metric}]}
    checked = StreamSection.model_validate(section)
    return [fault.to_json() for fault in check_section(spark(), checked)]


@pytest.mark.parametrize(
    ("where", "found", "expected"),
    [
        ("status >= AND 500", "at character", "an SQL expression"),
        ("status >= 500)", "at character 14", "an SQL expression"),
        ("count(status) > 1", "", "over the columns of one line"),
        ("explode(array(true))", "", "over the columns of one line"),
        ("nosuchfunction(path)", "nosuchfunction", "over the columns of one line"),
        ("status + 1", "type int", "true or false"),
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


def test_good_expressions_have_no_faults() -> None:
    assert faults(measure="share", value="status >= 500", where="path LIKE '/api/%'") == []


def pattern_faults(pattern: str) -> list[tuple[str | int, ...]]:
    section = StreamSection.model_validate(
        {"from": {"app": {"topic": "logs.app", "format": "regex", "pattern": pattern}}}
    )
    return [fault.path for fault in check_section(spark(), section)]


def test_patterns_are_tried_before_they_run() -> None:
    assert pattern_faults(r"(?<a>x") == [("stream", "from", "app", "pattern")]


def test_a_pattern_that_recurses_is_tried_at_the_length_that_it_meets() -> None:
    """Longer lines are never given to it (test_stream_poison has them)."""
    assert pattern_faults(r'(?<a>(?:[^"\\]|\\.)*)$') == []


def run_mode(
    tmp_path: Path, section: dict[str, Any], *arguments: str, given: str | None = None
) -> tuple[int, str]:
    """One of the command's modes, in a process of its own; `given` is its standard input."""
    stream = StreamProcess(tmp_path, section, SinksSettings(), "")
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    process = stream.spawn(*arguments, stdin=stdin, stdout=subprocess.PIPE)
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


def test_the_plan_names_every_metric() -> None:
    metric = {"name": "errors", "from": "access", "measure": "share", "value": "status >= 500"}
    text = describe_plan(StreamSection.model_validate({"from": FROM, "metrics": [metric]}))
    assert "errors: share of lines for which status >= 500" in text
    assert "windows  1m, 1h, all; a batch is folded per 1m" in text
