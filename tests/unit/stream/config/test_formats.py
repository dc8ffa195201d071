"""Declared columns: paths, types and names."""

import pytest

from stream.config.formats import group_names, misspelt_group, parse_declaration


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
        ("csv", "c", "first string", "found position 'first'"),
        ("csv", "c", "0 string", "found position '0'"),
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


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"^(?P<level>\w+)", ("(?P<level>", "(?<level>, as Java spells it")),
        (r"(?<a>x)(?P=a)", ("(?P=a)", r"\k<a>, as Java spells it")),
        (
            r"(?<user_id>\d+)",
            (
                "(?<user_id>",
                "(?<userId>, as Java spells it, for the name of a group has letters and digits"
                " only",
            ),
        ),
        (r"(?<a>x)(?<!b_c>)(?<=d_)\(?P<e>", None),
    ],
)
def test_groups_that_java_spells_otherwise(pattern: str, found: tuple[str, str] | None) -> None:
    assert misspelt_group(pattern) == found
