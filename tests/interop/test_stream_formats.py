"""Every format parses real lines and difficult lines correctly in Spark."""

import json
from typing import Any

import pytest

from tests.harness.logs import shared_log
from tests.interop.stream_spark import count_lines, keys, one_input, reasons

pytestmark = pytest.mark.live

GOOD = '1.2.3.4 - - [01/Aug/2026:10:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "x"'


def columns_of(input_section: dict[str, Any], line: str | bytes, *names: str) -> dict[str, Any]:
    """Return the values of these columns in one line."""
    metrics = [{"name": f"c_{place}", "key": name} for place, name in enumerate(names)]
    counts = count_lines(one_input(input_section, *metrics), [line])
    assert not counts.unparsed, counts.unparsed
    return {name: next(iter(keys(counts, f"c_{p}"))) for p, name in enumerate(names)}


def test_all_lines_of_the_access_log_parse() -> None:
    lines = shared_log("apache_access.log").read_bytes().split(b"\n")[:10_000]
    config = one_input(
        {"format": "combined"},
        {"name": "statuses", "key": "status"},
        {"name": "sizes", "measure": "sum", "value": "bytes"},
        {"name": "sized", "where": "bytes IS NOT NULL"},
        {"name": "agents", "key": "user_agent", "where": "user_agent IS NULL"},
        {"name": "queries", "where": "query IS NOT NULL"},
        {"name": "hours", "key": "time", "where": "minute(time) = 5 AND second(time) = 3"},
    )
    counts = count_lines(config, lines)
    assert counts.lines == 10_000
    assert reasons(counts) == {}
    assert keys(counts, "statuses") == {
        "200": 9126,
        "304": 445,
        "404": 213,
        "301": 164,
        "206": 45,
        "500": 3,
        "416": 2,
        "403": 2,
    }
    assert keys(counts, "sized") == {(): 10_000 - 669}
    total = sum(int(size) for line in lines if (size := line.split(b'" ')[1].split()[1]).isdigit())
    (row,) = (row for row in counts.rows if row.metric == "sizes")
    assert row.sum == total
    assert row.count == 10_000 - 669


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (GOOD, {"method": "GET", "path": "/", "query": None, "protocol": "HTTP/1.1"}),
        (
            GOOD.replace("GET / ", "GET /a?b=c?d "),
            {"method": "GET", "path": "/a", "query": "b=c?d"},
        ),
        (GOOD.replace("GET / ", "GET /a b c "), {"path": "/a b c", "protocol": "HTTP/1.1"}),
        (GOOD.replace("GET / HTTP/1.1", "GET /x"), {"path": "GET /x", "method": None}),
        (GOOD.replace("GET / HTTP/1.1", ""), {"path": "", "method": None}),
        (GOOD.replace("GET / HTTP/1.1", "-"), {"path": "-", "status": "200"}),
        (GOOD.replace("GET / ", r"GET /\"q\" "), {"path": r"/\"q\"", "method": "GET"}),
        (GOOD.replace("GET / ", r"GET /\x16\x03 "), {"path": r"/\x16\x03"}),
        (GOOD[:-1], {"user_agent": "x"}),
        (GOOD + "\r", {"user_agent": "x"}),
        (GOOD.replace(' "x"', ""), {"user_agent": None, "referer": None}),
        (GOOD.replace('"-" "x"', r'"http://a/" "say \"hi\""'), {"user_agent": r"say \"hi\""}),
        (GOOD.replace("- - [", "id al [ice ["), {"ident": "id", "user": "al [ice"}),
        (GOOD.replace("- - [", "- frank ["), {"ident": None, "user": "frank"}),
        (GOOD.replace(" 5 ", " - "), {"bytes": None}),
        (GOOD.replace("1.2.3.4", "::1"), {"remote_addr": "::1"}),
        (GOOD.replace("GET / ", "GET /\x01\x02 "), {"path": "/\x01\x02"}),
        (GOOD.replace('"x"', '"a\u2028b\u0085c"'), {"user_agent": "a\u2028b\u0085c"}),
    ],
)
def test_combined(line: str, expected: dict[str, Any]) -> None:
    assert columns_of({"format": "combined"}, line, *expected) == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "format:combined"),
        ("hello", "format:combined"),
        (GOOD.replace("[01/Aug/2026:10:00:01 +0000]", "[yesterday]"), "time"),
        (GOOD.replace("01/Aug", "32/Aug"), "time"),
        (None, "null"),
        (b"\xff\xfe\x00", "format:combined"),
    ],
)
def test_lines_that_are_not_combined(line: str | bytes | None, reason: str) -> None:
    config = one_input({"format": "combined"}, {"name": "n_lines"})
    counts = count_lines(config, [GOOD, line, GOOD])
    assert reasons(counts) == {reason: 1}
    # A line with an unreadable time still counts in the totals.
    assert keys(counts, "n_lines") == {(): 3 if reason == "time" else 2}
    (row,) = counts.unparsed
    (sample,) = row.samples
    expected = line if isinstance(line, bytes) else (line or "").encode()
    assert (row.topic, row.file) == ("logs.t", "t/t.log")
    assert (sample.partition, sample.offset, sample.line) == (0, 1, expected)


