"""Spark still checks expressions if the file has other faults. Its faults are reported like
others."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.checks import stream_check
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.config.sound import FaultyConfig, SoundRest
from appliance.output import Exit
from tests.unit.appliance.test_commands import config, run

TEXT = """\
ports: {redis: 70000}
stream:
  trigger: soon
  from:
    access: {topic: logs.access, format: combined}
    broken: {topic: logs.json, format: jsn}
    text: {topic: logs.text, format: raw}
  metrics:
    - {name: misspelt, from: access, key: stats, measure: count}
    - {name: for_spark, from: access, measure: count, where: status + 1}
    - {name: of_broken, from: broken, key: level, measure: count}
    - {name: of_both, from: [text, broken], measure: count}
    - {name: good, from: text, measure: count}
    - {name: good, from: text, measure: count}
"""


def rest_of(text: str) -> SoundRest | None:
    with pytest.raises(FaultyConfig) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), {})
    return raised.value.rest


def test_the_rest_has_the_inputs_and_metrics_without_faults() -> None:
    rest = rest_of(TEXT)
    assert rest is not None
    stream = rest.config.stream
    assert list(stream.from_) == ["access", "text"]
    assert [metric.name for metric in stream.metrics] == ["for_spark", "good"]
    assert rest.places == (1, 4)
    assert stream.trigger == "100ms"
    path = ("stream", "metrics", 1, "where")
    assert rest.path_in_file(path) == ("stream", "metrics", 4, "where")
    assert rest.path_in_file(("stream", "from", "access")) == ("stream", "from", "access")


@pytest.mark.parametrize(
    "text",
    [
        "ports: {redis: 70000}",
        "? [a]\n: 1",
        "stream: {metrics: [" + "{from: [[a]]}, " * 501 + "]}",
        "ports: {redis: 70000}\nstream: 3",
        "ports: {redis: 70000}\nstream: {from: [], metrics: [{name: a}]}",
        "stream: {from: {a: {topic: t, format: jsn}},"
        " metrics: [{name: m, from: a, measure: count}]}",
    ],
)
def test_nothing_is_left_without_a_metric(text: str) -> None:
    assert rest_of(text) is None


def test_faults_of_both_kinds_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def spark(_: object, settings: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append([metric["name"] for metric in settings["section"]["metrics"]])
        path = ["stream", "metrics", 0, "where"]
        fault = {"path": path, "found": "an expression of type int", "expected": "true or false"}
        return [{**fault, "is_note": False}, {**fault, "path": path[:3], "is_note": True}]

    monkeypatch.setattr(stream_check, "_ask_spark", spark)
    config(tmp_path, TEXT)
    code, out, _ = run(monkeypatch, tmp_path, "config", "check", "--json")
    assert code == Exit.USAGE
    assert asked == [["for_spark", "good"]]
    told = [(fault["line"], fault["key"]) for fault in json.loads("\n".join(out))["data"]]
    assert told == [
        (1, "ports.redis"),
        (3, "stream.trigger"),
        (6, "stream.from.broken.format"),
        (9, "stream.metrics[0].key"),
        (10, "stream.metrics[1].where"),
        (14, "stream.metrics[5].name"),
    ]


def test_without_an_answer_the_other_faults_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark(*_: object) -> list[dict[str, Any]]:
        raise stream_check.CheckFailed("no Java")

    monkeypatch.setattr(stream_check, "_ask_spark", spark)
    config(tmp_path, TEXT)
    code, _, err = run(monkeypatch, tmp_path, "config", "check")
    assert code == Exit.USAGE
    assert any("Spark has not checked the other metrics: no Java" in line for line in err)
    assert any("ports.redis" in line for line in err)


def test_quick_does_not_ask_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_check, "_ask_spark", lambda *_: pytest.fail("Spark was asked"))
    config(tmp_path, TEXT)
    assert run(monkeypatch, tmp_path, "config", "check", "--quick")[0] == Exit.USAGE


def test_a_file_that_is_no_yaml_has_no_rest() -> None:
    with pytest.raises(ConfigFaults) as raised:
        load_text("stream: [", "mill.yaml", Path("/nowhere"), {})
    assert not isinstance(raised.value, FaultyConfig)
