"""Spark runs each listed function as the fold does."""

import pytest

from stream.config.expression import spark_sql
from stream.config.functions import known_functions
from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.judging import Judging
from tests.interop.stream_spark import count_lines, keys, one_input, spark

pytestmark = pytest.mark.live


def test_each_example_gives_what_the_list_says() -> None:
    examples = list(known_functions().values())
    columns = ", ".join(
        f"CAST(millrace_try_of_user({spark_sql(one.example, {}).text}) AS STRING) AS c{at}"
        for at, one in enumerate(examples)
    )
    (row,) = spark().sql(f"SELECT {columns}").collect()
    given = {one.name: "NULL" if row[at] is None else row[at] for at, one in enumerate(examples)}
    assert given == {one.name: one.result for one in examples}


def test_each_function_can_be_a_part_of_a_metric() -> None:
    """One plan has an expression with each function, so the fold can run all functions of the
    list."""
    wheres = [f"({one.example}) IS NOT NULL OR line <> ''" for one in known_functions().values()]
    config = one_input(
        {"format": "raw"},
        *({"name": f"m{at}", "where": where} for at, where in enumerate(wheres)),
    )
    section = StreamSection.model_validate(config)
    Judging(spark(), compile_plan(section))
    counts = count_lines(config, ["x"])
    assert {name: keys(counts, name) for name in ("m0", f"m{len(wheres) - 1}")} == {
        "m0": {(): 1},
        f"m{len(wheres) - 1}": {(): 1},
    }
    assert {row.metric for row in counts.rows} == {f"m{at}" for at in range(len(wheres))}