def test_common_takes_combined_lines_too() -> None:
    short = GOOD.split(' "-"')[0]
    config = one_input({"format": "common"}, {"name": "paths", "key": "path"})
    assert keys(count_lines(config, [short, GOOD]), "paths") == {"/": 2}


@pytest.mark.parametrize("length", [3_000, 2_000_000])
def test_long_fields_do_not_overflow_the_stack(length: int) -> None:
    plain = GOOD.replace('"x"', f'"{"x" * length}"')
    escaped = GOOD.replace('"x"', '"' + r"\"" * (length // 2) + '"')
    request = GOOD.replace("GET / ", f"GET /{'a' * length}?q ")
    config = one_input({"format": "combined"}, {"name": "statuses", "key": "status"})
    counts = count_lines(config, [plain, escaped, request])
    assert keys(counts, "statuses") == {"200": 3}
    logfmt = one_input(
        {"format": "logfmt", "columns": {"a": "a string", "b": "b int"}},
        {"name": "bs", "key": "b"},
    )
    line = 'a="' + r"\"x" * (length // 3) + '" b=7'
    assert keys(count_lines(logfmt, [line]), "bs") == {"7": 1}
    nested = one_input({"format": "json", "columns": {"b": "b.c int"}}, {"name": "bs", "key": "b"})
    text = json.dumps({"a": "x" * length, "b": {"c": 7}})
    assert keys(count_lines(nested, [text]), "bs") == {"7": 1}


def test_samples_are_cut_at_4_kib() -> None:
    config = one_input({"format": "combined"}, {"name": "n_lines"})
    (row,) = count_lines(config, ["ä" * 5_000]).unparsed
    assert row.samples[0].line == ("ä" * 2_048).encode()


def test_json() -> None:
    columns = {
        "s": "s string",
        "n": "n bigint",
        "d": "deep.er.x double",
        "dotted": "`server_zones`.`hg.nginx.org`.requests bigint",
        "item": "list[1].v int",
        "flag": "flag boolean",
        "whole": "deep string",
    }
    line = json.dumps(
        {
            "s": "te|xt",
            "n": "200",
            "deep": {"er": {"x": 1.5}},
            "server_zones": {"hg.nginx.org": {"requests": 12345678901}},
            "list": [{"v": 1}, {"v": 2}],
            "flag": True,
            "other": [1, 2, {"a": None}],
        }
    )
    given = {"format": "json", "columns": columns}
    assert columns_of(given, line, *columns) == {
        "s": "te|xt",
        "n": "200",
        "d": "1.5",
        "dotted": "12345678901",
        "item": "2",
        "flag": "true",
        "whole": '{"er":{"x":1.5}}',
    }


def test_json_of_an_unexpected_shape_is_absent_not_broken() -> None:
    columns = {"d": "deep.er.x double", "item": "list[1].v int", "s": "s string"}
    lines = [
        '{"deep": "text", "list": {"v": 1}, "s": {"a": 1}}',
        '{"deep": {"er": [1]}, "list": [], "s": null}',
        "{}",
        '{"deep": null, "list": 7, "s": "-"}',
    ]
    config = one_input(
        {"format": "json", "columns": columns},
        {"name": "ds", "key": "d"},
        {"name": "items", "key": "item"},
        {"name": "texts", "key": "s"},
        {"name": "means", "measure": "mean", "value": "d"},
    )
    counts = count_lines(config, lines)
    assert reasons(counts) == {}
    assert keys(counts, "ds") == {None: 4}
    assert keys(counts, "items") == {None: 4}
    assert keys(counts, "texts") == {'{"a":1}': 1, None: 3}
    assert keys(counts, "means") == {}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "text",
        "[1]",
        '[{"a": 1}]',
        '{"a": 1',
        '{"a": 1} x',
        "{a: 1}",
        "null",
        "[" * 5_000,
    ],
)
def test_lines_that_are_not_json(line: str) -> None:
    config = one_input({"format": "json", "columns": {"a": "a int"}}, {"name": "n_lines"})
    counts = count_lines(config, [line, '{"a": 1}', ' {"a": 2} \r'])
    assert reasons(counts) == {"format:json": 1}
    assert keys(counts, "n_lines") == {(): 2}


def test_json_numbers() -> None:
    """A number of JSON keeps all its digits, also in a column of strings."""
    columns = {"a": "a string", "b": "d.b decimal(28,6)", "c": "d.c string", "q": "q decimal(28,6)"}
    line = (
        '{"a": 0.020, "d": {"b": 123456789.123456, "c": 12345678901234567890},'
        ' "q": "1234567890123456.123456"}'
    )
    assert columns_of({"format": "json", "columns": columns}, line, *columns) == {
        "a": "0.020",
        "b": "123456789.123456",
        "c": "12345678901234567890",
        "q": "1234567890123456.123456",
    }


def test_the_nginx_log() -> None:
    lines = shared_log("nginxplus_json.log").read_bytes().splitlines()
    config = one_input(
        {
            "format": "json",
            "time": "timestamp",
            "columns": {
                "hg": "`server_zones`.`hg.nginx.org`.requests bigint",
                "server": "upstreams.`trac-backend`.peers[0].server string",
            },
        },
        {"name": "hg_requests", "measure": "max", "value": "hg"},
        {"name": "servers", "key": "server"},
    )
    counts = count_lines(config, lines)
    documents = [json.loads(line) for line in lines]
    assert (counts.lines, len(lines), reasons(counts)) == (500, 500, {})
    (row,) = (row for row in counts.rows if row.metric == "hg_requests")
    largest = max(d["server_zones"]["hg.nginx.org"]["requests"] for d in documents)
    assert (row.count, row.max) == (500, largest)
    assert keys(counts, "servers") == {"10.0.0.1:8080": 500}
    latest = max(document["timestamp"] for document in documents) // 1000
    assert counts.latest_s == latest


def test_the_ssh_log_is_syslog() -> None:
    lines = shared_log("OpenSSH_2k.log").read_bytes().split(b"\n")
    config = one_input(
        {"format": "syslog"},
        {"name": "programs", "key": ["host", "program"]},
        {"name": "years", "key": "time", "where": "message LIKE 'Invalid user webmaster %'"},
        {"name": "pids", "where": "pid IS NULL"},
    )
    counts = count_lines(config, lines)
    assert reasons(counts) == {}
    assert keys(counts, "programs") == {("LabSZ", "sshd"): 2_000}
    # syslog has no year. The lines arrived in August 2026, so their December is that of 2025.
    assert "2025-12-10 06:55:46" in keys(counts, "years")
    assert keys(counts, "pids") == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "<34>1 2003-10-11T22:14:15.003Z mymachine su 77 ID47 - 'su root' failed",
            {
                "time": "2003-10-11 22:14:15.003",
                "host": "mymachine",
                "program": "su",
                "pid": "77",
                "message": "'su root' failed",
            },
        ),
        (
            '<165>1 2003-08-24T05:14:15.000003-07:00 h p - - [a@1 k="v\\]"][b c="d"] text',
            {"time": "2003-08-24 12:14:15.000003", "pid": None, "message": "text"},
        ),
        (
            "<13>Aug  1 09:00:00 host cron[12]: (root) CMD (x)\r",
            {
                "time": "2026-08-01 09:00:00",
                "program": "cron",
                "pid": "12",
                "message": "(root) CMD (x)",
            },
        ),
        ("Aug  2 11:00:00 host kernel: text", {"time": "2026-08-02 11:00:00", "program": "kernel"}),
        ("Aug  2 13:00:00 host kernel: text", {"time": "2025-08-02 13:00:00", "message": "text"}),
        ("Feb 29 13:00:00 host kernel: text", {"time": "2024-02-29 13:00:00"}),
        ("2026-07-30T10:00:00.5+02:00 host app: hi", {"time": "2026-07-30 08:00:00.5"}),
        (
            "Jul 30 10:00:00 host last message repeated 2 times",
            {"program": None, "message": "last message repeated 2 times"},
        ),
    ],
)
def test_syslog(line: str, expected: dict[str, Any]) -> None:
    assert columns_of({"format": "syslog"}, line, *expected) == expected


