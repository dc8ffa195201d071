"""Lines of programs from public bug reports, parsed by Spark.

Each test has the lines of one report and the expected counts. The lines are written byte by byte,
because several have byte order marks and control characters.
"""

from typing import Any

import pytest

from tests.interop.stream_spark import count_lines, keys, one_input, reasons

pytestmark = pytest.mark.live

HEAD = '192.0.2.7 - - [07/Sep/2024:15:58:36 +0000] "GET /a HTTP/1.1"'
MAIN = HEAD + ' 200 612 "-" "Mozilla/5.0"'


def counted(
    given: dict[str, Any], lines: list[str | bytes], *key: str
) -> tuple[dict[Any, int], dict[str, int]]:
    """Return the number of lines by key, and the number of lines not counted by reason."""
    config = one_input(given, {"name": "lines_by_key", "key": list(key)})
    counts = count_lines(config, lines)
    return keys(counts, "lines_by_key"), reasons(counts)


@pytest.mark.parametrize(
    "behind",
    [
        ' "-"',
        ' "198.51.100.3, 10.0.0.2"',
        " 312 0.004 [default-web-80] [] 10.1.0.9:8080 612 0.003 200 9f86d081884c7d65",
        ' 17 "web@docker" "http://10.0.0.2:80" 3ms',
        " 17",
        ' "-" rt=0.004 uct="0.000" ',
        ' "a \\"b\\" c"',
        "\t0.1",
    ],
)
@pytest.mark.parametrize("line_format", ["combined", "common"])
def test_fields_behind_the_user_agent_are_passed_over(line_format: str, behind: str) -> None:
    """Cases 05 and 06: further fields of nginx's main format, ingress-nginx, Traefik and users are
    ignored."""
    found = counted({"format": line_format}, [MAIN + behind], "status", "remote_addr", "path")
    assert found == ({("200", "192.0.2.7", "/a"): 1}, {})


def test_fields_behind_the_user_agent_are_no_part_of_it() -> None:
    found = counted({"format": "combined"}, [MAIN + ' "-"', MAIN + ' 17 "x"'], "user_agent")
    assert found == ({"Mozilla/5.0": 2}, {})


REST = '[07/Sep/2024:15:58:36 +0200] "GET /a HTTP/2.0" 302 360 "-" "curl/8"'
VHOST = "format:{}, looks like vhost_combined"
FORWARDED = "format:{}, looks like forwarded_combined"


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        ("shop.example:443 2001:db8::1 - -", VHOST),
        ("shop.example:443 192.0.2.7 - ann", VHOST),
        ("shop.example 192.0.2.7 - -", VHOST),
        ("shop.example client.example - ann", VHOST),
        ("[2001:db8::9]:443 192.0.2.7 - -", VHOST),
        ("10.0.0.1 shop.example 192.0.2.7 - -", VHOST),
        ("203.0.113.5, 10.0.0.1 - -", FORWARDED),
        ("203.0.113.5, 10.0.0.2, 10.0.0.9 - -", FORWARDED),
        ("203.0.113.5,10.0.0.1 - -", FORWARDED),
        ('"203.0.113.5, 10.0.0.1" - -', FORWARDED),
        ("2001:db8::1, 10.0.0.1 - -", FORWARDED),
        ("192.0.2.7:5123 - -", "format:{}"),
        ("(none) - -", "format:{}"),
    ],
)
@pytest.mark.parametrize("line_format", ["combined", "common"])
def test_a_field_in_front_makes_another_format(line_format: str, front: str, reason: str) -> None:
    """Cases 07 and 08: a line with one more field in front must not parse, because each column
    would get the text of its neighbour."""
    good = f"192.0.2.7 - - {REST}"
    found = counted({"format": line_format}, [f"{front} {REST}", good], "remote_addr", "user")
    assert found == ({("192.0.2.7", None): 1}, {reason.format(line_format): 1})


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("2001:db8::1 - -", ("2001:db8::1", None)),
        ("::ffff:192.0.2.7 - -", ("::ffff:192.0.2.7", None)),
        ("fe80::1%eth0 - -", ("fe80::1%eth0", None)),
        ("client_1.example - -", ("client_1.example", None)),
        ("- - -", (None, None)),
        ("unix: - -", ("unix:", None)),
        ("192.0.2.7 - Ann Lee", ("192.0.2.7", "Ann Lee")),
        ("192.0.2.7 - ann@example.org", ("192.0.2.7", "ann@example.org")),
        ("192.0.2.7 id ann", ("192.0.2.7", "ann")),
    ],
)
def test_a_client_is_an_address_or_a_name(front: str, expected: tuple[str | None, ...]) -> None:
    for line_format in ("combined", "common"):
        found = counted({"format": line_format}, [f"{front} {REST}"], "remote_addr", "user")
        assert found == ({expected: 1}, {})


