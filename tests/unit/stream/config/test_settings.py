"""The stream's section: every fault names its key, the value that was found, and what was
expected."""

from typing import Any

import pytest
from pydantic import ValidationError

from stream.config.settings import StreamSection

ACCESS = {"topic": "logs.access", "format": "combined"}
API = {
    "topic": "logs.api",
    "format": "json",
    "time": "ts",
    "columns": {"host": "host string", "status": "status int", "ms": "timing.total double"},
}


def section(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"from": {"access": ACCESS, "api": API}}
    return {**given, **changes}


def metric(**changes: Any) -> dict[str, Any]:
    return {"name": "m", "from": "access", "measure": "count", **changes}


def faults(given: dict[str, Any]) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        StreamSection.model_validate(given)
    return [(fault["loc"], fault["msg"]) for fault in caught.value.errors()]


def metric_faults(**changes: Any) -> list[tuple[tuple[int | str, ...], str]]:
    return faults(section(metrics=[metric(**changes)]))


def test_the_surface_example_is_fine_and_survives_json() -> None:
    checked = StreamSection.model_validate(
        {
            "master": "local[2]",
            "trigger": "100ms",
            "from": {
                "access": {"topic": "logs.access", "format": "combined"},
                "json": {
                    "topic": "logs.json",
                    "format": "json",
                    "time": "timestamp",
                    "columns": {"level": "level string", "ms": "timing.total double"},
                },
                "text": {"topic": "logs.text", "format": "raw"},
            },
            "defaults": {
                "windows": ["1m", "1h", "all"],
                "keep": {"redis": {"1m": "1d", "1h": "30d"}, "mysql": "forever"},
            },
            "metrics": [
                metric(name="requests_by_status", key="status"),
                metric(name="top_paths", key="path", top=10),
                metric(name="bytes_by_status", key="status", measure="sum", value="bytes"),
                metric(name="visitors", measure="unique", value="remote_addr"),
                {
                    "name": "lines_by_file",
                    "from": ["access", "json", "text"],
                    "key": "file",
                    "measure": "count",
                },
            ],
        }
    )
    assert checked.topics == ("logs.access", "logs.json", "logs.text")
    assert StreamSection.model_validate_json(checked.model_dump_json()) == checked
    assert '"from":' in checked.model_dump_json()


def test_an_empty_section_is_fine() -> None:
    assert StreamSection.model_validate({}).metrics == ()


@pytest.mark.parametrize(
    ("changes", "key", "found", "expected"),
    [
        ({"name": "Requests"}, "name", "found 'Requests'", "a-z"),
        ({"name": "a" * 49}, "name", "found 'aaa", "1 to 48"),
        ({"name": "windows"}, "name", "found 'windows'", "a table, column or key"),
        ({"name": "meta"}, "name", "found 'meta'", "a table, column or key"),
        ({"from": "acces"}, "from", "found 'acces'", "access, api"),
        ({"from": ["access", "access"]}, "from", "found 'access' twice", "each input once"),
        (
            {"where": "stauts >= 500"},
            "where",
            "unknown column stauts at character 1",
            "did you mean status",
        ),
        ({"where": "status >= 'x"}, "where", "never closed at character 11", "closing quote"),
        ({"key": "pth"}, "key", "unknown column 'pth'", "one of input access's: file, line"),
        ({"key": ["status", "path", "method", "user"]}, "key", "found 4 columns", "at most 3"),
        ({"key": ["status", "Status"]}, "key", "'Status' twice", "each column once"),
        ({"measure": "sum"}, "value", "measure sum without value", "value: a column"),
        ({"value": "bytes"}, "value", "a value with measure count", "no value"),
        ({"measure": "sum", "value": "byte"}, "value", "unknown column byte", "did you mean bytes"),
        ({"windows": ["25s"]}, "windows", "found '25s'", "a multiple of 10s up to 1d"),
        ({"windows": ["2d"]}, "windows", "found '2d'", "up to 1d"),
        ({"windows": ["1 fortnight"]}, "windows", "found '1 fortnight'", "multiple of 10s"),
        ({"windows": ["60s", "1m"]}, "windows", "found '1m' twice", "each window once"),
        ({"windows": []}, "windows", "no window", "at least one"),
        ({"top": 5}, "top", "top without key", "key:"),
        (
            {"top": 5, "key": "path", "measure": "sum", "value": "bytes"},
            "top",
            "measure sum",
            "only with count",
        ),
        ({"keep": {"mysql": "soon"}}, "mysql", "found 'soon'", "duration"),
        ({"keep": {"redis": {"all": "1h"}}}, "redis", "found all", "window sizes"),
        ({"keep": {"mysql": {"all": "1h"}}}, "mysql", "found all", "window sizes"),
        ({"keep": {"mysql": {"1m": "soon"}}}, "mysql", "found 'soon'", "duration"),
    ],
)
def test_faults_of_a_metric(changes: dict[str, Any], key: str, found: str, expected: str) -> None:
    (location, message) = metric_faults(**changes)[0]
    assert location[:2] == ("metrics", 0)
    assert key in location
    assert found in message
    assert expected in message


def test_faults_are_reported_all_at_once_each_at_its_place() -> None:
    given = section(
        trigger="soon",
        metrics=[metric(), metric(name="n", where="nix = 1", key="nix"), metric(name="o", tpo=3)],
    )
    assert [location for location, _ in faults(given)] == [
        ("trigger",),
        ("metrics", 1, "where"),
        ("metrics", 1, "key"),
        ("metrics", 2, "tpo"),
    ]


