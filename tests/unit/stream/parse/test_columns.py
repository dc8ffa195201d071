"""The SQL that splits lines into columns, checked without Spark."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from stream.config.expression import TokenKind, quote_text, tokenize
from stream.config.input_section import ParsedInputSection
from stream.config.line_patterns import SYSLOG_GROUPS
from stream.parse.columns import RECURSIVE_CHARACTERS_MAX, ParsedInput, parse_input

DECLARED = {"who": "who string", "n": "n bigint", "ms": "ms double", "day": "day timestamp"}
PATTERN = r"^(?<when>\S+) (?<who>\S+) (?<n>\S+) (?<ms>\S+) (?<day>\S+)$"
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "combined": {},
    "common": {},
    "json": {"time": "ts", "columns": {**DECLARED, "who": "a.b[0].who string"}},
    "logfmt": {"time": "ts", "columns": DECLARED},
    "csv": {"time": "1", "columns": {"who": "2 string", "n": "7 bigint"}},
    "w3c": {"header": ["date time who n ms", "date time ms who"], "columns": {"w": "who string"}},
    "cef": {"time": "rt", "columns": DECLARED},
    "syslog": {},
    "regex": {"pattern": PATTERN, "time": "when", "columns": DECLARED},
    "raw": {},
}


def section(line_format: str, **more: Any) -> ParsedInputSection:
    given = {"topic": "logs.t", "format": line_format, **FORMATS[line_format], **more}
    return ParsedInputSection.model_validate(given)


def parsed(line_format: str, wanted: Collection[str] | None = None, **more: Any) -> ParsedInput:
    given = section(line_format, **more)
    return parse_input("t", given, given.column_types() if wanted is None else wanted)


def names_in(sql: str) -> set[str]:
    """Return the columns of the query that an expression names. They are quoted with backticks."""
    quoted = {t.text[1:-1] for t in tokenize(sql) if t.kind is TokenKind.QUOTED}
    return {name for name in quoted if name.startswith("t.")}


def literals(sql: str) -> list[str]:
    """Return the string literals in an expression, unescaped as Spark reads them."""
    texts = [token.text for token in tokenize(sql) if token.kind is TokenKind.STRING]
    return [re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) for text in texts]


@pytest.mark.parametrize("line_format", FORMATS)
def test_each_step_names_what_the_steps_before_have_made(line_format: str) -> None:
    found = parsed(line_format)
    made: set[str] = set()
    for step in found.steps:
        for sql in step.values():
            assert names_in(sql) <= made
        made |= set(step)
    last = [found.matches, found.time, *(column.value for column in found.columns.values())]
    last += [column.raw for column in found.columns.values() if column.raw is not None]
    assert set().union(*map(names_in, last)) <= made


@pytest.mark.parametrize("line_format", FORMATS)
def test_every_column_of_a_format_can_be_read(line_format: str) -> None:
    own = {"file", "line", "time", "host", "collector_host"}
    assert parsed(line_format).columns.keys() | own == section(line_format).column_types().keys()


@pytest.mark.parametrize("line_format", FORMATS)
def test_what_no_metric_names_is_not_cut_out_of_a_line(line_format: str) -> None:
    all_of_it, nothing = parsed(line_format), parsed(line_format, [])
    assert nothing.columns == {}
    held = [set(found.steps[-1]) for found in (all_of_it, nothing)]
    assert held[1] <= held[0]
    assert held[1] <= names_in(nothing.time)


def test_a_column_is_wanted_in_any_spelling() -> None:
    assert list(parsed("logfmt", ["WHO".lower(), "n"]).columns) == ["who", "n"]
    upper = parsed("logfmt", ["who"], columns={"Who": "who string"})
    assert list(upper.columns) == ["Who"]


def test_a_text_column_has_no_text_besides_its_value_and_a_number_has() -> None:
    columns = parsed("logfmt").columns
    assert columns["who"].raw is None
    assert columns["n"].raw == "`t.n.text`"
    assert columns["n"].value == "try_cast(`t.n.text` AS bigint)"
    assert columns["day"].raw == "`t.day.text`"


def test_a_line_without_a_time_of_its_own_has_that_of_its_arrival() -> None:
    assert parsed("logfmt", time=None).time == "arrival"
    assert parsed("raw").time == "arrival"
    assert not parsed("logfmt").time.endswith(", arrival)")
    late = parsed("logfmt", time={"column": "ts", "fallback": "arrival"})
    assert late.time.endswith(", arrival)")


def test_a_text_without_a_zone_is_in_the_inputs() -> None:
    assert '"tz":"UTC"' in parsed("logfmt").time
    assert '"tz":"Europe/Berlin"' in parsed("logfmt", tz="Europe/Berlin").time


def test_the_texts_of_two_fields_make_one_time() -> None:
    found = parsed("json", time=["@timestamp", "date + time"])
    held = found.steps[-1]
    assert held["t.time.text"] == "`t.fields`[4]"
    assert held["t.time1.text"] == "concat(`t.fields`[5], ' ', `t.fields`[6])"
    assert found.time.index("`t.time.text`") < found.time.index("`t.time1.text`")


def test_a_csv_with_other_signs_says_so() -> None:
    def signs(**more: str) -> list[str]:
        (sql,) = parsed("csv", **more).steps[1].values()
        return literals(sql)

    assert signs() == [",", '"', ""]
    assert signs(delimiter=";", quote="'", escape="\\") == [";", "'", "\\"]
    assert signs(quote="none") == [",", "", ""]


def test_groups_of_a_pattern_are_cut_in_the_order_of_their_names() -> None:
    found = parsed("regex")
    (take, held) = found.steps
    (sql,) = take.values()
    (names,) = [text for text in literals(sql) if "\x01" in text and "$" in text]
    groups = re.findall(r"\$\{(\w+)\}", names)
    assert groups == ["day", "ms", "n", "who", "when"]
    for name in ("n", "ms", "day"):
        assert f"`t.fields`[{groups.index(name) + 1}]" in held[f"t.{name}.text"]
    assert f"`t.fields`[{groups.index('who') + 1}]" in found.columns["who"].value


def test_a_pattern_that_recurses_sees_no_long_line() -> None:
    recursive = PATTERN.replace(r"(?<who>\S+)", r"(?<who>(?:\S|x)+)")
    guard = f"length(line) <= {RECURSIVE_CHARACTERS_MAX}"
    for pattern, is_guarded in ((PATTERN, False), (recursive, True)):
        (sql,) = parsed("regex", pattern=pattern).steps[0].values()
        assert (guard in sql) is is_guarded


def test_a_document_is_read_for_the_paths_that_are_wanted() -> None:
    (sql,) = parsed("json").steps[1].values()
    (paths,) = literals(sql)
    assert ["a", "b", 0, "who"] in json.loads(paths)
    assert ["ts"] in json.loads(paths)
    (sql,) = parsed("json", []).steps[1].values()
    assert json.loads(literals(sql)[0]) == [["ts"]]


def pattern_of(line_format: str) -> re.Pattern[str]:
    """Return the pattern that splits the lines of a format. It is the longest literal of all steps
    except the last."""
    texts = [
        t for step in parsed(line_format).steps[:-1] for sql in step.values() for t in literals(sql)
    ]
    # In Java, \S and \d match ASCII characters only.
    return re.compile(max(texts, key=len), re.ASCII)


SYSLOG = {
    "Aug  1 10:00:00 host sshd[17]: said so": ("host", "sshd", "17", "said so"),
    "<34>Aug 31 10:00:00 host cron: said: so ": ("host", "cron", None, "said: so"),
    "2026-08-01T10:00:00Z host kernel: [1.0] so": ("host", "kernel", None, "[1.0] so"),
    "<34>1 2026-08-01T10:00:00Z host app 17 - - so": ("host", "app", "17", "so"),
    r'<34>1 - host app 17 ID [a b="\]"][c] so on': ("host", "app", "17", "so on"),
    "<34>1 - host app 17 - -": ("host", "app", "17", None),
}


@pytest.mark.parametrize("line", SYSLOG)
def test_lines_of_syslog_are_taken_apart(line: str) -> None:
    found = pattern_of("syslog").search(line)
    assert found is not None
    assert len(found.groups()) == SYSLOG_GROUPS
    host, program, pid, message = SYSLOG[line]
    either = [
        found[first] or found[second] for first, second in ((3, 13), (4, 14), (5, 15), (8, 18))
    ]
    assert either == [host, program, pid, message]


@pytest.mark.parametrize("line", ["", "no syslog", "Aug 1 10:00 host app: x", "<34>2 - h a - - -"])
def test_what_is_no_syslog_is_none(line: str) -> None:
    assert pattern_of("syslog").search(line) is None


def test_pairs_of_logfmt_are_found() -> None:
    line = r'ts=1 msg="a \"b\" c=d" empty= alone k="" x=y=z "stray" é=ü'
    assert pattern_of("logfmt").findall(line) == [
        "ts=1", r'msg="a \"b\" c=d"', "empty=", "alone", 'k=""', "x=y=z", "stray", "é=ü",
    ]  # fmt: skip


def test_a_text_is_quoted_as_it_is_read() -> None:
    for text in ("it's", "a\\b", r"\d\\", "\x01${n}"):
        assert literals(quote_text(text)) == [text]
