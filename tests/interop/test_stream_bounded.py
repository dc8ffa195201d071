"""Lines on which an expression would run for years, kill the JVM or give a wrong number."""

import time
from decimal import Decimal
from typing import Any

import pytest

from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from tests.interop.stream_spark import frame, keys, one_input, reasons, spark

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("started")]

ACCESS = '10.0.0.1 - - [01/Aug/2026:10:00:01 +0000] "GET {} HTTP/1.1" 200 {} "-" "{}"'
SECONDS_MAX = 60.0
"""Far more than bounded matches take on a busy machine. Without a bound a match takes years."""


@pytest.fixture(scope="module")
def started() -> None:
    """Start Spark before the tests measure times."""
    spark()


def fold(config: dict[str, Any], lines: list[str], *, in_tasks: bool, **where: Any) -> BatchCounts:
    """Fold lines either in Spark's tasks or in the driver."""
    plan = compile_plan(StreamSection.model_validate(config))
    folding = Folding(plan, as_blocks=False)
    found = frame(lines, **where)
    return folding.fold_in_tasks(found) if in_tasks else folding.fold_in_driver(found)


# Each expression is true on other lines, but would run for years on EVIL.
EVIL = "/" + "a" * 60 + "b"
BACKTRACKING = {
    "m_rlike": "path rlike '^/(.*a){12}$'",
    "m_regexp": "path REGEXP '^/(.*a){12}$'",
    "m_regexp_like": "regexp_like(path, '^/(.*a){12}$')",
    "m_not_rlike": "NOT path rlike '^/(.*a){12}$' OR status = 200",
    "m_of_a_column": "path rlike concat('^/(.*a){12}', if(status = 200, '$', 'x'))",
    "m_extract": "regexp_extract(path, '^/(.*a){12}$', 0) <> ''",
    "m_extract_all": "size(regexp_extract_all(path, '^/(.*a){12}$', 0)) > 0",
    "m_replace": "regexp_replace(path, '^/(.*a){12}$', 'x') = 'x'",
    "m_count": "regexp_count(path, '^/(.*a){12}$') = 1",
    "m_instr": "regexp_instr(path, '^/(.*a){12}$') = 1",
    "m_substr": "regexp_substr(path, '^/(.*a){12}$') IS NOT NULL",
    "m_split": "size(split(path, '^/(.*a){12}$')) = 2",
    "m_lambda": "exists(array(path), x -> x rlike '^/(.*a){12}$')",
}


@pytest.mark.parametrize("in_tasks", [False, True])
def test_a_pattern_that_would_not_end_is_null_for_its_line(in_tasks: bool) -> None:
    metrics = [{"name": name, "where": where} for name, where in BACKTRACKING.items()]
    config = one_input({"format": "combined"}, *metrics, {"name": "n_lines"})
    lines = [ACCESS.format(path, 5, "x") for path in (EVIL, "/" + "a" * 12)]
    begin = time.monotonic()
    counts = fold(config, lines, in_tasks=in_tasks)
    assert time.monotonic() - begin < SECONDS_MAX
    assert keys(counts, "n_lines") == {(): 2}
    for name in BACKTRACKING:
        assert keys(counts, name) == {(): 1}, name
    assert reasons(counts) == {f"expression_null:{name}": 1 for name in BACKTRACKING}


LIKES = {
    "m_chain": "path LIKE '%a%a%a%a%a%a%a%a%a%a%a%a%c'",
    "m_any": "path LIKE ANY ('%a%a%a%a%a%a%a%a%a%a%a%a%c', '/x')",
    "m_all": "NOT path LIKE ALL ('/%', '%a%a%a%a%a%a%a%a%a%a%a%a%c')",
    "m_ilike": "path ILIKE '%A%A%A%A%A%A%A%A%A%A%A%A%c'",
    "m_of_a_column": "path LIKE concat('%a%a%a%a%a%a%a%a%a%a%a%a%', if(status = 200, 'c', 'd'))",
}


def test_a_like_that_would_not_end_is_null_for_its_line() -> None:
    metrics = [{"name": name, "where": where} for name, where in LIKES.items()]
    config = one_input({"format": "combined"}, *metrics)
    lines = [ACCESS.format("/" + "a" * 400 + "b", 5, "x")]
    begin = time.monotonic()
    counts = fold(config, lines, in_tasks=False)
    assert time.monotonic() - begin < SECONDS_MAX
    assert reasons(counts) == {f"expression_null:{name}": 1 for name in LIKES}