def test_syslog_in_a_zone() -> None:
    given = {"format": "syslog", "tz": "Europe/Berlin"}
    line = "Aug  1 13:30:00 host kernel: text"
    assert columns_of(given, line, "time") == {"time": "2026-08-01 11:30:00"}


def test_logfmt() -> None:
    columns = {
        "level": "level string",
        "ms": "ms double",
        "msg": "msg string",
        "empty": "empty string",
    }
    given = {"format": "logfmt", "columns": columns}
    line = r'msg="a level=wrong \"q\" \\ b" flag level=warn ms=12.5 empty= xlevel=no'
    assert columns_of(given, line, *columns) == {
        "level": "warn",
        "ms": "12.5",
        "msg": r'a level=wrong "q" \ b',
        "empty": "",
    }
    config = one_input(given, {"name": "levels", "key": "level"})
    counts = count_lines(config, ["level=info", "no pairs here", "other=1"])
    assert reasons(counts) == {"format:logfmt": 1}
    assert keys(counts, "levels") == {"info": 1, None: 1}


def test_csv() -> None:
    columns = {"a": "1 string", "b": "2 string", "n": "3 int", "far": "5 string"}
    given = {"format": "csv", "columns": columns}
    assert columns_of(given, '"x, ""y""",  b ,7,,"",more', *columns) == {
        "a": 'x, "y"',
        "b": "  b ",
        "n": "7",
        "far": None,
    }
    assert columns_of(given, "one,two", *columns) == {
        "a": "one",
        "b": "two",
        "n": None,
        "far": None,
    }
    semicolons = {**given, "delimiter": ";", "quote": "'"}
    assert columns_of(semicolons, "'a;''b';c", "a", "b") == {"a": "a;'b", "b": "c"}
    config = one_input(given, {"name": "n_lines"})
    assert reasons(count_lines(config, ['"never closed,1,2', "a,b,3"])) == {
        "format:csv, quotes in disorder": 1
    }


