"""Lines that are designed to break a parser, in every format, with both folds and every measure.

No line ends the JVM. Each line counts once, either as parsed or as bad, and both folds agree.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from tests.harness.reference_fold import reference_counts
from tests.harness.seed import seeded
from tests.interop.stream_spark import frame, keys

pytestmark = pytest.mark.live

LINES_PER_BATCH = 2_500
ALTERNATION = r'^(?<who>\S+) "(?<what>(?:[^"\\]|\\.)*)" (?<n>\S+) (?<time>\S+)$'
COLUMNS = ("who string", "what string", "n bigint", "ms double", "at timestamp", "day date",
           "cost decimal(20,4)", "ok boolean", "small int")  # fmt: skip

ATOMS = [
    "", "-", "0", "1", "-7", "5d", "7f", "0x1p3", "NaN", "Infinity", "1e-999999999", "1e999999999",
    "1e308", "1e-400", "9" * 400, "9" * 5_000, "0." + "1" * 300, "99999999999999999999", "+1", ".5",
    "1785578401", "1785578401000", "1785578401000000", "2026-08-01", "2026-08-01T10:00:00Z",
    "2026-08-01T10:00:00+2:00", "2026-08-01 10:00:00,5 Mars/Base", "2026-02-31T00:00:00Z",
    "10000-01-01T00:00:00Z", "-290308-12-21", "20260801T100000Z", "01/Aug/2026:10:00:00 +0000",
    "31/Feb/2026:25:61:61 +9999", "Aug  1 10:00:00", "true", "null", "{}", "[]", "[[[[",
    "{" * 1_500,
    "a b", "\t", "\x00", "\x01", "\x01\x02", "\ufeff", "\u2028", "é", "😀", "'", '"', "\\", "\\\\",
    '\\"', "%zz", "%", "/%zz?%", "a=b", "=", "==", ",", ",,,,", ";", "|", "$1", "${who}", "\\Q",
    "\\E",
    "x" * 600, "ab" * 20_000, '\\"' * 3_000, "," * 25_000, " " * 500, "(other)", "(null)", "*",
    "@s",
]  # fmt: skip


def combined(chance: random.Random, atom: Callable[[], str]) -> str:
    when = chance.choice(["01/Aug/2026:10:00:00 +0000", atom()])
    request = chance.choice(["GET /a?b HTTP/1.1", f"GET {atom()} HTTP/1.1", atom()])
    return f'{atom()} - {atom()} [{when}] "{request}" {chance.choice(["200", atom()])} {atom()} "{atom()}" "{atom()}"'  # noqa: E501


def json_line(chance: random.Random, atom: Callable[[], str]) -> str:
    names = [column.split()[0] for column in COLUMNS]
    parts = []
    for name in ["ts", *chance.sample(names, chance.randrange(len(names)))]:
        value = chance.choice(["1785578401", json.dumps(atom()), atom(), '{"x": [1, 2]}'])
        parts.append(f'"{name}": {value}')
    return "{" + ", ".join(parts) + "}" + chance.choice(["", "", "", "}", "{}", " x}"])


def logfmt(chance: random.Random, atom: Callable[[], str]) -> str:
    names = ["ts", *(column.split()[0] for column in COLUMNS)]
    quoted = [lambda: '"' + atom() + '"', atom]
    return " ".join(f"{name}={chance.choice(quoted)()}" for name in names)


def csv(chance: random.Random, atom: Callable[[], str]) -> str:
    return ",".join(chance.choice([atom(), f'"{atom()}"']) for _ in range(chance.randrange(14)))


def syslog(chance: random.Random, atom: Callable[[], str]) -> str:
    head = chance.choice(["Aug  1 10:00:00", "Feb 29 10:00:00", "2026-08-01T10:00:00Z", atom()])
    return f"{chance.choice(['', '<34>', '<34>1 '])}{head} {atom()} {atom()}[{atom()}]: {atom()}"


def matched(chance: random.Random, atom: Callable[[], str]) -> str:
    return f'{atom()} "{atom()}" {atom()} {chance.choice(["1785578401", atom()])}'


def raw(chance: random.Random, atom: Callable[[], str]) -> str:
    return "".join(atom() for _ in range(chance.randrange(4)))


def declared(places: bool) -> dict[str, str]:
    return {
        column.split()[0]: f"{place if places else column.split()[0]} {column.split()[1]}"
        for place, column in enumerate(COLUMNS, start=2)
    }


FORMATS: dict[str, tuple[dict[str, Any], Callable[[random.Random, Callable[[], str]], str]]] = {
    "combined": ({}, combined),
    "common": ({}, combined),
    "json": ({"time": "ts", "columns": declared(False), "tz": "Europe/Berlin"}, json_line),
    "logfmt": ({"time": "ts", "columns": declared(False)}, logfmt),
    "csv": ({"time": "1", "columns": declared(True)}, csv),
    "syslog": ({"tz": "America/St_Johns"}, syslog),
    "regex": ({"pattern": ALTERNATION, "time": "time", "columns": {"n": "n bigint"}}, matched),
    "raw": ({}, raw),
}


def metrics(line_format: str) -> list[dict[str, Any]]:
    """Return metrics with every measure for the columns of a format. Their expressions fail for
    some of the lines."""
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    if line_format in ("combined", "common"):
        texts, numbers = ("path", "remote_addr"), ("status", "bytes")
    elif line_format in ("json", "logfmt", "csv"):
        texts, numbers = ("who", "what"), ("n", "ms", "cost", "small")
    elif line_format == "syslog":
        texts, numbers = ("host", "message"), ("pid",)
    elif line_format == "regex":
        texts, numbers = ("who", "what"), ("n",)
    else:
        texts, numbers = ("line",), ("length(line)",)
    found: list[dict[str, Any]] = [
        {"name": "n_lines"},
        {"name": "by_text", "key": texts[0] if texts[0] != "line" else "file"},
        {"name": "decoded", "measure": "share", "value": f"url_decode({texts[-1]}) = '/a'"},
        {"name": "decoded_too", "where": f"url_decode({texts[-1]}) <> ''", "measure": "unique",
         "value": texts[0]},
        {"name": "as_number", "measure": "sum", "value": texts[-1]},
        {"name": "zoned", "where": f"from_utc_timestamp(time, {texts[0]}) > time"},
        {"name": "part_of", "measure": "unique",
         "value": f"element_at(split({texts[-1]}, '/'), 0)"},
        {"name": "hours", "windows": ["1h"]},
    ]  # fmt: skip
    for number in numbers:
        name = "n_" + "".join(c for c in number if c.isalpha())
        found += [
            {"name": f"{name}_{measure}", "measure": measure, "value": number}
            for measure in ("sum", "min", "max", "mean", "percentile")
        ]
        found.append({"name": f"{name}_ratio", "measure": "mean", "value": f"1 / ({number} - 1)"})
        found.append({"name": f"{name}_share", "measure": "share", "value": f"{number} % 2 = 0"})
    return [{"measure": "count", **metric, "from": "t"} for metric in found]


def fuzzed(chance: random.Random, line_format: str, count: int) -> list[bytes]:
    _, make = FORMATS[line_format]
    lines = []
    for _ in range(count):
        line = make(chance, lambda: chance.choice(ATOMS)).encode("utf-8", "surrogatepass")
        how = chance.randrange(8)
        if how == 0 and line:
            line = line[: chance.randrange(len(line))]
        elif how == 1 and line:
            place = chance.randrange(len(line))
            line = line[:place] + bytes([chance.randrange(256)]) + line[place + 1 :]
        elif how == 2:
            line += line[-chance.randrange(1, 50) :]
        lines.append(line.replace(b"\n", b" "))
    return lines


def check(line_format: str, lines: list[bytes]) -> None:
    given, _ = FORMATS[line_format]
    section = {
        "from": {"t": {"topic": "logs.t", "format": line_format, **given}},
        "defaults": {"windows": ["1m", "all"]},
        "metrics": metrics(line_format),
    }
    plan = compile_plan(StreamSection.model_validate(section))
    folding, rows = Folding(plan, as_blocks=True), frame(lines)
    straight, small = reference_counts(rows, plan), folding.fold_in_driver(rows)
    assert exact(small) == exact(straight)
    assert keys(small, "n_lines").get((), 0) + not_read(small) == len(lines)
    for counts in (small, folding.fold_in_tasks(rows)):
        assert counts.lines == len(lines)
        assert [(u.reason, u.count) for u in straight.unparsed] == [
            (u.reason, u.count) for u in counts.unparsed
        ]


def exact(counts: BatchCounts) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Return count, sum, minimum and maximum of every cell, which are exact."""
    return {
        (row.metric, row.slice_start_s, row.key): (row.count, row.sum, row.min, row.max)
        for row in counts.rows
    }


def not_read(counts: BatchCounts) -> int:
    """Return the number of lines that no metric counts. A line without a time is not among them,
    because it counts in the totals."""
    return sum(u.count for u in counts.unparsed if u.reason.startswith("format:"))


@pytest.mark.parametrize("line_format", FORMATS)
def test_fuzzed_lines_are_each_counted_once(line_format: str) -> None:
    check(line_format, fuzzed(seeded(f"stream-fuzz-{line_format}"), line_format, 625))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("line_format", FORMATS)
def test_a_hundred_thousand_fuzzed_lines(line_format: str) -> None:
    chance = seeded(f"stream-fuzz-{line_format}-long")
    for _ in range(12_500 // LINES_PER_BATCH):
        check(line_format, fuzzed(chance, line_format, LINES_PER_BATCH))
