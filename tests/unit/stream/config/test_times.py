"""Layouts of times, the forms of `time:`, and the abbreviations of time zones."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from stream.config.times import DIRECTIVES, Time, TimeSection, compile_layout
from stream.config.zones import UNAMBIGUOUS, zone_names

TIMES: TypeAdapter[TimeSection] = TypeAdapter(Time)


@pytest.mark.parametrize(
    ("layout", "compiled"),
    [
        ("%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S %z"),
        ("%A, %e %B %Y %l:%M %p", "%a, %d %b %Y %I:%M %p"),
        ("%F  %T,%f", "%Y-%m-%d %H:%M:%S,%f"),
        ("%F %T.%L", "%Y-%m-%d %H:%M:%S.%f"),
        ("%s.%f", "%s.%f"),
        ("%Y-%j", "%Y-%j"),
        ("100%% %D", "100%% %m/%d/%y"),
    ],
)
def test_a_layout_is_written_out(layout: str, compiled: str) -> None:
    assert compile_layout(layout) == compiled


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        (
            "%d/%b/%Q",
            "found directive '%Q' at character 7 of layout '%d/%b/%Q', expected one of %%",
        ),
        ("%F %", "found directive '%' at character 4"),
        ("%H:%M:%S", "without a day, expected %d with %m or %b, or %j, or %s"),
        ("%Y-%m", "without a day"),
        ("%d %m %d", "found %d twice"),
        ("%d %m %b", "found %m and %b"),
        ("%F %T %H", "found %H twice"),
        ("%Y-%y-%m-%d", "found %Y and %y"),
        ("%F %I:%M", "expected %I (hours 1 to 12) and %p (AM or PM) together"),
        ("%F %H:%M %p", "expected %I (hours 1 to 12) and %p (AM or PM) together"),
        ("%F %M", "%M in layout '%F %M' without %H or %I"),
        ("%F %H %S", "%S in layout '%F %H %S' without %M"),
        ("%F %f", "%f in layout '%F %f' without %S"),
        ("%s %H", "found %s and %H"),
        ("%j %H", "expected %j with a year"),
        ("%Y %j %d", "expected %j with a year"),
        ("x" * 201, "found a layout of 201 characters"),
        ("", "without a day"),
    ],
)
def test_a_layout_that_says_no_time_is_refused(layout: str, fault: str) -> None:
    with pytest.raises(ValueError, match="found") as raised:
        compile_layout(layout)
    assert fault in str(raised.value)


def test_every_directive_that_is_named_is_known() -> None:
    for directive in DIRECTIVES:
        more = {"%f": "%s.", "%L": "%s.", "%N": "%s.", "%M": "%F %H:", "%S": "%F %H:%M:",
                "%p": "%F %I ", "%I": "%F %p ", "%l": "%F %p ", "%s": "", "%d": "%m ",
                "%e": "%m ", "%D": "", "%F": "", "%j": "%Y "}  # fmt: skip
        before = more.get(directive, "%d " if directive in ("%m", "%b", "%B", "%h") else "%m %d ")
        compile_layout(before + directive)


@pytest.mark.parametrize(
    "given",
    [
        "ts",
        ["@timestamp", "ts"],
        {"column": "ts", "layout": ["%s"]},
        {"column": ["a", "date + time"], "fallback": "arrival"},
        {"layout": ["%F %T"], "fallback": "arrival"},
    ],
)
def test_a_time_is_shown_as_it_was_written(given: Any) -> None:
    """The hash of a definition is computed from this text. So the plain form must never change."""
    section = TIMES.validate_python(given)
    assert section.model_dump(mode="json") == given
    assert TIMES.validate_python(section.model_dump()) == section


def test_one_layout_may_stand_without_a_list() -> None:
    assert TIMES.validate_python({"column": "a", "layout": "%s"}).layout == ("%s",)
    assert TIMES.validate_python(["a + b", "c"]).fields() == (("a", "b"), ("c",))


@pytest.mark.parametrize(
    ("tz", "name", "meaning"),
    [
        ("UTC", "CEST", "+02:00"),
        ("UTC", "BST", None),
        ("Europe/London", "BST", "+01:00"),
        ("UTC", "IST", None),
        ("Asia/Kolkata", "IST", "+05:30"),
        ("Asia/Jerusalem", "IST", "+02:00"),
        ("UTC", "CST", "-06:00"),
        ("America/Chicago", "CST", "-06:00"),
        ("Asia/Shanghai", "CST", "+08:00"),
        ("Asia/Manila", "PST", "+08:00"),
        ("America/Halifax", "AST", "-04:00"),
        ("Europe/Moscow", "MSK", "Europe/Moscow"),
        ("Australia/Sydney", "AEDT", "+11:00"),
        ("Australia/Sydney", "EST", None),
        ("Asia/Dhaka", "BST", None),
        ("+02:00", "CEST", "+02:00"),
    ],
)
def test_what_an_abbreviation_means_follows_from_the_inputs_zone(
    tz: str, name: str, meaning: str | None
) -> None:
    assert zone_names(tz).get(name) == meaning


def test_no_java_short_id_that_several_places_use_is_known() -> None:
    for name in ("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CNT", "CTT", "ECT", "IET",
                 "IST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "SST", "VST"):  # fmt: skip
        assert name not in UNAMBIGUOUS