def test_a_csv_with_a_header() -> None:
    """Case 15: the header of each file is not a row, and its names are the columns."""
    lines: list[str | bytes] = [
        "\ufeffid,when,who,note",
        "1,2024-09-07 15:58:36,ann,ok",
        '2,2024-09-07 15:58:37,bob,"two\nlines"',
        '3,2024-09-07 15:58:38,cy,"quote "" in"',
        '4,2024-09-07 15:58:39,di,5" disk',
        '"id","when", "who" ,"note"\r',
    ]
    given = {"format": "csv", "header": "id,when,who,note", "time": "when"}
    assert counted(given, lines, "who", "note", "time") == (
        {
            ("ann", "ok", "2024-09-07 15:58:36"): 1,
            ("bob", "two\nlines", "2024-09-07 15:58:37"): 1,
            ("cy", 'quote " in', "2024-09-07 15:58:38"): 1,
            ("di", '5" disk', "2024-09-07 15:58:39"): 1,
        },
        {},
    )


QUOTED = [
    r'"102","60","Open","I hope \"it\" works"',
    '"103","60","Closed","plain"',
    '"104","61","Open","x" ',
    '"105", "61","Open", "y"',
    """106,61,Open,it's 5" wide and 6" tall""",
]


def test_quotes_within_fields() -> None:
    """Case 15: quotes in fields that are escaped by a backslash, or are in an unquoted field."""
    given = {"format": "csv", "columns": {"state": "3 string", "note": "4 string"}}
    assert counted(given, list(QUOTED), "state", "note") == (
        {
            ("Open", 'I hope "it" works'): 1,
            ("Closed", "plain"): 1,
            ("Open", "x"): 1,
            ("Open", "y"): 1,
            ("Open", """it's 5" wide and 6" tall"""): 1,
        },
        {},
    )


@pytest.mark.parametrize(
    ("more", "line", "first", "second"),
    [
        ({}, r'"C:\","x"', "C:\\", "x"),
        ({}, r'"a \"",b', 'a "', "b"),
        ({}, '"","x"', None, "x"),
        ({}, '"a, b",c', "a, b", "c"),
        ({}, "'a, b',c", "'a", " b'"),
        ({"escape": "\\"}, r'"a\\b","C:\",x"', r"a\b", 'C:",x'),
        ({"quote": "none"}, '"a,b"', '"a', 'b"'),
        ({"quote": "none", "escape": "\\"}, r"a\,b,c", "a,b", "c"),
        ({"delimiter": "\t"}, 'a 5" disk\tb', 'a 5" disk', "b"),
        ({"delimiter": "|", "quote": "'"}, "'a|''b'|c", "a|'b", "c"),
        ({"delimiter": " "}, '"a b" c', "a b", "c"),
    ],
)
def test_signs_of_a_csv(more: dict[str, Any], line: str, first: str | None, second: str) -> None:
    given = {"format": "csv", "columns": {"a": "1 string", "b": "2 string"}, **more}
    assert counted(given, [line], "a", "b") == ({(first, second): 1}, {})


@pytest.mark.parametrize("line", ['"never closed,1', '"a" b,1', 'x, "a" and "b",1'])
def test_quotes_in_disorder_are_named(line: str) -> None:
    given = {"format": "csv", "columns": {"a": "1 string"}}
    assert counted(given, [line], "a") == ({}, {"format:csv, quotes in disorder": 1})