def test_formats_end_on_every_line() -> None:
    pattern = r"^(?<a>(?:.*x){12})$"
    config = one_input({"format": "regex", "pattern": pattern}, {"name": "by", "key": "a"})
    begin = time.monotonic()
    counts = fold(config, ["x" * 60 + "y", "x" * 12], in_tasks=False)
    assert keys(counts, "by") == {"x" * 12: 1}
    assert reasons(counts) == {"format:regex": 1}
    # syslog's pattern strips blanks at the end of the message. A million blanks in the middle must
    # not make the match take quadratic time.
    syslog = one_input({"format": "syslog"}, {"name": "by", "key": "program"})
    head = "Aug  1 10:00:01 host program: "
    counts = fold(syslog, [head + " " * 1_000_000 + "x", head + "x"], in_tasks=False)
    assert keys(counts, "by")["program"] >= 1
    assert time.monotonic() - begin < SECONDS_MAX


SAME = [
    "{t} rlike '[0-9]+'", "{t} regexp '^$'", "{t} rlike '(?i)ABC'", "{t} rlike NULL",
    "{t} like '%b_c%'", "{t} like 'a%c%'", "{t} like '%\\\\%%x'", "{t} ilike '%B%b%'",
    "{t} like any ('a%b%c', 'x')", "{t} like all ('%a%b%', '%')", "{t} not like any ('%a%b%', 'y')",
    "{t} not like all ('%a%b%', 'y%z%w')", "{t} like any ('%a%b%', NULL)",
    "regexp_extract({t}, '([a-z]+)-([0-9]*)', 1)", "regexp_extract({t}, '([a-z]+)-([0-9]*)', 2)",
    "regexp_extract({t}, '(x)?b', 1)", "regexp_extract_all({t}, '([a-z])([0-9])?', 2)",
    "regexp_extract_all({t}, '[a-z]', 0)", "regexp_replace({t}, '([a-z])', '<$1>')",
    "regexp_replace({t}, '', '.')", "regexp_replace({t}, 'b', 'x', 3)",
    "regexp_replace({t}, 'b', 'x', 100)", "regexp_count({t}, '[bc]')",
    "regexp_instr({t}, '[0-9]')", "regexp_substr({t}, '[0-9]+')", "split({t}, '')",
    "split({t}, '-')", "split({t}, '[-b]')", "split({t}, '[-b]', 2)", "split({t}, 'b', 0)",
    "split({t}, '[0-9]', 0)", "split({t}, ',', -1)", "split({t}, '.')", "split({t}, {t})",
    "regexp_extract({t}, {t}, 0)", "repeat({t}, 3)", "lpad({t}, 7, 'xy')", "rpad({t}, 2)",
    "space(length({t}))", "array_repeat({t}, length({t}))", "format_string('%5s|%-4s|', {t}, {t})",
    "repeat({t}, -1)",
]  # fmt: skip


def test_what_stands_in_the_place_of_spark_s_functions_gives_the_same() -> None:
    texts = [
        "", "a", "abc", "ab-12", "x-", "-", "--", "a,b,,c,,", "bbb", "ABC", "héé😀b-7", "a\nb-c",
        "a b c ", "b", "\\%x", "%x", "aXbXc", None,
    ]  # fmt: skip
    rows = spark().createDataFrame([(text,) for text in texts], "t STRING")
    for sql in SAME:
        own = sql.format(t="t")
        for function in ("millrace_try", "millrace_try_of_user"):
            pairs = rows.selectExpr("t", own + " AS a", f"{function}({own}) AS b").collect()
            for row in pairs:
                assert row.a == row.b, (sql, row.t)


