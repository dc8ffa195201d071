"""The fold in Spark: measures, faults, keys, slices, sketches, and counts that are no metric's."""

from decimal import Decimal

import datasketches
import pytest

from sinks import distinct
from tests.harness import worked
from tests.interop.stream_spark import count_lines, keys, one_input, reasons

pytestmark = pytest.mark.live

JSON = {
    "format": "json",
    "time": "ts",
    "columns": {"status": "status int", "a": "a double", "b": "b double", "who": "who string"},
}


def json_line(status: str = "200", a: str = "1", b: str = "1", who: str = '"x"') -> str:
    return f'{{"ts": 1785578401, "status": {status}, "a": {a}, "b": {b}, "who": {who}}}'


def test_one_bad_line_among_a_thousand() -> None:
    lines = [json_line()] * 1_000 + [json_line(status='"abc"', b="0"), json_line(status='"500"')]
    config = one_input(
        JSON,
        {"name": "errors", "measure": "share", "value": "status >= 500"},
        {"name": "ratio", "measure": "sum", "value": "a / b"},
        {"name": "status_sum", "measure": "sum", "value": "status"},
        {"name": "bad", "where": "status >= 500"},
        {"name": "everything"},
    )
    counts = count_lines(config, lines)
    assert keys(counts, "errors") == {(): 1_001}
    assert keys(counts, "ratio") == {(): 1_001}
    assert keys(counts, "status_sum") == {(): 1_001}
    assert keys(counts, "bad") == {(): 1}
    assert keys(counts, "everything") == {(): 1_002}
    assert reasons(counts) == {
        f"expression_null:{name}": 1 for name in ("errors", "ratio", "status_sum", "bad")
    }
    (errors,) = (row for row in counts.rows if row.metric == "errors")
    assert [errors.sum, errors.min, errors.max] == [Decimal(1), Decimal(0), Decimal(1)]
    assert counts.lines == 1_002
    fault = next(row for row in counts.unparsed if row.reason == "expression_null:ratio")
    assert [sample.offset for sample in fault.samples] == [1_000]
    assert b'"abc"' in fault.samples[0].line


@pytest.mark.parametrize("value", ["null", '"-"', '""'])
def test_an_absent_field_is_no_fault_where_it_is_the_value(value: str) -> None:
    lines = [json_line(status=value, who="null"), json_line()]
    config = one_input(
        JSON,
        {"name": "largest", "measure": "max", "value": "status"},
        {"name": "people", "measure": "unique", "value": "who"},
        {"name": "spread", "measure": "percentile", "value": "STATUS"},
        {"name": "expression", "measure": "max", "value": "status + 0"},
        {"name": "by_who", "key": "who"},
    )
    counts = count_lines(config, lines)
    assert keys(counts, "largest") == {(): 1}
    assert keys(counts, "people") == {(): 1}
    assert keys(counts, "spread") == {(): 1}
    assert keys(counts, "expression") == {(): 1}
    assert keys(counts, "by_who") == {None: 1, "x": 1}
    assert reasons(counts) == {"expression_null:expression": 1}


def test_text_measured_as_a_number() -> None:
    lines = [json_line(who='"12.5"'), json_line(who='"-"'), json_line(who='"many"')]
    config = one_input(JSON, {"name": "total", "measure": "sum", "value": "who"})
    counts = count_lines(config, lines)
    (row,) = counts.rows
    assert (row.count, row.sum) == (1, Decimal("12.5"))
    assert reasons(counts) == {"expression_null:total": 1}


def test_not_a_number_and_infinity_are_faults() -> None:
    config = one_input(
        JSON,
        {"name": "total", "measure": "sum", "value": "CAST(who AS DOUBLE)"},
        {"name": "spread", "measure": "percentile", "value": "CAST(who AS DOUBLE)"},
    )
    lines = [json_line(who=f'"{text}"') for text in ("NaN", "Infinity", "1e40", "2")]
    counts = count_lines(config, lines)
    assert keys(counts, "total") == {(): 1}
    assert keys(counts, "spread") == {(): 1}
    assert reasons(counts) == {"expression_null:total": 3, "expression_null:spread": 3}


def test_sums_are_exact_to_six_places() -> None:
    lines = [json_line(a="0.1")] * 999 + [json_line(a="123456789.123456")]
    config = one_input(JSON, {"name": "total", "measure": "sum", "value": "a"})
    (row,) = count_lines(config, lines).rows
    assert row.sum == Decimal("0.1") * 999 + Decimal("123456789.123456")
    assert (row.min, row.max) == (Decimal("0.1"), Decimal("123456789.123456"))