def test_a_row_of_another_length_than_the_header_is_refused_by_name() -> None:
    given = {"format": "csv", "header": "id,who"}
    found = counted(given, ["1,ann", "2,bob,more", "3", "id,who"], "who")
    assert found == (
        {"ann": 1},
        {"format:csv, another number of fields than the header": 2},
    )


def test_headers_of_several_lengths() -> None:
    given = {"format": "csv", "header": ["id,who", "id,when,who"], "columns": {"w": "who string"}}
    lines: list[str | bytes] = ["id,who", "1,ann", "id,when,who", "2,now,bob"]
    assert counted(given, lines, "w") == ({"ann": 1, "bob": 1}, {})


def test_comments_of_a_csv() -> None:
    given = {"format": "csv", "comment": "#", "columns": {"a": "1 string"}}
    assert counted(given, ["# made by x", "#", "1,2"], "a") == ({"1": 1}, {})


FIELDS = [
    "date time c-ip cs-method cs-uri-stem sc-status",
    "date time cs-method c-ip cs-uri-stem sc-status",
]


def test_fields_of_w3c_change_within_a_file() -> None:
    """Case 16: the fields change within a file. Lines of both kinds parse, no matter which header
    is before them."""
    lines: list[str | bytes] = [
        "#Software: Microsoft Internet Information Services 10.0",
        "2024-07-01 00:00:01 192.0.2.1 GET /a 200",
        "#Fields: date time cs-method c-ip cs-uri-stem sc-status",
        "2024-07-01 00:00:02 GET 192.0.2.1 /a 200\r",
        "2024-07-01\t00:00:03\tGET\t2001:db8::1\t/a\t404",
    ]
    given = {"format": "w3c", "header": FIELDS, "columns": {"ip": "c-ip string"}}
    assert counted(given, lines, "ip", "time", "sc_status") == (
        {
            ("192.0.2.1", "2024-07-01 00:00:01", "200"): 1,
            ("192.0.2.1", "2024-07-01 00:00:02", "200"): 1,
            ("2001:db8::1", "2024-07-01 00:00:03", "404"): 1,
        },
        {},
    )


def test_w3c_lines_that_no_header_or_two_fit_are_refused_by_name() -> None:
    given = {"format": "w3c", "header": ["date time x-a x-b", "date time x-b x-a"]}
    lines: list[str | bytes] = [
        "2024-07-01 00:00:01 a b",
        "2024-07-01 00:00:01 a",
        "#Fields: date time x-c",
        "#Fields:  date time  x-a x-b ",
    ]
    assert counted(given, lines, "x_a") == (
        {},
        {
            "format:w3c, more than one header fits": 1,
            "format:w3c, another number of fields than the header": 1,
            "format:w3c, a header of other fields": 1,
        },
    )


def test_w3c_quotes_and_hyphens() -> None:
    given = {"format": "w3c", "header": "date time c-ip cs(User-Agent) time-taken"}
    line = '2024-07-01 00:00:01 - "curl ""8"" x" 15'
    assert counted(given, [line], "c_ip", "cs_user_agent", "time_taken") == (
        {(None, 'curl "8" x', "15"): 1},
        {},
    )


