"""The value that a literal in an expression has."""

import pytest

from stream.config.expression import quote_text
from stream.config.literals import literal_text, literal_text_to_spark


@pytest.mark.parametrize(
    ("literal", "text", "to_spark"),
    [
        (r"'^/v\d+/'", r"^/v\d+/", "^/vd+/"),
        (r"'^/v\\d+/'", r"^/v\d+/", r"^/v\d+/"),
        (r"'\.js$'", r"\.js$", ".js$"),
        (r"'\berror\b'", r"\berror\b", "\berror\b"),
        (r"'a\tb\nc'", "a\tb\nc", "a\tb\nc"),
        (r"'it\'s'", "it's", "it's"),
        ("'it''s'", "it's", "it's"),
        ('"say ""x"""', 'say "x"', 'say "x"'),
        (r"'\\''x'", r"\'x", r"\'x"),
        (r"'100\%'", r"100\%", r"100\%"),
        (r"'\001'", r"\001", "\x01"),
        (r"'\1'", r"\1", "1"),
        (r"'\u0041\U00000042'", r"A\U00000042", "AB"),
        (r"r'\d\'", "\\d\\", "\\d\\"),
        (r'R"\\"', r"\\", r"\\"),
        ("''", "", ""),
    ],
)
def test_meanings(literal: str, text: str, to_spark: str) -> None:
    assert (literal_text(literal), literal_text_to_spark(literal)) == (text, to_spark)


@pytest.mark.parametrize("text", ["", "\\", "'", "\0001", "a\nb\rc", "\\d", "''", '"', "\\'"])
def test_a_quoted_text_means_itself(text: str) -> None:
    assert literal_text(quote_text(text)) == text
    assert literal_text_to_spark(quote_text(text)) == text
