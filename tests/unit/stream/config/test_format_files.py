"""Format files: what they contain, which inputs use them, and which lines they recognise."""

import json
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from stream.config.format_files import (
    FormatFault,
    load_formats,
    parse_format,
    shipped_names,
    users_formats,
)
from stream.config.input_section import ParsedInputSection
from stream.config.settings import StreamSection

FIXTURES = Path(__file__).parents[3] / "fixtures" / "formats"
SHIPPED = load_formats()
WITH_LINES = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
# These formats accept lines of many other formats, because they demand little of a line.
WIDE = {"syslog", "json", "logfmt", "common", "csv", "tsv"}

OWN = """
title: Our own
pattern: '^(?P<ts>\\S+) (?P<log_level>\\w+) (?<rest>.*)$'
time: ts
columns: {level: {type: string, about: severity, at: log_level}}
"""


def lines_of(name: str) -> list[str]:
    rows = (FIXTURES / f"{name}.jsonl").read_text().removesuffix("\n").split("\n")
    return [json.loads(row)[0] for row in rows]


def test_every_shipped_format_has_lines_and_is_what_its_file_is_called() -> None:
    assert set(SHIPPED) == set(shipped_names())
    assert set(SHIPPED) - {"tsv"} == set(WITH_LINES)
    for name, given in SHIPPED.items():
        assert given.name == name
        assert given.title
        assert all(column.about for column in given.columns.values())


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - {"tsv"}))
def test_a_shipped_format_is_an_input(name: str) -> None:
    section = ParsedInputSection.model_validate({"topic": "logs.t", "format": name})
    assert set(SHIPPED[name].columns) <= set(section.column_types())
    # The stream gets the section as JSON, and reads no format file. So the JSON must be complete.
    again = ParsedInputSection.model_validate(
        json.loads(section.model_dump_json(exclude_none=True))
    )
    assert again.column_types() == section.column_types()
    assert again.time == section.time


@pytest.mark.parametrize("name", WITH_LINES)
def test_lines_are_recognised_without_a_jvm(name: str) -> None:
    lines = lines_of(name)
    # A line with a single forwarded address is a line of `combined`. So `forwarded_combined`
    # recognises only some of its lines.
    assert SHIPPED[name].recognise(lines) >= (0.5 if name == "forwarded_combined" else 1.0)
    taken = {other for other, given in SHIPPED.items() if given.recognise(lines) >= 0.5}
    assert taken - WIDE <= {name} | BESIDE.get(name, set())


# Lines of the format on the left are also lines of the formats on the right.
BESIDE = {
    "traefik": {"combined"},
    "ingress_nginx": {"combined"},
    "forwarded_combined": {"combined"},
}


def test_noise_is_no_format() -> None:
    noise = ["", "hello world", "-----", "drwxr-xr-x 2 root root 4096 Jan 1 a", "{", "a,b", "x=1"]
    for name, given in SHIPPED.items():
        if name not in ("tsv", "csv"):
            assert given.recognise(noise) == 0.0, name


def test_headers_and_empty_lines_are_no_part_of_the_share() -> None:
    lines = ["#Version: 1.0", "", "#Fields: " + (SHIPPED["iis"].header or ("",))[0]]
    assert SHIPPED["iis"].recognise(lines) == 0.0
    assert SHIPPED["iis"].recognise([*lines, *lines_of("iis")]) == 1.0
    assert SHIPPED["iis"].recognise([*lines_of("iis"), "#Fields: date x"]) < 1.0


def test_a_users_format_goes_before_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "redis.yaml").write_text(OWN)
    (tmp_path / "ours.yaml").write_text(OWN)
    with users_formats(load_formats([tmp_path])):
        for name in ("redis", "ours"):
            section = ParsedInputSection.model_validate(
                {"topic": "t", "format": name, "columns": {"more": "rest string"}}
            )
            assert section.line_reader == "regex"
            assert {"level", "more"} <= set(section.column_types())
    assert "level" in SHIPPED["redis"].columns
    with pytest.raises(ValueError, match=r"found 'ours', expected one of combined, .* redis"):
        ParsedInputSection.model_validate({"topic": "t", "format": "ours"})


