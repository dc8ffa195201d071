"""Lines of access logs and their columns. Python parses them here with the pattern that Java
uses."""

import re

import pytest

from stream.parse.access import access_pattern, pattern_texts, plain_texts

COMMON = '10.0.0.1 - ada [27/Nov/2026:02:00:00 +0000] "GET /a?b=1 HTTP/1.1" 200 17'
COMBINED = f'{COMMON} "https://example.net/" "curl/8"'


def groups(line: str, *, combined: bool) -> tuple[str | None, ...] | None:
    pattern, count = access_pattern(combined=combined)
    found = re.search(pattern, line)
    assert found is None or len(found.groups()) == count
    return None if found is None else found.groups()


def test_a_combined_line_is_taken_apart() -> None:
    assert groups(COMBINED, combined=True) == (
        "10.0.0.1", "-", "ada", "27/Nov/2026:02:00:00 +0000", "GET /a?b=1 HTTP/1.1", "200", "17",
        "https://example.net/", "curl/8",
    )  # fmt: skip


def test_what_a_combined_line_has_besides_may_be_missing() -> None:
    assert (groups(COMMON, combined=True) or ())[-2:] == (None, None)
    assert (groups(COMMON + ' "-"', combined=True) or ())[-2:] == ("-", None)


def test_a_common_line_may_have_more_behind_it() -> None:
    assert groups(COMMON, combined=False) == groups(COMBINED, combined=False)


def test_quotes_inside_a_field_are_escaped() -> None:
    line = COMMON.replace("GET /a?b=1 HTTP/1.1", r"GET /\" HTTP/1.1")
    assert (groups(line, combined=True) or ())[4] == r"GET /\" HTTP/1.1"


def test_a_user_may_have_a_blank_in_the_name() -> None:
    assert (groups(COMMON.replace("ada", "ada l"), combined=True) or ())[2] == "ada l"


@pytest.mark.parametrize(
    "line",
    ["", "GET / HTTP/1.1", COMMON.replace(" 200 ", " 2000 "), COMMON.replace("]", ""),
     COMMON.replace('"', "")],
)  # fmt: skip
def test_what_is_no_such_line_is_not_taken_apart(line: str) -> None:
    assert groups(line, combined=True) is None
    assert groups(line, combined=False) is None


def test_a_request_without_an_end_is_judged_in_one_pass() -> None:
    """A pattern with a repeat that can match in two ways would take minutes here."""
    endless = COMMON.partition('"')[0] + '"' + "\\" * 1_000_000
    assert groups(endless, combined=True) is None


@pytest.mark.parametrize("combined", [True, False])
def test_both_ways_give_the_same_columns(combined: bool) -> None:
    """Each line decides which of the two ways splits it, so both must give the same columns."""
    field = [f"f{number}" for number in range(10)]
    by_pattern = pattern_texts(field, "request", combined=combined)
    assert set(plain_texts("w", combined=combined)) == set(by_pattern)
    assert ("referer" in by_pattern) == combined
