"""Log lines: every event gives exactly one line, no matter which characters its values have."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from protocol.log import LINE_CHARACTERS_MAX, VALUE_CHARACTERS_MAX, configure, fields, quote


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    text = io.StringIO()
    configure("broker-1", stream=text)
    yield text
    root.handlers[:] = handlers
    root.setLevel(level)


def test_line_has_time_level_part_message_and_fields(stream: io.StringIO) -> None:
    logging.getLogger("x").info("opened %s", "log", extra=fields(topic="a b", partition=0))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO broker-1 opened log"
        r' topic="a b" partition=0\n',
        stream.getvalue(),
    )


def test_a_second_configure_does_not_double_lines(stream: io.StringIO) -> None:
    configure("broker-1", stream=stream)
    logging.getLogger("x").warning("once")
    assert stream.getvalue().count("once") == 1


def test_outside_text_cannot_forge_a_line_or_colour_a_terminal(stream: io.StringIO) -> None:
    logging.getLogger("x").info("bad\nname", extra=fields(client="a\r\n\x1b[31m\u202e"))
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "bad\\nname" in line
    assert "client=a\\r\\n\\x1b[31m\\u202e" in line


def test_a_traceback_stays_on_the_line(stream: io.StringIO) -> None:
    try:
        raise ValueError("what\nelse")
    except ValueError:
        logging.getLogger("x").exception("failed")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert 'traceback="Traceback' in line
    assert "ValueError: what\\nelse" in line


def test_values_and_lines_are_bounded(stream: io.StringIO) -> None:
    logging.getLogger("x").info("m", extra=fields(**{f"k{i}": "v" * 5000 for i in range(20)}))
    assert len(stream.getvalue()) <= LINE_CHARACTERS_MAX + 2
    assert len(quote("v" * 5000)) == VALUE_CHARACTERS_MAX + 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [("plain", "plain"), ("", '""'), ('say "x"', '"say \\"x\\""'), ("a=b", '"a=b"')],
)
def test_quote(value: str, expected: str) -> None:
    assert quote(value) == expected
