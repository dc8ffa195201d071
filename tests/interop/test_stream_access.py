"""Access logs: splitting a plain line gives the same fields as the pattern, and most lines are
plain."""

import random

import pytest

from stream.config.expression import quote_text
from stream.parse.access import (
    access_pattern,
    pattern_texts,
    plain_texts,
    plain_time_sql,
    words_sql,
)
from stream.parse.times import parse_time, plausible_time
from tests.harness.logs import shared_log
from tests.harness.seed import seeded
from tests.interop.stream_spark import spark

pytestmark = pytest.mark.live

LINES = 20_000

PARTS = [
    ["203.0.113.7", "2001:db8::1", "host.example", "-", "a\tb", "a\vb", "", '"a"', "[::1]", "[a]"],
    ["-", "-", "-", "root", "", "\t"],
    ["-", "-", "frank", "a b", "", "[", "a [b", "\t"],
    ["01", "31", "30", "1", "00", " 1", "+1", "1T"],
    ["Aug", "Feb", "Sep", "AUG", "nFe", "August", "M r", "   ", "08"],
    ["2026", "2024", "026", "+026", "20260", "0000", "1969", "20:6"],
    ["10:00:01", "23:59:59", "24:00:00", "10:00:60", "1:00:001", "10:00:0.", "10:00:.5", "1:00:0.5",
     "10:00:0 ", "10:0:001", "10:00:0Z", "10:00:0+"],
    ["+0000", "-0330", "+1800", "+1900", "+0260", "+2:00", "GMT+3", "Egypt", "Z", "+02", "+00:00"],
    ["GET", "POST", "", "GET x", 'GE"T', "G\\T", '"'],
    ["/", "/a?b=c", "/a?b?c", "?", "", "/a b", '/"', '/\\"', "*", "/é", "/\x01"],
    ["HTTP/1.1", "HTTP/2.0", "", 'H"', '"', "H\\"],
    ["200", "404", "-", "099", "20", "2000", "+20", "2.0", "1e2", "20\t"],
    ["512", "0", "-", "007", "+5", "1.5", "99999999999999999999", "5\t", "", "-5", "1e3"],
    ["-", "", "https://a.example/?b", 'a"b', 'a\\"b', '" "', "a b"],
    ["Mozilla/5.0 (X11; Linux)", "curl/8", "", "-", 'a"b', '" "', 'x" "', " "],
]  # fmt: skip

PIECES = ["", " ", "  ", '"', '""', '" "', "[", "]", "\t", "\v", "\f", "\r", "\n", "\\", "-", "+",
          "0", ":", "/", ".", "é", "\x00", "\x01"]  # fmt: skip


def made_line(chance: random.Random, *, combined: bool) -> str:
    """Return a line with mostly usual parts, and sometimes with a random change."""
    odd = 0.03
    (
        host,
        ident,
        user,
        day,
        month,
        year,
        clock,
        zone,
        method,
        target,
        http,
        status,
        size,
        ref,
        ua,
    ) = (
        chance.choice(choices) if chance.random() < odd else chance.choice(choices[:2])
        for choices in PARTS
    )
    line = (
        f"{host} {ident} {user} [{day}/{month}/{year}:{clock} {zone}]"
        f' "{method} {target} {http}" {status} {size}'
    )
    if combined or chance.random() < odd:
        line += f' "{ref}" "{ua}"'
    while chance.random() < 0.3:
        at = chance.randrange(len(line) + 1)
        line = line[:at] + chance.choice(PIECES) + line[at + chance.randrange(2) :]
    return line


def both_ways(lines: list[str], *, combined: bool) -> list[dict[str, dict[str, object] | None]]:
    """Return two dicts for each line. `plain` has the fields by splitting, or None if the line is
    not plain. `pattern` has the fields by the pattern, or None if it does not match."""
    pattern, groups = access_pattern(combined=combined)
    field = [f"nullif(regexp_extract(line, {quote_text(pattern)}, {n}), '')" for n in range(10)]
    found = pattern_texts(field[: groups + 1], "request", combined=combined)
    found["time"] = parse_time(field[4], "UTC")
    plain = {**plain_texts("words", combined=combined)}
    plain["time"] = plausible_time(plain_time_sql("words"))
    schema = "line STRING"
    frame = spark().createDataFrame([(line,) for line in lines], schema)
    frame = frame.selectExpr(
        "line",
        "timestamp_micros(0) AS arrival",
        f"line RLIKE {quote_text(pattern)} AS matches",
        f"{field[5]} AS request",
        f"{words_sql(combined=combined)} AS words",
    )
    frame = frame.selectExpr("*", "words IS NOT NULL AS plain")
    columns = {
        "plain": f"IF(plain, {_struct(plain)}, NULL) AS plain",
        "pattern": f"IF(matches, {_struct(found)}, NULL) AS pattern",
    }
    rows = frame.selectExpr(*columns.values()).collect()
    return [
        {name: row[name].asDict() if row[name] is not None else None for name in columns}
        for row in rows
    ]


def _struct(texts: dict[str, str]) -> str:
    # A column shows an empty text and a hyphen as NULL, so compare empty texts as NULL, too.
    shown = (f"'{name}', nullif(CAST({sql} AS STRING), '')" for name, sql in texts.items())
    return f"named_struct({', '.join(shown)})"


@pytest.mark.parametrize("combined", [True, False])
def test_a_plain_line_is_cut_as_the_pattern_takes_it_apart(combined: bool) -> None:
    chance = seeded(f"plain lines, combined={combined}")
    lines = [made_line(chance, combined=combined) for _ in range(LINES)]
    found = both_ways(lines, combined=combined)
    plain = [(line, both) for line, both in zip(lines, found, strict=True) if both["plain"]]
    for line, both in plain:
        assert both["plain"] == both["pattern"], repr(line)
    assert LINES / 5 < len(plain) < LINES


def test_usual_lines_are_plain() -> None:
    """If usual lines were not plain, every line would be parsed by the slow pattern, and no other
    test would notice."""
    lines = shared_log("apache_access.log").read_text().splitlines()
    plain = [both["plain"] for both in both_ways(lines, combined=True)]
    assert sum(texts is not None for texts in plain) > 0.99 * len(lines)
