"""Lines without a readable time. They count only in the window `all`, or at their arrival if the
input says so."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sinks.cells.merge import fold_to_windows
from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from tests.interop.stream_spark import (
    ARRIVAL,
    count_lines,
    frame,
    frame_for_tasks,
    one_input,
    reasons,
)

pytestmark = pytest.mark.live

SHIPPED = Path(__file__).parents[2] / "configs" / "millrace.yaml"
HOUR = 1_725_721_200
LINES = [
    json.dumps(one)
    for one in (
        {"ts": "2024-09-07T15:10:00Z", "who": "a", "n": 1},
        {"ts": "2024-09-07T15:20:00Z", "who": "a", "n": 2},
        {"ts": "soon", "who": "a", "n": 4},
        {"who": "b", "n": 8},
        {"ts": "07/09/2024 10:00", "who": "b", "n": "x"},
        {"ts": "1960-01-01T00:00:00Z", "who": "c", "n": 16},
    )
]
COLUMNS = {"who": "who string", "n": "n bigint"}


def section(time: Any, *metrics: dict[str, Any]) -> dict[str, Any]:
    return one_input({"format": "json", "time": time, "columns": COLUMNS}, *metrics)


def cells(counts: BatchCounts, of: dict[str, Any]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return every cell that the sinks would get, by metric, size, start and key."""
    plan = compile_plan(StreamSection.model_validate(of))
    definitions = {metric.name: metric.definition for metric in plan.metrics}
    gathered = fold_to_windows(counts.rows, definitions, 0, left_out=set())
    return {
        (i.metric, i.size_s, i.start_s, *cell.key): (
            sum(part.count for part in cell.parts),
            sum(part.sum or 0 for part in cell.parts),
        )
        for i, cell in gathered.items()
    }


METRICS: list[dict[str, Any]] = [
    {"name": "by_who", "key": "who", "windows": ["1h", "all"]},
    {"name": "total", "measure": "sum", "value": "n", "windows": ["1m", "all"]},
    {"name": "hours", "windows": ["1h"]},
    {"name": "ever", "windows": ["all"]},
    {"name": "late", "where": "hour(time) = 15", "windows": ["all"]},
]


@pytest.mark.parametrize("in_tasks", [False, True])
def test_a_line_without_a_time_counts_in_all_alone(in_tasks: bool) -> None:
    of = section("ts", *METRICS)
    folding = Folding(compile_plan(StreamSection.model_validate(of)), as_blocks=False)
    counts = (
        folding.fold_in_tasks(frame_for_tasks(LINES, 2))
        if in_tasks
        else folding.fold_in_driver(frame(LINES))
    )
    assert cells(counts, of) == {
        ("by_who", 3_600, HOUR, "a"): (2, 0),
        ("by_who", 0, 0, "a"): (3, 0),
        ("by_who", 0, 0, "b"): (2, 0),
        ("by_who", 0, 0, "c"): (1, 0),
        ("total", 60, HOUR + 600, ): (1, 1),
        ("total", 60, HOUR + 1_200, ): (1, 2),
        ("total", 0, 0): (5, 31),
        ("hours", 3_600, HOUR): (2, 0),
        ("ever", 0, 0): (6, 0),
        ("late", 0, 0): (2, 0),
    }  # fmt: skip
    assert reasons(counts) == {
        "time": 3,
        "time:ambiguous": 1,
        "expression_null:total": 1,
        # For a line without a time `where` is NULL, because the expression uses the time.
        "expression_null:late": 4,
    }
    assert counts.lines == 6
    assert counts.latest_s == HOUR + 1_200


def test_samples_of_a_line_stand_under_each_of_its_reasons() -> None:
    counts = count_lines(section("ts", METRICS[1]), LINES)
    samples = {row.reason: [one.offset for one in row.samples] for row in counts.unparsed}
    assert samples == {"time": [2, 3, 5], "time:ambiguous": [4], "expression_null:total": [4]}


def test_with_a_fallback_such_a_line_counts_at_its_arrival() -> None:
    of = section({"column": "ts", "fallback": "arrival"}, METRICS[0], METRICS[2])
    counts = count_lines(of, LINES)
    arrival = int(ARRIVAL.timestamp())
    assert reasons(counts) == {}
    assert cells(counts, of)["hours", 3_600, arrival] == (4, 0)
    assert cells(counts, of)["by_who", 0, 0, "b"] == (2, 0)


def test_a_line_that_does_not_parse_counts_nowhere() -> None:
    for time in ("ts", {"column": "ts", "fallback": "arrival"}):
        counts = count_lines(section(time, METRICS[3]), ["no json", None])
        assert counts.rows == []
        assert reasons(counts) == {"format:json": 1, "null": 1}


def test_an_access_line_of_no_day_falls_back_as_well() -> None:
    line = '1.2.3.4 - - [32/Aug/2026:10:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "x"'
    for given, start in (({}, None), ({"time": {"fallback": "arrival"}}, int(ARRIVAL.timestamp()))):
        of = one_input({"format": "combined", **given}, {"name": "hours", "windows": ["1h", "all"]})
        found = cells(count_lines(of, [line]), of)
        assert found.get(("hours", 0, 0)) == (1, 0)
        assert found.get(("hours", 3_600, start or 0)) == ((1, 0) if start else None)


def test_the_shipped_json_input_finds_the_time_under_its_usual_names() -> None:
    shipped = yaml.safe_load(SHIPPED.read_text())["stream"]["from"]["json"]
    lines = [
        '{"timestamp":"2024-09-07T15:58:36Z","level":"info"}',
        '{"@timestamp":"2024-09-07T15:58:36Z","level":"info"}',
        '{"time":1725724716113,"level":30}',
        '{"ts":1725724716.5,"level":"info"}',
        '{"eventTime":"2024-09-07T15:58:36Z"}',
        '{"date":"Sat, 07 Sep 2024 15:58:36 GMT"}',
        '{"__REALTIME_TIMESTAMP":"1725724716113000"}',
        '{"date":"2024-09-07","datetime":"2024-09-07 15:58:36"}',
        '{"time":"00:00:01.5","ts":"2024-09-07T15:58:36Z"}',
        '{"level":"info","msg":"no time"}',
        '{"timestamp":null,"level":"info"}',
    ]
    of = one_input({**shipped, "topic": "logs.t"}, {"name": "hours", "windows": ["1m", "all"]})
    counts = count_lines(of, lines)
    assert cells(counts, of) == {
        ("hours", 60, HOUR + 58 * 60): (9, 0),
        ("hours", 0, 0): (11, 0),
    }
    assert reasons(counts) == {"time": 2}
