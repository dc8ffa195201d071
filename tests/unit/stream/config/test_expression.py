"""Expressions: which words are columns, and which faults are found without a JVM."""

import pytest

from stream.config.expression import (
    ExpressionFault,
    bare_column,
    column_tokens,
    quote_text,
    reads_otherwise_in_spark,
    spark_sql,
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
    renamed = spark_sql(
        "path = 'path' AND exists(array(1), status -> status = 1) AND `Bytes` > 1 -- path",
        {"path": "a.path", "bytes": "a.bytes", "status": "a.status"},
    )
    assert renamed.text == (
        "`a.path` = 'path' AND exists(array(1), status -> status = 1) AND `a.bytes` > 1"
    )


def test_literals_are_written_so_that_spark_reads_what_they_mean() -> None:
    sql = spark_sql(r"""path RLIKE '^/v\d+/\\w' AND user = "it's" """, {"path": "p", "user": "u"})
    assert sql.text == r"""`p` RLIKE '^/v\\d+/\\w' AND `u` = 'it\'s'"""


def test_a_place_in_sparks_text_is_one_in_the_users() -> None:
    text = r"path = '\d\d' /* the path */ AND stauts"
    sql = spark_sql(text, {"path": "input.path", "stauts": "s"})
    for word in ("=", "AND"):
        assert sql.place(sql.text.index(word)) == text.index(word)
    assert sql.place(sql.text.index("`s`")) == text.index("stauts")
    assert text[sql.place(sql.text.index("\\\\d"))] in r"'\d"
    assert sql.place(0) == 0


@pytest.mark.parametrize(
    ("text", "otherwise"),
    [
        (r"path rlike '^/v\d'", True),
        (r"path rlike '^/v\\d'", False),
        (r"path rlike r'^/v\d'", False),
        (r"path like '100\%'", False),
        ("path = 'it''s'", False),
    ],
)
def test_expressions_that_change_their_meaning_are_known(text: str, otherwise: bool) -> None:
    assert reads_otherwise_in_spark(text) is otherwise


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("lowr(path) = 'a'", "unknown function lowr() at character 1", "did you mean lower?"),
        ("status > 1 and regex_like(path, 'a')", "unknown function regex_like()", "regexp_like?"),
        ("sum(bytes) > 5", "sum(), which is over many lines", "measure: sum"),
        ("explode(array(true))", "unknown function explode()", "docs/reference/functions.md"),
        ("time > TIMESTAMP 'now'", "'now', which depends on the day", "a date or a time"),
        ("time > cast('Today ' as date)", "'Today ', which depends on the day", "a date"),
        ("date('yesterday') < time", "'yesterday', which depends", "a date"),
        ("row_number() over (order by time) = 1", "unknown function row_number()", "functions.md"),
        ("any(status > 1)", "unknown function any()", "functions.md"),
        ("status in (select 1)", "select at character 12", "over the columns of one line"),
        ("exists (select 1)", "select at character 9", "over the columns of one line"),
    ],
)
def test_functions_that_are_not_listed(text: str, found: str, expected: str) -> None:
    problem = unknown_columns(text, COLUMNS)
    assert problem is not None
    assert problem.found.startswith(found)
    assert expected in problem.expected


@pytest.mark.parametrize(
    "text",
    [
        "status in (1, 2) and not (path like ('/a%')) or (path rlike ('x'))",
        "path like any ('/a%', '/b%') and rlike(path, 'a') and not ilike(path, 'b')",
        "case when (status = 1) then (bytes) else (2) end > bytes div (2)",
        "cast(bytes as decimal(10, 2)) > 1 and bytes::decimal(5,1) < 3",
        "LOWER(path) = 'a' and Date(time) = date",
        "path between ('a') and ('b') and status is not null",
        "path = 'now' and concat('today', path) = 'x' and lower('now') = path",
        "map('a', 1)['a'] = 1 and if(exists(array(1), x -> (x > 0)), true, false)",
    ],
)
def test_operators_before_parentheses_are_no_functions(text: str) -> None:
    assert unknown_columns(text, COLUMNS) is None


def test_an_unclosed_comment_is_no_expression() -> None:
    with pytest.raises(ExpressionFault):
        column_tokens("/* status", ["status"])


def test_quoted_text_escapes_what_sql_would_read() -> None:
    assert quote_text("a'b\\c\n") == r"'a\'b\\c\n'"
