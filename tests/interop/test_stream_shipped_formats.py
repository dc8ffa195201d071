"""Every shipped format on lines as programs write them, through the query that the mill runs.

`tests/fixtures/formats/NAME.jsonl` has a line and its columns in each row. The columns were written
together with the line, from the values that the line was made of.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from stream.config.format_files import load_formats, shipped_names
from stream.config.settings import StreamSection
from stream.fold.compile import LINES_VIEW, compile_plan
from tests.interop.stream_spark import frame, one_input, spark

pytestmark = pytest.mark.live

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"
# Without a header of the user's these have no columns.
BARE = ("tsv",)
# What an input says of formats that have no columns of their own.
TEXTS = {name: f"{name} string" for name in ("level", "message", "msg", "src", "dst")}
INPUTS: dict[str, dict[str, Any]] = {
    "json": {"time": ["@timestamp", "timestamp", "time", "ts", "eventTime"], "columns": TEXTS},
    "logfmt": {"time": ["ts", "time"], "columns": TEXTS},
    "cef": {"time": "rt", "columns": TEXTS},
}


def samples(name: str) -> list[tuple[str, dict[str, str | None]]]:
    """The lines of a format and their columns."""
    rows = (FIXTURES / f"{name}.jsonl").read_text().removesuffix("\n").split("\n")
    return [(line, row) for line, row in map(json.loads, rows)]


def rows_of(name: str, lines: list[str], columns: list[str]) -> list[dict[str, Any]]:
    """Return the judging query's rows for these lines: the reason, and the columns as text."""
    metrics = [{"name": f"m{place}", "key": column} for place, column in enumerate(columns)]
    plan = compile_plan(
        StreamSection.model_validate(one_input({"format": name, **INPUTS.get(name, {})}, *metrics))
    )
    frame(lines).createOrReplaceTempView(LINES_VIEW)
    keys = [reading.keys[0] for reading in plan.readings]
    found = spark().sql(plan.lines_sql).collect()
    return [
        {"reason": row["reason"], **{c: row[key] for c, key in zip(columns, keys, strict=True)}}
        for row in found
    ]


@pytest.mark.parametrize("name", [name for name in shipped_names() if name not in BARE])
def test_each_line_has_the_columns_that_it_was_made_of(name: str) -> None:
    given = samples(name)
    assert len(given) >= 20
    columns = sorted({column for _, row in given for column in row})
    found = rows_of(name, [line for line, _ in given], columns)
    for (line, row), one in zip(given, found, strict=True):
        shown = {column: one[column] for column in row}
        assert (one["reason"], shown) == (None, row), repr(line)


def test_the_samples_of_the_files_are_read() -> None:
    for name, given in load_formats().items():
        if given.samples:
            reasons = {row["reason"] for row in rows_of(name, list(given.samples), ["line"])}
            assert reasons == {None}, name