SYSLOG = {
    '<34>1 2024-09-07T15:58:36.003Z host1 su - ID47 [ex@1 a="b\\]c" q="d"] \ufefffailed': (
        "host1", "su", None, "failed",
    ),
    "<13>Nov 28 10:00:00 host2 app[12]: hello": ("host2", "app", "12", "hello"),
    "Nov 28 10:00:00.123 host3 app: ms": ("host3", "app", None, "ms"),
    "Nov 28 2026 10:00:00 host4 app: year": ("host4", "app", None, "year"),
    "<189>Nov 28 2026 10:00:00: %ASA-6-302013: Built": (None, "%ASA-6-302013", None, "Built"),
    "Nov 28 10:00:00 host6 last message repeated 5 times": (
        "host6", None, None, "last message repeated 5 times",
    ),
    "2024-09-07T15:58:36.003+02:00 host7 app[1]: iso": ("host7", "app", "1", "iso"),
    "<34>1 2024-09-07T15:58:36.003Z - - - - - nothing": (None, None, None, "nothing"),
    "*Nov 28 10:00:00.123: %LINK-3-UPDOWN: Interface": (
        None, "%LINK-3-UPDOWN", None, "Interface",
    ),
    "Nov  8 10:00:00 host10 my app[3]: blank": ("host10", "my app", "3", "blank"),
    '<165>1 2024-09-07T15:58:36Z host11 evntslog - ID47 [a@1 b="c"][d@2 e="f"]': (
        "host11", "evntslog", None, "",
    ),
    "Nov 28 10:00:00 fe80::1 app: v6": ("fe80::1", "app", None, "v6"),
    # Neighbours.
    "Nov 28 10:00:00 app[12]: from /dev/log": (None, "app", "12", "from /dev/log"),
    "Nov 28 10:00:00 kernel: eth0: up": (None, "kernel", None, "eth0: up"),
    "<189>29: rtr1: *Nov 28 10:00:00.123 UTC: %SYS-5-CONFIG_I: by console": (
        "rtr1", "%SYS-5-CONFIG_I", None, "by console",
    ),
    "<166>Nov 28 2026 10:00:00 fw1 : %ASA-6-302014: Teardown": (
        "fw1", "%ASA-6-302014", None, "Teardown",
    ),
    "Nov 28 10:00:00 10.0.0.99 Use the BFG!": ("10.0.0.99", None, None, "Use the BFG!"),
    "Nov 28 10:00:00 h sshd[7]: message repeated 2 times: [ Failed]": (
        "h", "sshd", "7", "message repeated 2 times: [ Failed]",
    ),
    "Nov 28 10:00:00 h Google Chrome Helper[99]: x": ("h", "Google Chrome Helper", "99", "x"),
    "Nov 28 10:00:00 h postfix/smtpd[5]: connect from a[10.0.0.1]": (
        "h", "postfix/smtpd", "5", "connect from a[10.0.0.1]",
    ),
    "Nov 28 10:00:00 h see http://a/b[1]: it": ("h", None, None, "see http://a/b[1]: it"),
    "83 <34>1 2024-09-07T15:58:36Z h app 7 - - counted octets": (
        "h", "app", "7", "counted octets",
    ),
    "Nov 28 10:00:00 h": ("h", None, None, ""),
}  # fmt: skip


@pytest.mark.parametrize("line", SYSLOG)
def test_syslog_of_many_writers(line: str) -> None:
    """Case 18: the host is found or NULL. A word of the message must never become the program."""
    config = one_input({"format": "syslog"}, {"name": "c", "key": ["host", "program", "pid"]},
                       {"name": "m", "key": "message"})  # fmt: skip
    counts = count_lines(config, [line])
    *named, message = SYSLOG[line]
    assert not set(reasons(counts)) - {"time"}
    assert keys(counts, "c") == {tuple(named): 1}
    assert keys(counts, "m") == {message: 1}


def test_priority_message_id_and_structured_data_of_syslog() -> None:
    lines: list[str | bytes] = [
        '<165>1 2024-09-07T15:58:36Z h a - ID47 [x@1 b="c \\] d"] text',
        "<13>Nov 28 10:00:00 h app: x",
        "Nov 28 10:00:00 h app: x",
    ]
    names = ("facility", "severity", "message_id", "structured_data")
    assert counted({"format": "syslog"}, lines, *names[:3])[0] == {
        ("20", "5", "ID47"): 1,
        ("1", "5", None): 1,
        (None, None, None): 1,
    }
    assert counted({"format": "syslog"}, lines[:1], "structured_data")[0] == {
        '[x@1 b="c \\] d"]': 1
    }


CEF = [
    'CEF:0|Vendor|Prod|1.0|100|worm "stopped|10|src=10.0.0.1 msg=a b',
    r"CEF:0|Vendor|Prod|1.0|100|a \| b|7|src=10.0.0.2 msg=x",
]