def test_slices_and_windows() -> None:
    lines = [f'{{"ts": {1_785_578_399 + second}}}' for second in range(121)]
    config = one_input(
        JSON,
        {"name": "tens", "windows": ["10s", "1m"]},
        {"name": "thirties", "windows": ["90s", "1m"]},
        {"name": "hours", "windows": ["1h", "all"]},
        {"name": "totals", "windows": ["all"]},
    )
    counts = count_lines(config, lines)

    def slices(metric: str) -> dict[int, int]:
        return {row.slice_start_s: row.count for row in counts.rows if row.metric == metric}

    first = 1_785_578_390
    assert slices("tens") == {first: 1} | {first + 10 * (n + 1): 10 for n in range(12)}
    assert slices("thirties") == {first - 20: 1} | {first + 10 + 30 * n: 30 for n in range(4)}
    assert slices("hours") == {1_785_574_800: 1, 1_785_578_400: 120}
    assert slices("totals") == {0: 121}
    assert counts.latest_s == 1_785_578_399 + 120


def test_keys_of_three_columns_keep_their_bytes() -> None:
    texts = ["a", "A", "a ", "ä", "", "a|b", "x" * 2_000]
    lines = [json_line(who=f'"{text}"') for text in texts]
    config = one_input(JSON, {"name": "who3", "key": ["who", "file", "status"]})
    counts = count_lines(config, lines, file="dir/ä.log")
    assert keys(counts, "who3") == {(text, "dir/ä.log", "200"): 1 for text in texts}


def test_a_record_without_key_has_no_file() -> None:
    config = one_input({"format": "raw"}, {"name": "files", "key": "file"})
    assert keys(count_lines(config, ["x"], file=None), "files") == {None: 1}
    config = one_input({"format": "json"}, {"name": "files", "key": "file"})
    assert count_lines(config, ["x"], file=None).unparsed[0].file == "(none)"


def test_invalid_utf8_is_one_key_however_it_is_broken() -> None:
    config = one_input({"format": "raw"}, {"name": "texts", "key": "line"})
    counts = count_lines(config, [b"a\xff", b"a\xfe", b"a"])
    assert keys(counts, "texts") == {"a\ufffd": 2, "a": 1}


def test_samples_are_the_first_lines_while_the_count_is_of_all() -> None:
    config = one_input({"format": "json"}, {"name": "n_lines"})
    lines = [f"line {place}" for place in range(2_500)]
    (row,) = count_lines(config, lines, start=10_000, partition=3).unparsed
    assert row.count == 2_500
    assert {s.partition for s in row.samples} == {3}
    assert [s.offset for s in row.samples] == list(range(10_000, 11_000))
    assert row.samples[7].line == b"line 7"


def test_lines_of_a_topic_without_input_are_told() -> None:
    config = one_input({"format": "raw"}, {"name": "n_lines"})
    counts = count_lines(config, ["x"], topic="logs.other")
    assert reasons(counts) == {"topic": 1}
    assert counts.rows == []


def test_sketches_of_the_fold_are_read_here() -> None:
    lines = [json_line(who=f'"v{n % 700}"', a=str(n)) for n in range(1, 1_001)]
    config = one_input(
        JSON,
        {"name": "people", "measure": "unique", "value": "who"},
        {"name": "spread", "measure": "percentile", "value": "a"},
        {"name": "plain"},
    )
    rows = {row.metric: row for row in count_lines(config, lines).rows}
    hll, kll = rows["people"].hll, rows["spread"].kll
    assert hll is not None
    assert kll is not None
    assert (rows["people"].kll, rows["spread"].hll) == (None, None)
    assert (rows["plain"].kll, rows["plain"].hll) == (None, None)
    # The sketch of distinct values equals the sketch made here in Python, byte by byte. The
    # `datasketches` library can read the sketch of quantiles.
    assert hll == worked.hll(*(f"v{n}" for n in range(700)))
    assert distinct.number_of(hll) == 700
    quantiles = datasketches.kll_doubles_sketch.deserialize(kll)
    assert (quantiles.k, quantiles.n) == (200, 1_000)
    assert abs(quantiles.get_quantile(0.5, True) - 500) <= 1_000 * 0.02
    assert (quantiles.get_min_value(), quantiles.get_max_value()) == (1.0, 1_000.0)


