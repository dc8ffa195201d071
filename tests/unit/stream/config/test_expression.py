"""Expressions: which words are columns, and which faults are found without a JVM."""

import pytest

from stream.config.expression import (
    ExpressionFault,
    bare_column,
    column_tokens,
    quote_text,
    rename_columns,
    unknown_columns,
)

COLUMNS = ["status", "path", "bytes", "user", "time", "date"]


def names(text: str) -> list[str]:
    return [token.name for token in column_tokens(text, COLUMNS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status >= 500", ["status"]),
        ("STATUS>=500 AND `path` LIKE '%status%'", ["STATUS", "path"]),
        ("path = \"bytes\" or path = 'it''s'", ["path", "path"]),
        ("CASE WHEN status BETWEEN 200 AND 299 THEN 1 ELSE 0 END", ["status"]),
        ("cast(bytes AS double) / 1e3", ["bytes"]),
        ("try_cast(path as decimal(10,2))", ["path"]),
        ("bytes::double", ["bytes"]),
        ("length(path) > 10 -- status of it\n", ["path"]),
        ("/* bytes */ status IS NOT NULL", ["status"]),
        ("exists(split(path, '/'), x -> x = 'admin')", ["path"]),
        ("aggregate(array(1), 0, (acc, x) -> acc + x + status)", ["status"]),
        ("time > TIMESTAMP '2026-08-01 00:00:00'", ["time"]),
        ("time > DATE '2026-08-01'", ["time"]),
        ("date = '2026-08-01'", ["date"]),
        ("time + INTERVAL 5 MINUTES > time", ["time", "time"]),
        ("extract(HOUR FROM time) = 3", ["time"]),
        ("hour(time) < 6", ["time"]),
        ("status IN (500, 502, 503L)", ["status"]),
        ("trim(BOTH '/' FROM path) <=> user", ["path", "user"]),
        ("path RLIKE '^/api/(v1|v2)/'", ["path"]),
        ("`user` = 'root'", ["user"]),
    ],
)
def test_finds_the_columns(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("stauts >= 500", "unknown column stauts at character 1", "did you mean status"),
        ("status >= 500 and nothing", "unknown column nothing at character 19", "one of status"),
        (
            "status >= 500 and path = 'x",
            "a ' that is never closed at character 26",
            "closing quote",
        ),
        ("status >= §", "'§' at character 11", "an SQL expression"),
        ("", "nothing at character 1", "an SQL expression"),
        ("access.status > 1", "unknown column access", "one of"),
        ("path.host = 'x'", "`.host` at character 6", "plain column names"),
        ("rand() < 0.1", "rand() at character 1", "nothing but the line"),
        ("time > now()", "now() at character 8", "nothing but the line"),
        ("unix_timestamp() > 5", "unix_timestamp()", "nothing but the line"),
        ("current_date = date", "current_date", "over the columns of one line"),
        ("status = (select 1)", "select at character 11", "over the columns of one line"),
    ],
)
def test_faults_say_what_and_where(text: str, found: str, expected: str) -> None:
    problem = unknown_columns(text, COLUMNS)
    assert problem is not None
    assert problem.found.startswith(found)
    assert expected in problem.expected


def test_unix_timestamp_of_a_column_is_fine() -> None:
    assert names("unix_timestamp(time) > 5") == ["time"]


def test_a_bare_column_is_told_from_an_expression() -> None:
    assert bare_column(" Status ", COLUMNS) == "status"
    assert bare_column("`bytes`", COLUMNS) == "bytes"
    assert bare_column("status + 1", COLUMNS) is None
    assert bare_column("'status'", COLUMNS) is None
    assert bare_column("nothing", COLUMNS) is None


def test_renaming_touches_columns_alone() -> None:
    renamed = rename_columns(
        "path = 'path' AND exists(array(1), status -> status = 1) AND `Bytes` > 1 -- path",
        {"path": "a.path", "bytes": "a.bytes", "status": "a.status"},
    )
    assert renamed == (
        "`a.path` = 'path' AND exists(array(1), status -> status = 1) AND `a.bytes` > 1 -- path"
    )


def test_an_unclosed_comment_is_no_expression() -> None:
    with pytest.raises(ExpressionFault):
        column_tokens("/* status", ["status"])


def test_quoted_text_escapes_what_sql_would_read() -> None:
    assert quote_text("a'b\\c\n") == r"'a\'b\\c\n'"
