r"""Text literals in users' expressions: their meaning by our rules, and by those of Spark's parser.

This module is pure. Spark's parser drops a backslash before a character that needs none, so a
pattern such as `'^/v\d+/'` would become `^/vd+/` and match other lines. By our rules, a backslash
is kept unless it begins one of a few escapes (decision 0113). `expression.quote_text` then writes
the literal so that Spark reads the same text.
"""

import re

_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)

# Spark's own rules (`SparkParserUtils.unescapeSQLString`); `\%` and `\_` stay as they are.
_SPARK_ESCAPES = {
    **_ESCAPES,
    "0": "\0",
    "b": "\b",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}
_SPARK_ESCAPED = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)


def literal_text(literal: str) -> str:
    r"""Return the text that a literal means by our rules.

    `\\`, `\'`, `\"`, `\n`, `\r`, `\t` and `\uXXXX` are the characters that SQL makes of them. A
    backslash before any other character is kept. In `r'…'` every backslash is kept.
    """
    content = _content(literal)
    if content is None:
        return literal[2:-1]
    return _ESCAPED.sub(lambda found: _of_escape(found[1], found[2]), content)


def literal_text_to_spark(literal: str) -> str:
    """Return the text that a literal means by the rules of Spark's parser."""
    content = _content(literal)
    if content is None:
        return literal[2:-1]

    def text(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        if code is not None:
            return _character(int(code, 16))
        if found[3] is not None:
            return chr(int(found[3], 8))
        return _SPARK_ESCAPES.get(found[4], found[4])

    return _SPARK_ESCAPED.sub(text, content)


def _content(literal: str) -> str | None:
    """Return the text between the quotes, with each doubled quote as one quote.

    None for a raw literal (`r'…'`), in which nothing is replaced.
    """
    if literal[0] in "rR":
        return None
    quote = literal[0]
    # A doubled quote is not escaped by the backslash before it: 'a\\''b' is a\'b.
    pieces = re.findall(rf"\\.|{quote}{quote}|[^\\{quote}]+", literal[1:-1], re.DOTALL)
    return "".join(quote if piece == quote * 2 else piece for piece in pieces)


def _of_escape(code: str | None, character: str | None) -> str:
    if code is not None:
        return chr(int(code, 16))
    assert character is not None
    return _ESCAPES.get(character, "\\" + character)


def _character(code: int) -> str:
    return chr(code) if code <= 0x10FFFF else "\ufffd"
