"""Lines that once ended the stream or were counted wrongly."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.folding import Folding
from stream.parse.columns import RECURSIVE_CHARACTERS_MAX
from stream.parse.delimited import FIELDS_MAX
from stream.parse.numbers import NUMBER_CHARACTERS_MAX, exact_decimal
from tests.interop.stream_spark import count_lines, frame, keys, one_input, reasons, spark

pytestmark = pytest.mark.live

JSON = {
    "format": "json",
    "time": "ts",
    "columns": {"who": "who string", "n": "n int", "big": "big bigint", "ms": "ms double"},
}
ACCESS = '10.0.0.1 - - [01/Aug/2026:10:00:01 +0000] "GET {path} HTTP/1.1" 200 5 "-" "x"'


@pytest.mark.parametrize(
    "number", ["1e-999999999", "1e999999999", "1e-50000000", "9" * 30_000, "1e999"]
)
def test_a_time_that_no_arithmetic_can_hold_is_no_time(number: str) -> None:
    config = one_input(
        JSON, {"name": "n_lines"}, {"name": "sizes", "measure": "sum", "value": "ms"}
    )
    quoted = [f'{{"ts": "{number}"}}', f'{{"ts": 1785578401, "ms": "{number}"}}']
    # Without quotes the text is a number of JSON. The JSON reader makes a double of it, or rejects
    # the line.
    plain = [text.replace(f'"{number}"', number) for text in quoted]
    counts = count_lines(config, [*quoted, *plain, '{"ts": 1785578401, "ms": 1}'])
    found = reasons(counts)
    assert found["time"] >= 1
    assert found["expression_null:sizes"] >= 1
    assert keys(counts, "n_lines")[()] + found.get("format:json", 0) == 5
    assert sum(row.count for row in counts.rows if row.metric == "n_lines") >= 2


@pytest.mark.parametrize(
    "text", ["5d", "7f", "0x1p3", "5D", "1L", "NaN", "Infinity", "1e1234", "١"]
)
def test_only_decimal_digits_make_a_number(text: str) -> None:
    config = one_input(
        JSON,
        {"name": "total", "measure": "sum", "value": "ms"},
        {"name": "whole", "measure": "sum", "value": "n"},
        {"name": "large", "where": "ms > 1 OR big > 1"},
        {"name": "of_text", "measure": "max", "value": "who"},
    )
    line = json.dumps({"ts": 1785578401, "ms": text, "n": text, "big": text, "who": text})
    counts = count_lines(config, [line])
    assert counts.rows == []
    assert reasons(counts) == {
        f"expression_null:{name}": 1 for name in ("total", "whole", "large", "of_text")
    }


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("0.0000004", True),
        ("11.0551240", True),
        ("1e-12", True),
        ("1.5E3", True),
        ("-0.000000000001000", True),
        ("9999999999999999.999999999999", True),
        ("00000000000000000000000001", True),
        ("0e-99", True),
        (".5", True),
        ("5.", True),
        ("+7", True),
        ("1e16", True),
        ("9" * 26 + "." + "9" * 12, True),
        ("1" + "0" * 26, False),
        ("1e26", False),
        ("1e-13", False),
        ("1.0000000000001", False),
        ("12345.00000000000010000000000001", False),
        ("1.00000000000000001e0", False),
        ("1e-40", False),
        ("", False),
        ("-", False),
        (".", False),
        ("1" * (NUMBER_CHARACTERS_MAX + 1), False),
        ("0" * NUMBER_CHARACTERS_MAX, True),
        ("0" * (NUMBER_CHARACTERS_MAX + 1), False),
    ],
)
def test_a_decimal_holds_a_number_exactly_or_not_at_all(text: str, held: bool) -> None:
    row = spark().createDataFrame([(text,)], "t STRING").selectExpr(exact_decimal("t") + " AS d")
    (found,) = row.collect()
    assert found.d == (Decimal(text) if held else None)


def test_small_values_add_up() -> None:
    config = one_input(JSON, {"name": "total", "measure": "sum", "value": "ms"})
    lines = ['{"ts": 1785578401, "ms": 0.0000004}'] * 500 + ['{"ts": 1785578401, "ms": 1e-13}']
    counts = count_lines(config, lines)
    (row,) = counts.rows
    assert (row.count, row.sum) == (500, Decimal("0.0002"))
    assert reasons(counts) == {"expression_null:total": 1}


def test_a_quotient_is_taken_to_twelve_places_and_never_to_zero() -> None:
    config = one_input(JSON, {"name": "total", "measure": "sum", "value": "ms / n"})
    lines = [f'{{"ts": 1785578401, "ms": {ms}, "n": 3}}' for ms in ("1", "1e-14")]
    counts = count_lines(config, lines)
    (row,) = counts.rows
    assert (row.count, row.sum) == (1, Decimal("0.333333333333"))
    assert reasons(counts) == {"expression_null:total": 1}


def test_csv_lines_of_any_width() -> None:
    config = one_input(
        {"format": "csv", "columns": {"a": "1", "b": "2"}}, {"name": "by_b", "key": "b"}
    )
    wide = ["1,two" + "," * (FIELDS_MAX - 2), "1,two" + "," * 30_000, "1,two", "x" * 300_000]
    counts = count_lines(config, wide)
    assert keys(counts, "by_b") == {"two": 2, None: 1}
    assert reasons(counts) == {"format:csv, too many fields": 1}


THROWING = {
    "decoded": "url_decode(path) = '/a b'",
    "decoded_too": "url_decode(path) = '/c'",
    "element": "element_at(split(path, '/'), CAST(query AS INT)) = ''",
    "zoned": "from_utc_timestamp(time, user) > TIMESTAMP '2000-01-01'",
    "both": "IF(url_decode(path) = '/a b', true, false)",
    "binary": "to_binary(path, 'hex') IS NOT NULL",
    "bytes_of": "decode(unhex(path), 'no-such-charset') IS NOT NULL",
    "made": "make_date(CAST(query AS INT), 13, 1) IS NOT NULL",
    "formed": "format_string('%d', path) = ''",
    "padded": "to_number(path, '999') > 1",
}


@pytest.mark.parametrize("is_large", [False, True])
def test_an_expression_that_raises_is_null_for_that_line(is_large: bool) -> None:
    metrics: list[dict[str, Any]] = [
        {"name": name, "measure": "share", "value": value} for name, value in THROWING.items()
    ]
    metrics += [
        {"name": "twice", "where": "url_decode(path) = '/a b'", "measure": "unique",
         "value": "url_decode(path)"},
        {"name": "n_lines"},
    ]  # fmt: skip
    config = one_input({"format": "combined"}, *metrics)
    lines = [
        ACCESS.format(path="/%zz?0").replace("- -", "- Nowhere/City"),
        ACCESS.format(path="/a%20b?1").replace("- -", "- UTC"),
    ]
    if is_large:
        plan = compile_plan(StreamSection.model_validate(config))
        counts = Folding(plan, as_blocks=False).fold_in_tasks(frame(lines))
    else:
        counts = count_lines(config, lines)
    assert keys(counts, "n_lines") == {(): 2}
    found = reasons(counts)
    for name in ("decoded", "decoded_too", "element", "zoned", "both", "twice"):
        assert found[f"expression_null:{name}"] >= 1, name
    for name in ("decoded", "decoded_too", "element", "zoned", "both", "twice"):
        assert keys(counts, name) == {(): 1}, name


ALTERNATION = r'^(?<host>\S+) "(?<hex>(?:[^"\\]|\\.)*)" (?<status>\d+)$'


def test_a_pattern_that_recurses_does_not_end_the_jvm() -> None:
    config = one_input(
        {"format": "regex", "pattern": ALTERNATION}, {"name": "hosts", "key": "host"}
    )
    room = RECURSIVE_CHARACTERS_MAX - len('h "" 200')
    lines = [f'h "{"a" * length}" 200' for length in (100_000, room + 1, room, 3)]
    counts = count_lines(config, lines)
    assert keys(counts, "hosts") == {"h": 2}
    assert reasons(counts) == {"format:regex": 2}


def test_a_pattern_without_repeated_groups_has_no_limit() -> None:
    pattern = r'^(?<host>\S+) "(?<text>(?:[^"\\]|\\.)*+)"$'
    config = one_input({"format": "regex", "pattern": pattern}, {"name": "hosts", "key": "host"})
    assert keys(count_lines(config, [f'h "{"a" * 500_000}"']), "hosts") == {"h": 1}


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "-03:00"])
@pytest.mark.parametrize(
    ("spelling", "offset_h"),
    [("", None), ("Z", 0), ("+02", 2), ("-03", -3), ("+2:00", 2), ("+02:00", 2), (" +02:00", 2),
     ("GMT+3", 3), ("UTC+1", 1), (" UTC", 0), (" Asia/Tokyo", 9)],
)  # fmt: skip
def test_a_zone_is_applied_once(tz: str, spelling: str, offset_h: int | None) -> None:
    config = one_input({**JSON, "tz": tz}, {"name": "n_lines", "key": "ts", "windows": ["10s"]})
    config["from"]["t"]["columns"] = {"ts": "ts string"}
    counts = count_lines(config, [f'{{"ts": "2026-08-01T12:00:00{spelling}"}}'])
    (row,) = counts.rows
    noon = datetime(2026, 8, 1, 12, tzinfo=UTC).timestamp()
    hours: float | None = offset_h
    if hours is None:
        zone = ZoneInfo("Etc/GMT+3" if tz == "-03:00" else tz)
        moved = datetime(2026, 8, 1, 12, tzinfo=zone).utcoffset()
        assert moved is not None
        hours = moved.total_seconds() / 3600
    assert row.slice_start_s == noon - hours * 3600


@pytest.mark.parametrize(
    "line",
    ['{"who": "a"}{"who": "b"}', '{"who": "a"} garbage}', '{"who": "a"} {}', '{"who": {"x": 1}}}',
     '{"who": "a"},{"who": "b"}', "{" * 2_000 + "}" * 2_000],
)  # fmt: skip
def test_one_line_is_one_document(line: str) -> None:
    config = one_input(
        {"format": "json", "columns": {"who": "who string"}}, {"name": "by", "key": "who"}
    )
    good = [' {"who": "{x}", "more": {"a": [1, {}]}} ', '{"who": "}"}']
    counts = count_lines(config, [line, *good])
    assert keys(counts, "by") == {"{x}": 1, "}": 1}
    assert reasons(counts) == {"format:json": 1}


def test_logfmt_reads_escapes_as_they_are_written() -> None:
    config = one_input({"format": "logfmt", "columns": {"m": "m"}}, {"name": "by", "key": "m"})
    lines = [r'm="a\nb"', r'm="a\tb"', r'm="say \"x\""', r'm="back\\n"', r'm="\u00e9"', r'm="\x"']
    counts = count_lines(config, lines)
    assert keys(counts, "by") == {
        "a\nb": 1, "a\tb": 1, 'say "x"': 1, "back\\n": 1, "é": 1, "x": 1,
    }  # fmt: skip


def test_keys_that_differ_in_a_control_character_are_two() -> None:
    pattern = r"^(?<a>[^|]*)\|(?<b>.*)$"
    config = one_input({"format": "regex", "pattern": pattern}, {"name": "by", "key": ["a", "b"]})
    lines = ["x\x01y|1", "x y|1", "x\x01y|\x01", "xy|1"]
    assert keys(count_lines(config, lines), "by") == {
        ("x\x01y", "1"): 1, ("x y", "1"): 1, ("x\x01y", "\x01"): 1, ("xy", "1"): 1,
    }  # fmt: skip
