"""The form of the files that carry secrets from the mill to another host.

This module is pure. A file has a first line with its kind and version, a sentence for people, and
lines of base64. The first four of their bytes are the CRC32 of the others, which are JSON. No
message contains anything of the content, because it is secret.
"""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

VERSION = 1
MAGIC = "millrace-join-"

JOIN_BYTES_MAX = 256 << 10
"""The largest size of a join file. The CAs of a company take some kilobytes."""

LINE_LENGTH = 76
_CRC_BYTES = 4
_KIND = re.compile(r"[a-z]{1,32}")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
ANY_TEXT = re.compile(r".+", re.DOTALL)


class JoinFileFault(Exception):
    """A join file cannot be used. The text says why and what to do, and has no secret."""


def seal(kind: str, sentence: str, fields: Mapping[str, Any]) -> str:
    """Return the text of a file."""
    data = json.dumps(fields, separators=(",", ":")).encode()
    text = base64.b64encode(zlib.crc32(data).to_bytes(_CRC_BYTES, "big") + data).decode()
    lines = [text[at : at + LINE_LENGTH] for at in range(0, len(text), LINE_LENGTH)]
    return "\n".join([f"{MAGIC}{VERSION} {kind}", sentence, *lines, ""])


def kind_of(text: str) -> str:
    """Return the kind of a file, from its first line. Raises JoinFileFault unless this version
    reads such files."""
    lines = _lines(text)
    line = lines[0] if lines else ""
    version, _, kind = line.removeprefix(MAGIC).partition(" ")
    if not line.startswith(MAGIC) or not version.isdecimal():
        raise JoinFileFault(
            f"this is no join file: its first line does not begin with {MAGIC!r}; "
            "`millrace enrol collector NAME` writes one"
        )
    if version != str(VERSION):
        raise JoinFileFault(
            f"found a join file of version {version}, expected {VERSION}: install the version of"
            " the mill on this host"
        )
    return kind if _KIND.fullmatch(kind) else ""


def unseal(text: str) -> Any:
    """Return the fields of a file. Raises JoinFileFault if it is damaged, and ValueError if its
    content is not JSON.

    Blank lines and spaces at the ends of lines are ignored, because a terminal or a mail can add
    them.
    """
    try:
        data = base64.b64decode("".join(_lines(text)[2:]), validate=True)
    except (binascii.Error, ValueError):
        # Do not chain the error, because it could show a part of the content.
        raise _damaged() from None
    stated, data = data[:_CRC_BYTES], data[_CRC_BYTES:]
    if len(stated) < _CRC_BYTES or zlib.crc32(data).to_bytes(_CRC_BYTES, "big") != stated:
        raise _damaged()
    return json.loads(data)


def wrong_kind(found: str, expected: str) -> JoinFileFault:
    """Return the fault of a file of another kind."""
    return JoinFileFault(f"found a join file for {found or 'nothing'}, expected {expected}")


def of_another_version() -> JoinFileFault:
    """Return the fault of a file whose fields this version does not understand."""
    return JoinFileFault(
        "the join file was written by another version of millrace: install the version of the"
        " mill on this host"
    )


def text_in(value: object, expected: re.Pattern[str] = _NAME) -> str:
    """Return a field that must be such a text. Raises TypeError."""
    if not isinstance(value, str) or not expected.fullmatch(value):
        raise TypeError("not such a text")
    return value


def number_in(value: object) -> int:
    """Return a field that must be a positive number. Raises TypeError."""
    if not isinstance(value, int) or value <= 0:
        raise TypeError("not a positive number")
    return value


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _damaged() -> JoinFileFault:
    return JoinFileFault("the join file is cut or damaged: copy the whole file again")
