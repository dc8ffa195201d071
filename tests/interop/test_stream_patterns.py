"""Patterns match as the user typed them, and the dry run shows their matches."""

from typing import Any

import pytest

from stream.config.settings import StreamSection
from stream.pattern_samples import pattern_samples
from tests.interop.stream_spark import count_lines, frame, keys, one_input, spark

pytestmark = pytest.mark.live


def line_of(path: str) -> str:
    return f'192.0.2.7 - - [07/Sep/2024:15:58:36 +0000] "GET {path} HTTP/1.1" 200 1 "-" "x"'


PATHS = ["/v1/a", "/v2/b", "/vd/c", "/a.js", "/axjs", r"/back\slash", "/100%", "/100x", "/a-b"]


def counted(where: str) -> list[str]:
    """Return the paths that pass a filter."""
    config = one_input({"format": "combined"}, {"name": "m", "key": "path", "where": where})
    counts = count_lines(config, map(line_of, PATHS))
    return [path for path in PATHS if path in keys(counts, "m")]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (r"path rlike '^/v\d+/'", ["/v1/a", "/v2/b"]),
        (r"path rlike '^/v\\d+/'", ["/v1/a", "/v2/b"]),
        (r"path rlike r'^/v\d+/'", ["/v1/a", "/v2/b"]),
        (r'path rlike "^/v\d+/"', ["/v1/a", "/v2/b"]),
        (r"path rlike '\.js$'", ["/a.js"]),
        (r"path rlike '\bb\b'", ["/v2/b", "/a-b"]),
        (r"regexp_like(path, '^/v\d')", ["/v1/a", "/v2/b"]),
        (r"regexp_extract(path, '^/v(\d+)/', 1) = '2'", ["/v2/b"]),
        (r"regexp_replace(path, '\d+', 'N') = '/vN/a'", ["/v1/a"]),
        (r"split(path, '\.')[1] = 'js'", ["/a.js"]),
        (r"path rlike '\\\\'", [r"/back\slash"]),
        (r"path rlike r'\\'", [r"/back\slash"]),
        (r"path like '%\\\\%'", [r"/back\slash"]),
        (r"path like '/100\%'", ["/100%"]),
        (r"path = '/back\slash'", [r"/back\slash"]),
        (r"path = '/back\\slash'", [r"/back\slash"]),
        (r"exists(split(path, '/'), part -> part rlike '^v\d$')", ["/v1/a", "/v2/b"]),
        (r"regexp_count(path, '\d') = 3", ["/100%", "/100x"]),
        (r"path rlike '(.)\1'", ["/100%", "/100x"]),
    ],
)
def test_a_backslash_means_what_was_typed(where: str, expected: list[str]) -> None:
    """Case 12: Spark's SQL parser unescapes string literals (apache/spark#17736, SPARK-20399)."""
    assert counted(where) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (r"regexp_extract(path, '(\d+)', 1)", {"1", "2", "100", ""}),
        (r"concat('\d', left(path, 1))", {r"\d/"}),
        (r"'tab\there'", {"tab\there"}),
        ("'it''s'", {"it's"}),
    ],
)
def test_literals_of_a_value_too(value: str, expected: set[str]) -> None:
    where = " OR ".join(f"({value}) = {text!r}" for text in sorted(expected) if "'" not in text)
    given: dict[str, Any] = {"name": "m", "measure": "unique", "value": value}
    counts = count_lines(one_input({"format": "combined"}, given), map(line_of, PATHS))
    (row,) = counts.rows
    assert row.count == len(PATHS), where


def test_the_dry_run_shows_what_each_pattern_finds() -> None:
    """Case 13: the user meant a pattern as a glob. The dry run shows that it matches other
    texts."""
    where = (
        r"path rlike '^/v\d+/' OR path like '/100\%' OR exists(split(path, '/'), x -> x rlike 'c')"
    )
    config = one_input(
        {"format": "combined"},
        {"name": "m", "where": where},
        {"name": "u", "measure": "unique", "value": r"regexp_extract(lower(path), 'a.*s', 0)"},
    )
    section = StreamSection.model_validate(config)
    found = pattern_samples(spark(), section, "t", frame(map(line_of, PATHS)))
    assert [(one.metric, one.key, one.pattern, one.lines, one.found) for one in found] == [
        ("m", "where", r"^/v\d+/", 2, ("/v1/", "/v2/")),
        ("m", "where", r"/100\%", 1, ("/100%",)),
        ("m", "where", "/", len(PATHS), ("/",)),
        ("u", "value", "a.*s", 3, ("a.js", "axjs", r"ack\slas")),
    ]
    assert str(found[0]) == r"where: pattern '^/v\\d+/' fits 2 lines, such as '/v1/', '/v2/'"