def test_small_sketches_are_exact() -> None:
    lines = [json_line(who=f'"v{n % 7}"', a=str(n)) for n in range(1, 101)]
    config = one_input(
        JSON,
        {"name": "people", "measure": "unique", "value": "who"},
        {"name": "spread", "measure": "percentile", "value": "a"},
    )
    rows = {row.metric: row for row in count_lines(config, lines).rows}
    assert rows["people"].hll == worked.hll(*(f"v{n}" for n in range(7)))
    quantiles = datasketches.kll_doubles_sketch.deserialize(rows["spread"].kll)
    assert [quantiles.get_quantile(rank, True) for rank in (0.5, 0.95, 0.99)] == [50, 95, 99]


def test_a_stream_without_metrics_still_counts_its_lines() -> None:
    counts = count_lines({"from": {"t": {"topic": "logs.t", "format": "raw"}}}, ["x", "y"])
    assert (counts.lines, counts.rows, counts.unparsed) == (2, [], [])
    assert [(p.first_offset, p.last_offset) for p in counts.partitions] == [(0, 1)]


def test_a_double_is_held_exactly_however_its_digits_are_spelled() -> None:
    texts = ["0.", "-0.", "000", ".5", "5.", "0.e5", ".5e3", "-.25E1", "5.e2", "1e3", "7"]
    config = one_input(
        {"format": "logfmt", "columns": {"ms": "ms double"}},
        {"name": "total", "measure": "sum", "value": "ms"},
    )
    counts = count_lines(config, [f"ms={text}" for text in texts])
    assert reasons(counts) == {}
    (row,) = counts.rows
    assert (row.count, row.sum) == (len(texts), sum(map(Decimal, texts)))


@pytest.mark.parametrize("declared", ["bigint", "decimal(38,0)", "double"])
def test_whole_numbers_are_exact_over_the_whole_range_of_a_bigint(declared: str) -> None:
    """Case 30: once, numbers of more than 16 digits were not counted at all."""
    values = [1725724716113000123, 1725724716113000125, 2**63 - 1, -(2**63), 0]
    measures = ("sum", "min", "max", "mean")
    config = one_input(
        {"format": "logfmt", "columns": {"ns": f"ns {declared}"}},
        *({"name": measure + "s", "measure": measure, "value": "ns"} for measure in measures),
    )
    counts = count_lines(config, [f"ns={value}" for value in values])
    assert reasons(counts) == {}
    assert len(counts.rows) == len(measures)
    for row in counts.rows:
        assert (row.count, row.sum) == (5, Decimal(sum(values)))
        assert (row.min, row.max) == (Decimal(-(2**63)), Decimal(2**63 - 1))


HELD = {
    text: Decimal(text)
    for text in [
        "1e18", "-1.5E+25", "1.7257247161130001e+18", "12345678901234567890",
        "99999999999999999999999999.999999999999", "-0.0", "-7", "0.000001466667", "1e-12",
        "1.5e-9", "123456789012345678.5", "-9223372036854775809",
    ]
}  # fmt: skip
# Numbers that are too large, or have more decimal places than a value keeps. They must count as
# faults and never be rounded.
NOT_HELD = [
    "1.4666666666667e-6", "1e26", "100000000000000000000000000", "1e308", "5e-324", "1e-13",
    "1234567890123456.1234567890123456e3", "12345678901234567890123456789012345678",
    "NaN", "Infinity", "-Infinity", "0x10",
]  # fmt: skip


def test_numbers_at_the_ends_of_the_range_are_exact_or_named_faults() -> None:
    config = one_input(
        {"format": "logfmt", "columns": {"k": "k string", "ms": "ms double"}},
        {"name": "total", "measure": "sum", "value": "ms", "key": "k"},
    )
    texts = [*HELD, *NOT_HELD]
    counts = count_lines(config, [f"k={text} ms={text}" for text in texts])
    assert {row.key[0]: row.sum for row in counts.rows} == HELD
    assert reasons(counts) == {"expression_null:total": len(NOT_HELD)}


def test_an_expression_beyond_a_bigint_is_a_fault_and_never_wraps() -> None:
    config = one_input(
        {"format": "logfmt", "columns": {"ns": "ns bigint"}},
        {"name": "total", "measure": "sum", "value": "ns * 2"},
    )
    counts = count_lines(config, [f"ns={2**63 - 1}", f"ns={2**62 - 1}"])
    assert [row.sum for row in counts.rows] == [Decimal(2**63 - 2)]
    assert list(reasons(counts).values()) == [1]
