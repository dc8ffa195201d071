"""The literal patterns that expressions contain."""

import pytest

from stream.config.patterns import PatternKind, glob_hint, like_fault, literal_patterns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"path rlike '^/v\d+/'", [(r"^/v\d+/", 12, "path")]),
        (r"path NOT RLIKE ('a' 'b')", [("ab", 17, "path")]),
        ("not lower(path) regexp 'x' and status = 1", [("x", 24, "lower(path)")]),
        ("rlike(path, 'x')", [("x", 13, "path")]),
        ("not rlike(path, 'x')", [("x", 17, "path")]),
        ("regexp_like(concat(path, ','), ('x'))", [("x", 33, "concat(path, ',')")]),
        (
            "split(split(path, 'a')[0], 'b')[1] = 'c'",
            [("a", 19, "path"), ("b", 28, "split(path, 'a')[0]")],
        ),
        ("split(path, '/')[1] rlike 'v'", [("/", 13, "path"), ("v", 27, "split(path, '/')[1]")]),
        ("regexp_replace(path, '[0-9]+', ':id') = '/u/:id'", [("[0-9]+", 22, "path")]),
        ("path || user rlike 'x'", [("x", 20, None)]),
        ("path rlike user", []),
        ("path rlike concat('a', user)", []),
        ("path rlike 'a' || user", []),
        ("case when path rlike 'a' then 1 else 0 end = 1", [("a", 22, "path")]),
        ("(status = 1) and (path) rlike 'a'", [("a", 31, "(path)")]),
        ("exists(split(path, ','), x -> x rlike 'a')", [(",", 20, "path"), ("a", 39, "x")]),
        ("path = 'a'", []),
    ],
)  # fmt: skip
def test_regular_expressions(text: str, expected: list[tuple[str, int, str | None]]) -> None:
    found = literal_patterns(text)
    assert [(one.text, one.position, one.subject) for one in found] == expected
    assert {one.kind for one in found} <= {PatternKind.REGEX}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path like '/a%'", [("/a%", "\\")]),
        ("path not like all ('/a%', '/b%')", [("/a%", "\\"), ("/b%", "\\")]),
        ("path ilike any ('/a%')", [("/a%", "\\")]),
        ("path like '/a|%' escape '|'", [("/a|%", "|")]),
        ("like(path, 'a_')", [("a_", "\\")]),
    ],
)
def test_patterns_of_like(text: str, expected: list[tuple[str, str]]) -> None:
    found = literal_patterns(text)
    assert [(one.text, one.escape) for one in found] == expected
    assert {one.kind for one in found} == {PatternKind.LIKE}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (r"path like '100\%'", None),
        (r"path like 'a\\\\b'", None),
        (r"path like 'C:\Users%'", "before 'U'"),
        (r"path like 'a\\'", "at the end"),
        (r"path like 'a\b' escape '|'", None),
        ("path like 'a|' escape '|'", "at the end"),
    ],
)
def test_escapes_of_like(text: str, fault: str | None) -> None:
    (pattern,) = literal_patterns(text)
    found = like_fault(pattern)
    assert (found is None) if fault is None else (found is not None and fault in found[0])


def test_a_glob_is_shown_as_a_regular_expression() -> None:
    assert glob_hint("*.js") == r": for all that the glob *.js matches, write '\.js$'"
    assert glob_hint("a*") == ""