def test_cef() -> None:
    """Case 28: CEF by the shipped format, and by the csv reader's options."""
    assert counted({"format": "cef"}, list(CEF), "severity", "name")[0] == {
        ("10", 'worm "stopped'): 1,
        ("7", "a | b"): 1,
    }
    given = {"format": "csv", "delimiter": "|", "quote": "none", "escape": "\\",
             "columns": {"sev": "7 string"}}  # fmt: skip
    assert counted(given, list(CEF), "sev") == ({"10": 1, "7": 1}, {})


def test_the_extension_of_cef() -> None:
    line = (
        r"<134>Nov 28 10:00:00 fw CEF:0|V|P|1|2|n\\|3|rt=1725724716000 msg=see http://x/?a=b and"
        r" c\=d  \\e\nf cs1Label=who cs1= src=10.0.0.1 request=http://y/?q=1&r=2"
    )
    columns = {name: f"{name} string" for name in ("msg", "cs1Label", "cs1", "src", "request")}
    given = {"format": "cef", "time": "rt", "columns": columns}
    assert counted(given, [line, "no cef", "CEF:0|a|b"], "msg", "cs1Label", "src") == (
        {("see http://x/?a=b and c=d  \\e\nf", "who", "10.0.0.1"): 1},
        {"format:cef": 2},
    )
    assert counted(given, [line], "request", "cs1", "time")[0] == {
        ("http://y/?q=1&r=2", "", "2024-09-07 15:58:36"): 1
    }


def test_logfmt_with_colours() -> None:
    """Case 29: keys and values do not include the codes for colours."""
    lines: list[str | bytes] = [
        "\x1b[36mINFO\x1b[0m[0000] start \x1b[36mlevel\x1b[0m=info ts=2024-09-07T15:58:36Z",
        "ts=2024-09-07T15:58:36Z level=\x1b[1;31merror\x1b[0m",
        "\ufefflevel=warn ts=2024-09-07T15:58:36Z",
        "level=a\x1bb ts=2024-09-07T15:58:36Z",
    ]
    given = {"format": "logfmt", "time": "ts", "columns": {"level": "level string"}}
    assert counted(given, lines, "level") == (
        {"info": 1, "error": 1, "warn": 1, "a\x1bb": 1},
        {},
    )


def test_odd_lines_of_json() -> None:
    """Case 33: JSON with control characters in texts, with nginx's escapes, or with byte order
    marks."""
    lines: list[str | bytes] = [
        '{"t":1725724716,"req":"GET /a"}',
        r'{"t":1725724716,"req":"GET /\x22b\x5Cc\x09\xC3\xA9"}',
        b'{"t":1725724716,"req":"caf\xe9"}',
        '{"t":1725724716,"req":"tab\there"}',
        '{"t":1725724716,"http.status":200,"req":"dots"}',
        '{"t":1725724716,"req":"x"}{"t":1725724716,"req":"y"}',
        '\ufeff{"t":1725724716,"req":"mark"}',
        r'{"t":1725724716,"req":"a \\x41"}',
        '\x1b[32m{"t":1725724716,"req":"green"}\x1b[0m',
        '{"t":1725724716,"req":"two\nlines"}',
    ]
    given = {"format": "json", "time": "t", "columns": {"req": "req string"}}
    assert counted(given, lines, "req") == (
        {
            "GET /a": 1,
            'GET /"b\\c\té': 1,
            "caf\ufffd": 1,
            "tab\there": 1,
            "dots": 1,
            "mark": 1,
            r"a \x41": 1,
            "green": 1,
            "two\nlines": 1,
        },
        {"format:json": 1},
    )


def test_group_names_of_other_languages() -> None:
    """Case 34: group names written as `(?P<name>` or `(?'name'`, and names with an underscore."""
    pattern = r"^(?P<remote_addr>\S+) (?'a_b'\S)(?P=a_b) (?<_x>\d)\k<_x> [(?P<no>]$"
    given = {"format": "regex", "pattern": pattern, "columns": {"x": "_x int"}}
    assert counted(given, ["10.0.0.1 zz 77 P"], "remote_addr", "a_b", "x") == (
        {("10.0.0.1", "z", "7"): 1},
        {},
    )
