"""Every shipped format on realistic lines, through the query that the mill runs.

Each row of `tests/fixtures/formats/NAME.jsonl` has a line and its expected columns. The generator
wrote both from the same values, so no parser was involved.
"""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest

from stream.config.format_files import load_formats
from stream.config.input_section import ParsedInputSection
from stream.config.settings import StreamSection
from stream.fold.compile import LINES_VIEW, compile_plan
from tests.harness.format_lines import INPUTS, NAMES, generated, samples
from tests.interop.stream_spark import Headers, frame, one_input, spark

pytestmark = pytest.mark.live


def format_input(name: str) -> ParsedInputSection:
    given = {"topic": "logs.t", "format": name, **INPUTS.get(name, {})}
    return ParsedInputSection.model_validate(given)


def rows_of(
    name: str, lines: list[str], columns: list[str], headers: Sequence[Headers] = (None,)
) -> list[dict[str, Any]]:
    """Return the rows of the judging query for these lines: the reason, and the columns as text."""
    metrics = [{"name": f"m{place}", "key": column} for place, column in enumerate(columns)]
    plan = compile_plan(
        StreamSection.model_validate(one_input({"format": name, **INPUTS.get(name, {})}, *metrics))
    )
    frame(lines, headers=headers).createOrReplaceTempView(LINES_VIEW)
    keys = [reading.keys[0] for reading in plan.readings]
    found = spark().sql(plan.lines_sql).collect()
    return [
        {"reason": row["reason"], **{c: row[key] for c, key in zip(columns, keys, strict=True)}}
        for row in found
    ]


@pytest.mark.parametrize("name", NAMES)
def test_each_line_has_the_columns_that_it_was_made_of(name: str) -> None:
    given = samples(name)
    assert len(given) >= 20
    columns = sorted({column for _, row in given for column in row})
    found = rows_of(name, [line for line, _ in given], columns)
    for (line, row), one in zip(given, found, strict=True):
        shown = {column: one[column] for column in row}
        assert (one["reason"], shown) == (None, row), repr(line)


@pytest.mark.parametrize("name", NAMES)
def test_generated_lines_have_the_columns_that_they_were_made_with(name: str) -> None:
    given = list(generated(name, 200, seed=1))
    columns = sorted({column for _, row in given for column in row})
    found = rows_of(name, [line for line, _ in given], columns)
    for (line, row), one in zip(given, found, strict=True):
        shown = {column: one[column] for column in row}
        assert (one["reason"], shown) == (None, row), repr(line)


HOSTS: Sequence[tuple[Headers, str | None]] = [
    (None, None),
    ([], None),
    ([("host", b"other"), ("millrace.hosts", b"other")], None),
    ([("millrace.host", None)], None),
    ([("millrace.host", b"")], ""),
    ([("env", b"test"), ("millrace.host", b"web-07")], "web-07"),
    ([("millrace.host", b"first"), ("millrace.host", b"last")], "last"),
    ([("millrace.host", b"a\xff")], "a\ufffd"),
]
"""Headers of a record, and the name of the collector in them."""


@pytest.mark.parametrize("name", NAMES)
def test_each_line_has_the_name_of_its_collector(name: str) -> None:
    """A format's own column `host` wins."""
    given = samples(name)[: 2 * len(HOSTS)]
    lines, headers = [line for line, _ in given], [found for found, _ in HOSTS]
    found = rows_of(name, lines, ["host", "collector_host"], headers)
    own = format_input(name).own_columns()
    for (line, row), one, (_, expected) in zip(given, found, cycle(HOSTS), strict=False):
        host = row.get("host") if "host" in own else expected
        assert one == {"reason": None, "host": host, "collector_host": expected}, line


def test_the_samples_of_the_files_are_read() -> None:
    for name, given in load_formats().items():
        if given.samples:
            reasons = {row["reason"] for row in rows_of(name, list(given.samples), ["line"])}
            assert reasons == {None}, name