LARGE = 9_223_372_036_854_775_807
WRAPPING = {
    "m_cast": "cast(bytes * 1000000000 as int)",
    "m_product": "bytes * 9223372036854775807",
    "m_sum": "bytes + 9223372036854775807",
    "m_difference": "-2 - bytes - 9223372036854775807",
    "m_negative": "-(bytes - 5 - 9223372036854775807 - 1)",
    "m_absolute": "abs(bytes - 5 - 9223372036854775807 - 1)",
    "m_quotient": "(bytes - 5 - 9223372036854775807 - 1) div -1",
    "m_of_a_double": "int(bytes * 1e15)",
    "m_in_a_lambda": "aggregate(array(1L, bytes), 0L, (a, x) -> a + x * 4611686018427387904)",
    "m_rounded": "round(int(bytes) + 2147483640 + 1, -1)",
    "m_small": "tinyint(bytes + 200)",
    "m_of_a_decimal": "int(bytes * 1234567890.5BD)",
}


@pytest.mark.parametrize("in_tasks", [False, True])
def test_whole_numbers_that_do_not_fit_are_null_with_a_reason(in_tasks: bool) -> None:
    metrics = [{"name": name, "measure": "sum", "value": value} for name, value in WRAPPING.items()]
    good = {"name": "good", "measure": "sum", "value": "(bytes * 3 - 1) div 2 + int('7')"}
    config = one_input({"format": "combined"}, *metrics, good)
    counts = fold(config, [ACCESS.format("/", 5, "x")], in_tasks=in_tasks)
    found = reasons(counts)
    assert {name for name in WRAPPING if f"expression_null:{name}" not in found} == set()
    (row,) = counts.rows
    assert (row.metric, row.sum) == ("good", Decimal(14))


AMPLIFYING = {
    "m_format": "format_string(user_agent, bytes) <> ''",
    "m_repeat": "repeat(user_agent, int(bytes * 1000000)) <> ''",
    "m_space": "space(int(bytes * 100000000)) <> ''",
    "m_padded": "lpad(user_agent, int(bytes * 100000000), 'x') <> ''",
    "m_padded_behind": "rpad(user_agent, int(bytes * 100000000), 'x') <> ''",
    "m_elements": "size(array_repeat(user_agent, int(bytes * 100000000))) > 0",
}


@pytest.mark.parametrize("in_tasks", [False, True])
def test_what_a_number_in_a_line_makes_too_large_is_null_for_its_metric(in_tasks: bool) -> None:
    metrics = [{"name": name, "where": where} for name, where in AMPLIFYING.items()]
    config = one_input({"format": "combined"}, *metrics, {"name": "n_lines"})
    lines = [ACCESS.format("/", 17, agent) for agent in ("%999999999d", "%0999999999d")]
    begin = time.monotonic()
    counts = fold(config, lines, in_tasks=in_tasks)
    assert time.monotonic() - begin < SECONDS_MAX
    assert keys(counts, "n_lines") == {(): 2}, "the other metrics count the lines"
    assert reasons(counts) == {f"expression_null:{name}": 2 for name in AMPLIFYING}


ERRORS = {
    # A repeated group uses stack for each character, and a sequence uses memory.
    "m_stack": "path rlike '^/(a|b)*$'",
    "m_memory": "size(sequence(1L, bytes * 100000000)) > 0",
}


@pytest.mark.parametrize("in_tasks", [False, True])
def test_an_error_of_java_s_in_one_expression_is_null_for_its_metric(in_tasks: bool) -> None:
    metrics = [{"name": name, "where": where} for name, where in ERRORS.items()]
    config = one_input({"format": "combined"}, *metrics, {"name": "n_lines"})
    lines = [
        ACCESS.format("/" + "ab" * 1_000_000, 0, "x"),
        ACCESS.format("/ab", 17, "x"),
        ACCESS.format("/ab", 0, "x"),
    ]
    counts = fold(config, lines, in_tasks=in_tasks)
    assert keys(counts, "n_lines") == {(): 3}
    assert keys(counts, "m_stack") == {(): 2}
    assert keys(counts, "m_memory") == {(): 2}
    assert reasons(counts) == {f"expression_null:{name}": 1 for name in ERRORS}


@pytest.mark.parametrize("in_tasks", [False, True])
def test_a_file_whose_name_is_no_utf_8_is_one_key(in_tasks: bool) -> None:
    config = one_input({"format": "raw"}, {"name": "by_file", "key": "file"})
    counts = fold(config, ["x"], in_tasks=in_tasks, file=b"t/\xed\xa0\x80\xff.log")
    assert keys(counts, "by_file") == {b"t/\xed\xa0\x80\xff.log".decode(errors="replace"): 1}
