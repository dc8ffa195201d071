"""The declaration of a column: its path, its type and its name."""

import re

import pytest

from stream.config.formats import parse_declaration
from stream.config.groups import PatternFault, group_names, java_pattern, python_pattern


@pytest.mark.parametrize(
    ("text", "steps", "column_type"),
    [
        ("status int", ("status",), "int"),
        ("upstream.time double", ("upstream", "time"), "double"),
        (
            "`server_zones`.`hg.nginx.org`.requests bigint",
            ("server_zones", "hg.nginx.org", "requests"),
            "bigint",
        ),
        ("peers[0].server", ("peers", 0, "server"), "string"),
        ("m[1][22] decimal(10, 2)", ("m", 1, 22), "decimal(10,2)"),
        ("`a b` text", ("a b",), "string"),
        ("`a b`", ("a b",), "string"),
        ("int string", ("int",), "string"),
        ("user-agent string", ("user-agent",), "string"),
    ],
)
def test_json_paths(text: str, steps: tuple[str | int, ...], column_type: str) -> None:
    declared = parse_declaration("c", text, "json")
    assert (declared.steps, declared.type) == (steps, column_type)


@pytest.mark.parametrize(
    ("line_format", "name", "text", "fault"),
    [
        ("json", "c", "a strnig", "found type 'strnig', expected one of string"),
        ("json", "c", "a..b string", "found path 'a..b'"),
        ("json", "c", "a. string", "found path 'a.'"),
        ("json", "c", "", "found nothing"),
        ("json", "c", "a decimal(40,2)", "found type 'decimal(40,2)'"),
        ("json", "Time", "a string", "every line has a column time already"),
        ("json", "1c", "a string", "found column name '1c'"),
        ("logfmt", "c", "a=b string", "found key 'a=b'"),
        ("regex", "c", "a-b string", "found group 'a-b'"),
    ],
)
def test_faults(line_format: str, name: str, text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_declaration(name, text, line_format)
    assert fault in str(caught.value)


def test_groups_of_a_pattern() -> None:
    pattern = r"(?<when>\S+) \(?<no>x [(?<no2>] \Q(?<no3>.)\E (?:(?<level>[A-Z]+)) (?<!x)(?<=y)"
    assert group_names(pattern) == ["when", "level"]


def test_groups_as_other_languages_spell_them() -> None:
    pattern = r"(?P<a_b>x)(?'c'y)(?<_d>z)(?P=a_b)\k<_d>\k'c'[(?P<no>](?<=q)"
    assert group_names(pattern) == ["a_b", "c", "_d"]
    translated, names = java_pattern(pattern)
    assert names == {"a_b": "g0", "c": "c", "_d": "g2"}
    assert translated == r"(?<g0>x)(?<c>y)(?<g2>z)\k<g0>\k<g2>\k<c>[(?P<no>](?<=q)"
    assert re.compile(python_pattern(pattern)).groupindex == {"a_b": 1, "c": 2, "_d": 3}


def test_a_group_is_not_renamed_to_another_ones_name() -> None:
    assert java_pattern("(?<a_b>x)(?<g0>y)")[1] == {"g0": "g0", "a_b": "g0x"}


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("(?<remote-addr>x)", "found group name 'remote-addr', expected letters, digits and _"),
        ("(?P<1st>x)", "found group name '1st'"),
        ("(?<>x)", "found group name ''"),
        ("(?<a>x)|(?P<a>y)", "found group 'a' twice"),
    ],
)
def test_group_names_that_no_spelling_allows(pattern: str, fault: str) -> None:
    with pytest.raises(PatternFault) as caught:
        group_names(pattern)
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize("pattern", [r"\p{Alpha}", r"a\h", r"[a-z&&[^b]]", r"\Qx\E"])
def test_patterns_that_python_cannot_spell_are_refused(pattern: str) -> None:
    with pytest.raises(PatternFault):
        python_pattern(pattern)