def test_what_an_input_says_goes_before_its_format() -> None:
    given = {"topic": "t", "format": "redis", "tz": "Europe/Berlin", "time": {"column": "ts"}}
    section = ParsedInputSection.model_validate(given)
    assert section.tz == "Europe/Berlin"
    assert section.time is not None
    assert section.time.layout == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[", "not valid YAML"),
        ("1", "found no keys"),
        ("title: x\ncolour: y", "colour: Extra inputs"),
        ("title: x\nname: other", "found name 'other', expected the name of the file, ours"),
        ("title: x\npattern: '(?<a>['", "pattern: found a pattern with"),
        ("title: x\npattern: '(?<a>\\p{Alpha})'", "pattern: found \\p"),
        ("title: x\ncolumns: {a: {type: int}}", "columns.a.about: Field required"),
    ],
)
def test_faults_of_a_file(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_format("ours", text)
    assert fault in str(caught.value)
    (tmp_path / "ours.yaml").write_text(text)
    with pytest.raises(FormatFault) as named:
        load_formats([tmp_path])
    assert named.value.path == tmp_path / "ours.yaml"


LONG = 200_000
LONG_LINES = [
    (text * LONG)[:LONG]
    for text in (
        "a", "a ", '"', '\\"', "1:", "1.", "[", " ", "a=b ", 'a="', "a,", "- ", "a: ", "(a",
        '{"a":', " CEF:0", "|", "CEF:0|a ", "1.1.1.1 ", "[x] ", "<1>",
    )
]  # fmt: skip
CPU_S_MAX = 20.0


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_no_line_takes_a_format_quadratic_time(name: str) -> None:
    """A pattern that tries again at each character would take minutes for one of these lines."""
    given = SHIPPED[name]
    sample = lines_of(name)[0] if name in WITH_LINES else "a"
    begin = time.process_time()
    for line in LONG_LINES:
        for place in (0, len(sample) // 3, len(sample) // 2, len(sample)):
            given.matches(sample[:place] + line + sample[place:])
    assert time.process_time() - begin < CPU_S_MAX


SHORTER = {
    "aws_cloudfront": ("date time c-ip sc-status cs(User-Agent)", ["sc_status", "user_agent"]),
    "iis": ("#Fields: date time s-ip cs-uri-stem sc-status", ["sc_status"]),
    "postgresql_csv": ("log_time,error_severity,message", ["error_severity", "message"]),
}


@pytest.mark.parametrize("name", SHORTER)
def test_a_header_of_the_user_decides_which_columns_there_are(name: str) -> None:
    header, expected = SHORTER[name]
    section = ParsedInputSection.model_validate({"topic": "t", "format": name, "header": header})
    assert list(section.columns or {}) == expected
    missing = set(SHIPPED[name].columns) - set(expected)
    assert missing
    assert not missing & set(section.column_types())


def test_a_metric_over_a_column_outside_of_the_header_is_one_fault() -> None:
    cdn = {"topic": "t", "format": "iis", "header": "date time sc-status"}
    metric = {"name": "m", "from": "cdn", "measure": "mean", "value": "time_taken"}
    with pytest.raises(ValidationError) as raised:
        StreamSection.model_validate({"from": {"cdn": cdn}, "metrics": [metric]})
    [error] = raised.value.errors()
    assert error["loc"] == ("metrics", 0, "value")
    assert "unknown column time_taken" in error["msg"]


def test_a_header_of_another_kind_is_one_fault() -> None:
    with pytest.raises(ValidationError) as raised:
        ParsedInputSection.model_validate({"topic": "t", "format": "iis", "header": [3]})
    assert {error["loc"][0] for error in raised.value.errors()} == {"header"}