def test_regex() -> None:
    given = {
        "format": "regex",
        "pattern": r"(?<when>\S+) \[(?<level>[A-Z]+)\](?: took=(?<took>\d+))?",
        "time": "when",
        "columns": {"ms": "took int"},
    }
    line = "x: 2026-08-01T10:00:00Z [WARN] took=12 and more 2026-08-01T10:00:01Z [INFO]"
    assert columns_of(given, line, "time", "level", "ms") == {
        "time": "2026-08-01 10:00:00",
        "level": "WARN",
        "ms": "12",
    }
    assert columns_of(given, "2026-08-01 [A]", "level", "ms") == {"level": "A", "ms": None}
    config = one_input(given, {"name": "n_lines"})
    counts = count_lines(config, ["nothing", "soon [A]"])
    assert reasons(counts) == {"format:regex": 1, "time": 1}


def test_raw_counts_everything_at_arrival() -> None:
    config = one_input({"format": "raw"}, {"name": "n_lines", "windows": ["1h"]})
    counts = count_lines(config, ["", "x", b"\xff", "\r", "\x00"])
    (row,) = counts.rows
    assert (row.count, row.slice_start_s) == (5, 1_785_585_600)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1785578400", "2026-08-01 10:00:00"),
        ("1785578400.25", "2026-08-01 10:00:00.25"),
        ("1785578400123", "2026-08-01 10:00:00.123"),
        ("1785578400123456", "2026-08-01 10:00:00.123456"),
        ('"1785578400"', "2026-08-01 10:00:00"),
        ("1.7855784E9", "2026-08-01 10:00:00"),
        ('"2026-08-01T10:00:00Z"', "2026-08-01 10:00:00"),
        ('"2026-08-01T10:00:00.123456789Z"', "2026-08-01 10:00:00.123456"),
        ('"2026-08-01 10:00:00,5"', "2026-08-01 10:00:00.5"),
        ('"2026-08-01T10:00:00+0200"', "2026-08-01 08:00:00"),
        ('"2026-08-01T10:00:00+02:00"', "2026-08-01 08:00:00"),
        ('"2026-08-01"', "2026-08-01 00:00:00"),
        ('"20260801T100000Z"', "2026-08-01 10:00:00"),
        ('"01/Aug/2026:10:00:01 +0000"', "2026-08-01 10:00:01"),
    ],
)
def test_times(text: str, expected: str) -> None:
    given = {"format": "json", "time": "ts"}
    assert columns_of(given, f'{{"ts": {text}}}', "time") == {"time": expected}


@pytest.mark.parametrize(
    "text", ['"10:00:00"', '"noon"', "null", '""', "true", "-5", "1e30", '"9999999-01-01"', "{}"]
)
def test_unreadable_times(text: str) -> None:
    config = one_input({"format": "json", "time": "ts"}, {"name": "n_lines"})
    assert reasons(count_lines(config, [f'{{"ts": {text}}}', "{}"])) == {"time": 2}


def test_times_without_zone_are_in_the_inputs() -> None:
    given = {"format": "json", "time": "ts", "tz": "Europe/Berlin"}

    def read(text: str) -> str:
        return str(columns_of(given, json.dumps({"ts": text}), "time")["time"])

    assert read("2026-08-01T10:00:00") == "2026-08-01 08:00:00"
    assert read("2026-12-01 10:00:00.5") == "2026-12-01 09:00:00.5"
    assert read("2026-08-01T10:00:00Z") == "2026-08-01 10:00:00"
    assert read("2026-08-01T10:00:00-05:00") == "2026-08-01 15:00:00"
    assert read("2026-08-01") == "2026-07-31 22:00:00"
