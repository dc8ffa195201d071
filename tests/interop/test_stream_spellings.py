"""Spellings of times in Spark: which are accepted, which are rejected, and the reason of each."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from stream.config.times import TimeSection
from stream.parse.times import line_time
from tests.interop.stream_spark import ARRIVAL, count_lines, keys, one_input, reasons, spark

pytestmark = pytest.mark.live

AMBIGUOUS = "time:ambiguous"


def read(
    texts: Sequence[str], tz: str = "UTC", arrival: str | None = None, **section: Any
) -> list[str | None]:
    """Return each text's time in UTC, or the reason why it is not a time. `arrival` is the time in
    UTC at which the lines arrived."""
    time = line_time(["text"], tz, TimeSection.model_validate(section))
    at = arrival or ARRIVAL.strftime("%Y-%m-%d %H:%M:%S")
    frame = spark().createDataFrame([(text,) for text in texts], "text STRING").coalesce(1)
    shown = f"coalesce(CAST({time.value} AS STRING), {time.fault}) AS shown"
    rows = frame.selectExpr("text", f"TIMESTAMP '{at}' AS arrival").selectExpr(shown).collect()
    return [row.shown for row in rows]


def check(expected: dict[str, str], tz: str = "UTC", **more: Any) -> None:
    assert dict(zip(expected, read(list(expected), tz, **more), strict=True)) == expected


def test_iso_8601_in_all_its_forms() -> None:
    check(
        {
            "2024-07-01T10:00:00Z": "2024-07-01 10:00:00",
            "2024-07-01t10:00:00z": "2024-07-01 10:00:00",
            "2024-07-01T10:00:00.1Z": "2024-07-01 10:00:00.1",
            "2024-07-01T10:00:00.123456789Z": "2024-07-01 10:00:00.123456",
            "2024-07-01T10:00:00,123+0200": "2024-07-01 08:00:00.123",
            "2024-07-01T10:00:00+02": "2024-07-01 08:00:00",
            "2024-07-01 10:00:00 -03:30": "2024-07-01 13:30:00",
            "2024-07-01T10:00:00+02:00[Europe/Paris]": "2024-07-01 08:00:00",
            "2024-07-01T10:00:00[Europe/Paris]": "2024-07-01 08:00:00",
            "2024-07-01 10:00:00 America/Argentina/Buenos_Aires": "2024-07-01 13:00:00",
            "2024-07-01 10:00:00 GMT+3": "2024-07-01 07:00:00",
            "2024-07-01 10:00:00 UTC-05:30": "2024-07-01 15:30:00",
            "2024-07-01\t10:00:00": "2024-07-01 10:00:00",
            "2024-07-01": "2024-07-01 00:00:00",
            "2024-07-01 10:00": "2024-07-01 10:00:00",
            "2024-07-01T24:00:00Z": "2024-07-02 00:00:00",
            "2016-12-31T23:59:60Z": "2016-12-31 23:59:59",
            "2024-183T10:00:00Z": "2024-07-01 10:00:00",
            "20240701T100000Z": "2024-07-01 10:00:00",
            "20240701T1000+0200": "2024-07-01 08:00:00",
            "  2024-07-01T10:00:00Z \r": "2024-07-01 10:00:00",
            "9999-12-31T23:59:59Z": "9999-12-31 23:59:59",
        }
    )


def test_times_as_programs_spell_them() -> None:
    check(
        {
            "10/Oct/2000:13:55:36 -0700": "2000-10-10 20:55:36",
            "10/Oct/2000:13:55:60 +0000": "2000-10-10 13:55:59",
            "07/Sep/2024:16:12:01.123": "2024-09-07 16:12:01.123",
            "Sat Sep 07 16:12:01.123456 2024": "2024-09-07 16:12:01.123456",
            "[Sat Sep  7 16:12:01 2024]": "2024-09-07 16:12:01",
            "Sat Sep  7 16:12:01 CEST 2024": "2024-09-07 14:12:01",
            "Sat, 07 Sep 2024 16:12:01 GMT": "2024-09-07 16:12:01",
            "Sat, 7 Sep 24 16:12:01 +0200 (CEST)": "2024-09-07 14:12:01",
            "Saturday, 07-Sep-24 16:12:01 GMT": "2024-09-07 16:12:01",
            "Sat Sep 07 2024 16:12:01 GMT+0200 (Central European Summer Time)": (
                "2024-09-07 14:12:01"
            ),
            "2024/09/07 16:12:01.123456": "2024-09-07 16:12:01.123456",
            "2024-09-07 16:12:01.123456789 +0200 CEST m=+0.012": "2024-09-07 14:12:01.123456",
            "2024-09-07 16:12:01,123": "2024-09-07 16:12:01.123",
            "2024-09-07 16:12:01:362": "2024-09-07 16:12:01.362",
            "2024-09-07-16.12.01.123456": "2024-09-07 16:12:01.123456",
            "07 Sep 2024 16:12:01.123": "2024-09-07 16:12:01.123",
            "07-Sep-2024 16:12:01 Europe/Berlin": "2024-09-07 14:12:01",
            "[07-Sep-2024 16:12:01 UTC]": "2024-09-07 16:12:01",
            "Sep 7, 2024 4:12:01\u202fPM": "2024-09-07 16:12:01",
            "September 7, 2024 at 12:12 AM": "2024-09-07 00:12:00",
            "Sept. 7, 2024 16:12": "2024-09-07 16:12:00",
            "240907  9:12:01": "2024-09-07 09:12:01",
            "081109 203518": "2008-11-09 20:35:18",
            "20240907-16:12:01.123": "2024-09-07 16:12:01.123",
            "20240907161201Z": "2024-09-07 16:12:01",
            "@4000000037c219bf2ef02e94": "1999-08-24 04:04:05.787492",
        }
    )


def test_numbers_are_told_apart_by_their_size() -> None:
    check(
        {
            "1725724716": "2024-09-07 15:58:36",
            "1725724716.113": "2024-09-07 15:58:36.113",
            "1725724716113": "2024-09-07 15:58:36.113",
            "1725724716113.5": "2024-09-07 15:58:36.1135",
            "1725724716113000": "2024-09-07 15:58:36.113",
            "1725724716113000123": "2024-09-07 15:58:36.113",
            "1.725724716113E9": "2024-09-07 15:58:36.113",
            "1.7257247161130001e+18": "2024-09-07 15:58:36.113",
            "20240907": "2024-09-07 00:00:00",
            "20240907161201": "2024-09-07 16:12:01",
            "20240907161201.25": "2024-09-07 16:12:01.25",
            "20240907161201123": "2024-09-07 16:12:01.123",
            # The digits give no date of the calendar, so they are milliseconds since 1970.
            "20249907161201": "2611-09-11 22:12:41.201",
            "-5": "time",
            "1e30": "time",
            "1e999": "time",
            "9" * 400: "time",
            "0x10": "time",
            "5d": "time",
            "NaN": "time",
        }
    )


def test_a_date_that_can_be_read_in_two_ways_is_not_guessed() -> None:
    check(
        {
            "07/09/2024 10:00:00": AMBIGUOUS,
            "07-09-2024 10:00:00": AMBIGUOUS,
            "7/1/24 10:00:00": AMBIGUOUS,
            "24/09/07 10:00:00": AMBIGUOUS,
            "24.09.07 10:00:00": AMBIGUOUS,
            "27/09/2024 10:00:00": "2024-09-27 10:00:00",
            "09/27/2024 4:12:01 PM": "2024-09-27 16:12:01",
            "07/07/2024": "2024-07-07 00:00:00",
            "01.07.2024 10:00:00": "2024-07-01 10:00:00",
            "7/27/24 10:00": "2024-07-27 10:00:00",
            "99/12/31 10:00": "1999-12-31 10:00:00",
            "27/27/2024": "time",
            "31/09/2024": "time",
            "07/09/2024 nonsense": "time",
        }
    )


def test_what_is_no_time_is_none() -> None:
    texts = [
        "", "noon", "10:00:00", "Sep", "Sep 7", "2024-13-01 00:00:00", "2024-02-30T00:00:00Z",
        "2024-07-01T25:00:00Z", "2024-07-01T10:60:00Z", "2024-07-01T10:00:61Z", "2024-367",
        "2024-07-01T24:00:01Z", "2024-07-01 10:00:00 13", "2024-07-01 10:00:00 +1900",
        "2024-07-01 10:00:00 +0260", "2024-07-01 13:00:00 AM",
        "2024-07-01 10:00:00 Mars/Olympus", "10000-01-01", "1969-12-31T23:59:59Z", "[", "]", "@",
        "@" + "g" * 24, "+", ":", "2024-", "2024-07", "Mon", "x" * 600, "é", "2024-07-01T",
    ]  # fmt: skip
    assert read(texts) == ["time"] * len(texts)


def test_an_abbreviation_that_several_places_use_is_refused_by_its_name() -> None:
    names = ["BST", "IST", "AST", "NST", "ECT", "SST", "ART", "XYZ", "A"]
    texts = [f"2024-07-01 10:00:00 {name}" for name in names]
    assert read(texts) == [f"time:zone {name}" for name in names]
    check(
        {
            "2024-07-01 10:00:00 MSK": "2024-07-01 07:00:00",
            "2012-07-01 10:00:00 MSK": "2012-07-01 06:00:00",
            "2024-07-01 10:00:00 AEST": "2024-07-01 00:00:00",
            "2024-07-01 10:00:00.123 CEST": "2024-07-01 08:00:00.123",
            "2024-01-02 10:00:00.123 cet": "2024-01-02 09:00:00.123",
            "2024-07-01 10:00:00 MST": "2024-07-01 17:00:00",
        }
    )


@pytest.mark.parametrize(
    ("tz", "name", "expected"),
    [
        ("Europe/London", "BST", "2024-07-01 09:00:00"),
        ("Europe/Dublin", "IST", "2024-07-01 09:00:00"),
        ("Asia/Kolkata", "IST", "2024-07-01 04:30:00"),
        ("Asia/Shanghai", "CST", "2024-07-01 02:00:00"),
        ("America/Halifax", "AST", "2024-07-01 14:00:00"),
        ("Australia/Sydney", "EST", "time:zone EST"),
        ("Asia/Dhaka", "BST", "time:zone BST"),
    ],
)
def test_the_inputs_zone_says_what_its_abbreviation_means(
    tz: str, name: str, expected: str
) -> None:
    assert read([f"2024-07-01 10:00:00 {name}"], tz) == [expected]


def test_hours_that_clocks_skip_or_repeat() -> None:
    check(
        {
            "2024-03-31 01:59:59": "2024-03-31 00:59:59",
            # Clocks skip this hour, so the time moves forward by one hour.
            "2024-03-31 02:30:00": "2024-03-31 01:30:00",
            "2024-03-31 03:00:00": "2024-03-31 01:00:00",
            # Clocks repeat this hour, so take the first of the two, unless the text names a zone.
            "2024-10-27 02:30:00": "2024-10-27 00:30:00",
            "2024-10-27 02:30:00 CEST": "2024-10-27 00:30:00",
            "2024-10-27 02:30:00 CET": "2024-10-27 01:30:00",
            "2024-10-27 02:30:00 +0100": "2024-10-27 01:30:00",
            "2024-10-27 03:00:00": "2024-10-27 02:00:00",
            # A zone in the text overrides the input's zone.
            "2024-07-01 10:00:00Z": "2024-07-01 10:00:00",
            "2024-07-01": "2024-06-30 22:00:00",
        },
        "Europe/Berlin",
    )
    check(
        {
            "2024-10-06 02:15:00": "2024-10-05 15:45:00",
            "2024-04-07 01:45:00": "2024-04-06 14:45:00",
        },
        "Australia/Lord_Howe",
    )


def test_dates_without_a_year_around_new_year() -> None:
    texts = ["Dec 31 23:59:58", "Jan  1 00:00:01", "Jan  2 13:00:00", "1231 23:00:00.5",
             "*Mar  1 18:46:11.123 UTC:", "Dec 31 2025 23:00:00", "Feb 29 10:00:00"]  # fmt: skip
    assert read(texts, arrival="2027-01-01 00:00:30") == [
        "2026-12-31 23:59:58",
        "2027-01-01 00:00:01",
        # In 2027 it would be more than a day after its arrival, so it is in 2026.
        "2026-01-02 13:00:00",
        "2026-12-31 23:00:00.5",
        "2026-03-01 18:46:11.123",
        "2025-12-31 23:00:00",
        "2024-02-29 10:00:00",
    ]
    # The writer's clock can be ahead of ours, and in its zone the next year can have begun.
    assert read(["Jan  1 00:10:00"], arrival="2026-12-31 23:30:00") == ["2027-01-01 00:10:00"]
    assert read(["Jan  1 08:10:00"], "Asia/Tokyo", arrival="2026-12-31 23:30:00") == [
        "2026-12-31 23:10:00"
    ]


def test_layouts() -> None:
    texts = ["07/09/2024 10:00:00", "1725724716.5", "2024-09-07 10:00:00"]
    given: dict[str, Any] = {"column": "t", "layout": ["%d/%m/%Y %H:%M:%S", "%s.%f"]}
    assert read(texts, **given) == ["2024-09-07 10:00:00", "2024-09-07 15:58:36.5", "time"]
    us: dict[str, Any] = {"column": "t", "layout": "%m/%d/%y %I:%M %p %Z"}
    assert read(["9/7/24 4:12 pm BST", "9/7/24 0:12 AM UTC"], "Europe/London", **us) == [
        "2024-09-07 15:12:00",
        "time",
    ]
    assert read(["9/7/24 4:12 pm BST"], **us) == ["time:zone BST"]
    odd: dict[str, Any] = {"column": "t", "layout": "Jahr %Y, Tag %j – %T%z"}
    assert read(
        ["Jahr 2024, Tag 183 – 10:00:00+0200", "Jahr 2023, Tag 366 – 10:00:00Z"], **odd
    ) == [
        "2024-07-01 08:00:00",
        "time",
    ]
    yearless: dict[str, Any] = {"column": "t", "layout": "%b %e %T"}
    assert read(["Dec  9 10:00:00"], **yearless) == ["2025-12-09 10:00:00"]


def test_the_first_field_that_is_there_and_readable_counts() -> None:
    fields = ["@timestamp", "time", "ts", "date + clock"]
    given = {"format": "json", "time": fields}
    lines = [
        {"@timestamp": "2024-09-07T15:58:36Z", "ts": 1},
        {"@timestamp": None, "time": 1725724716113},
        {"@timestamp": "soon", "ts": 1725724716.5},
        {"time": 0.25, "ts": "2024-09-07T15:00:00Z"},
        {"time": "2024-09-07", "ts": "2024-09-07T15:00:00Z"},
        {"date": "2024-09-07", "clock": "15:00:00"},
    ]
    config = one_input(given, {"name": "hours", "windows": ["1h"]})
    counts = count_lines(config, map(json.dumps, lines))
    assert reasons(counts) == {}
    assert {row.slice_start_s: row.count for row in counts.rows} == {1_725_721_200: 6}


def test_access_logs_with_other_times() -> None:
    line = '192.0.2.7 - - [{}] "GET /a HTTP/1.1" 200 5 "-" "x"'
    times = ["2024-09-07T15:58:36+02:00", "1725717516.113", "07/Sep/2024:13:58:36",
             "07/Sep/2024:13:58:36 BST"]  # fmt: skip
    config = one_input({"format": "combined"}, {"name": "times", "key": "time"})
    counts = count_lines(config, [line.format(time) for time in times])
    shown = keys(counts, "times")
    assert shown == {"2024-09-07 13:58:36": 2, "2024-09-07 13:58:36.113": 1, None: 1}
    assert reasons(counts) == {"time:zone BST": 1}


@pytest.mark.parametrize(
    ("pattern", "line", "tz", "expected"),
    [
        (
            r"^(?<time>\S+ \S+) \[(?<level>\w+)\]",
            '2024/11/28 10:00:00 [error] 12#12: *1 open() "/x" failed',
            "UTC",
            "2024-11-28 10:00:00",
        ),
        (
            r"^\[(?<time>[^\]]+)\] \[(?<level>[^\]]+)\]",
            "[Thu Nov 28 10:00:00.123456 2024] [core:error] [pid 35708] File does not exist: /x",
            "Europe/Berlin",
            "2024-11-28 09:00:00.123456",
        ),
        (
            r"\[(?<time>\d\d/[^\]]+)\] (?<level>\S+)",
            "Nov 28 12:14:14 lb haproxy[14389]: 10.0.1.2:33317 [28/Nov/2025:12:14:14.655] http-in",
            "UTC",
            "2025-11-28 12:14:14.655",
        ),
        (
            r"^(?<time>\S+\t\S+)\t(?<level>\S+)",
            "2024-09-07\t00:00:01\tFRA2\t100",
            "UTC",
            "2024-09-07 00:00:01",
        ),
    ],
)
def test_times_of_servers_logs_by_a_pattern(
    pattern: str, line: str, tz: str, expected: str
) -> None:
    given = {"format": "regex", "pattern": pattern, "time": "time", "tz": tz}
    counts = count_lines(one_input(given, {"name": "times", "key": "time"}), [line])
    assert keys(counts, "times") == {expected: 1}
    assert reasons(counts) == {}


def test_a_csv_whose_time_stands_in_two_columns() -> None:
    given = {"format": "csv", "time": ["4", "1 + 2"], "tz": "Europe/London"}
    lines = ["2024-07-01,10:00:00,x", "2024-07-01,10:00:00 BST,x", ",,x,1725724716"]
    counts = count_lines(one_input(given, {"name": "times", "key": "time"}), lines)
    assert keys(counts, "times") == {"2024-07-01 09:00:00": 2, "2024-09-07 15:58:36": 1}