def test_a_metric_of_two_inputs_needs_the_columns_in_both() -> None:
    (_, message) = metric_faults(**{"from": ["access", "api"], "where": "bytes > 1"})[0]
    assert "unknown column bytes at character 1 of input api" in message
    StreamSection.model_validate(
        section(metrics=[metric(**{"from": ["access", "api"], "where": "status > 1"})])
    )


def test_two_metrics_of_one_name() -> None:
    (location, message) = faults(section(metrics=[metric(), metric()]))[0]
    assert location == ("metrics", 1, "name")
    assert "'m' twice" in message


@pytest.mark.parametrize(
    ("changes", "key", "found"),
    [
        ({"format": "xml"}, "format", ""),
        ({"format": "raw", "columns": {"a": "a int"}}, "columns", "found columns with format raw"),
        ({"format": "combined", "time": "ts"}, "time", "found a time column with format comb"),
        ({"format": "raw", "time": "ts"}, "time", "found time with format raw"),
        ({"format": "json", "time": {"layout": "%F"}}, "time", "found no column"),
        ({"format": "json", "time": []}, "time", "found no field"),
        ({"format": "json", "time": 7}, "time", "found 7"),
        ({"format": "csv", "time": "1 + x"}, "time", "found position 'x'"),
        ({"format": "json", "pattern": "(?<a>x)"}, "pattern", "found pattern with format json"),
        ({"format": "json", "columns": {"a": "a nit"}}, "columns", "found type 'nit'"),
        (
            {"format": "json", "columns": {"a": "a int", "A": "b int"}},
            "columns",
            "column 'A' twice",
        ),
        ({"format": "json", "columns": {"line": "a int"}}, "columns", "a column line already"),
        ({"format": "json", "tz": "Mars/Olympus"}, "tz", "found 'Mars/Olympus'"),
        ({"format": "regex", "pattern": "(x)"}, "pattern", "without named groups"),
        ({"format": "regex"}, "pattern", "format regex without pattern"),
        (
            {"format": "regex", "pattern": "(?<a>x)", "columns": {"b": "b int"}},
            "columns",
            "found group 'b'",
        ),
        ({"format": "regex", "pattern": "(?<a>x)", "time": "when"}, "time", "found group 'when'"),
        ({"format": "csv", "delimiter": "||"}, "delimiter", "found '||'"),
        ({"topic": "a b"}, "topic", "found 'a b'"),
    ],
)
def test_faults_of_an_input(changes: dict[str, Any], key: str, found: str) -> None:
    given = {"from": {"one": {"topic": "logs.one", "format": "raw", **changes}}}
    assert any(
        location[:3] == ("from", "one", key) and found in message
        for location, message in faults(given)
    )


def test_one_topic_has_one_input() -> None:
    given = {"from": {"a": ACCESS, "b": {**ACCESS, "format": "common"}}}
    (location, message) = faults(given)[0]
    assert location == ("from",)
    assert "topic 'logs.access' in a and b" in message


@pytest.mark.parametrize(
    ("changes", "key", "found"),
    [
        ({"master": "local(2)"}, "master", "found 'local(2)'"),
        ({"trigger": "2m"}, "trigger", "found '2m'"),
        ({"heap": "64MiB"}, "heap", "found '64MiB'"),
        ({"spark": {"executor.memory": "1g"}}, "spark", "found 'executor.memory'"),
        ({"spark": {"spark.sql.ansi.enabled": "true"}}, "spark", "sets this one itself"),
        ({"max_lines_per_batch": 0}, "max_lines_per_batch", "greater than or equal"),
    ],
)
def test_faults_of_the_section(changes: dict[str, Any], key: str, found: str) -> None:
    (location, message) = faults(section(**changes))[0]
    assert location == (key,)
    assert found in message


def test_groups_of_a_pattern_are_columns() -> None:
    checked = StreamSection.model_validate(
        {
            "from": {
                "app": {
                    "topic": "logs.app",
                    "format": "regex",
                    "pattern": r"(?<when>\S+) (?<level>[A-Z]+) (?<took>\d+)",
                    "time": "when",
                    "columns": {"ms": "took int"},
                }
            }
        }
    )
    assert checked.from_["app"].column_types() == {
        "file": "string",
        "line": "string",
        "time": "timestamp",
        "host": "string",
        "collector_host": "string",
        "ms": "int",
        "level": "string",
    }


@pytest.mark.parametrize(
    ("archive", "key", "found"),
    [
        ({"folder": ""}, "folder", "found ''"),
        ({"folder": "/"}, "folder", "found '/'"),
        ({"folder": "a*"}, "folder", "found 'a*'"),
        ({"folder": "a", "every": "999ms"}, "every", "found '999ms', expected 1s to 1d"),
        ({"folder": "a", "every": "2d"}, "every", "found '2d', expected 1s to 1d"),
        ({"folder": "a", "every": "soon"}, "every", "soon"),
        ({}, "folder", "required"),
    ],
)
def test_faults_of_an_archive(archive: dict[str, Any], key: str, found: str) -> None:
    assert any(
        location == ("archive", key) and found in message
        for location, message in faults(section(archive=archive))
    )


def test_there_is_no_archive_unless_one_is_asked_for() -> None:
    assert StreamSection.model_validate(section()).archive is None
    given = StreamSection.model_validate(section(archive={"folder": "s3a://logs/raw"})).archive
    assert given is not None
    assert (given.folder, given.every) == ("s3a://logs/raw", "10m")


@pytest.mark.parametrize(
    ("master", "is_local"),
    [("local", True), ("local[2]", True), ("local[*]", True), ("spark://a:7077", False),
     ("yarn", False), ("k8s://https://a", False)],
)  # fmt: skip
def test_whether_tasks_run_in_the_drivers_process(master: str, is_local: bool) -> None:
    assert StreamSection(master=master).is_local is is_local
