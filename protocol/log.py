"""The log format of every part: one line per event, to standard error.

`2026-11-21T04:00:00.123Z INFO broker-1 partition opened topic=logs.access partition=0`

It uses only standard logging. A part calls `configure(part)` once. All other code uses
`logging.getLogger(__name__)` and passes structured values with `extra=fields(...)`. Text from
outside (client ids, topics, paths) is escaped here, so that no peer can forge a line or send
control codes to a terminal.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

VALUE_CHARACTERS_MAX = 2_000
LINE_CHARACTERS_MAX = 16_000

_FIELDS_ATTRIBUTE = "mill_fields"


def fields(**values: object) -> dict[str, object]:
    """Return values for the `extra` argument of a logging call.

    The log line has them as `key=value`.
    """
    return {_FIELDS_ATTRIBUTE: values}


def configure(part: str, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send the log of the whole process to `stream` (by default standard error), with the part's
    name.

    Handlers that were set before are replaced, so a second call does not write every line twice.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(LineFormatter(part))
    logging.basicConfig(level=level, handlers=[handler], force=True)


class LineFormatter(logging.Formatter):
    """Renders one record as exactly one line, including tracebacks."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time in UTC, level, part, message, then the fields in the given
        order."""
        moment = datetime.fromtimestamp(record.created, UTC)
        time_text = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
        pieces = [time_text, record.levelname, self.part, escape(record.getMessage())]
        values = getattr(record, _FIELDS_ATTRIBUTE, None)
        if isinstance(values, dict):
            pieces.extend(f"{key}={quote(str(value))}" for key, value in values.items())
        if record.exc_info and record.exc_info[1] is not None:
            pieces.append(f"traceback={_quoted(escape(self.formatException(record.exc_info)))}")
        line = " ".join(pieces)
        return line if len(line) <= LINE_CHARACTERS_MAX else line[:LINE_CHARACTERS_MAX] + "…"


def escape(text: str) -> str:
    """Return the text with all unprintable characters escaped (`\\n`, `\\x1b`, `\\u202e`)."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def quote(value: str) -> str:
    """Return a value for the text after `key=`: escaped, shortened, and quoted if needed."""
    if len(value) > VALUE_CHARACTERS_MAX:
        value = value[:VALUE_CHARACTERS_MAX] + "…"
    escaped = escape(value)
    if escaped and not any(character in ' "=' for character in escaped):
        return escaped
    return _quoted(escaped)


def _quoted(escaped: str) -> str:
    return '"' + escaped.replace('"', '\\"') + '"'
