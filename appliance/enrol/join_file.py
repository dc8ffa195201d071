"""The join file: everything that a host needs to join a mill, in a file that can be pasted.

This module is pure. A join file has a first line with its kind and version, a sentence for people,
and lines of base64. The first four of their bytes are the CRC32 of the others, which are JSON. The
file has a secret, so no message and no `repr` contains its content.

The CRC32 finds damage, but anyone can write a join file. So `parse` accepts only names and
addresses that have no meaning as YAML, as a reference (`${…}`) or to a terminal.
"""

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

from protocol.security.scram import MECHANISMS, Mechanism

KIND = "collector"
VERSION = 1
MAGIC = "millrace-join-"

JOIN_BYTES_MAX = 256 << 10
"""The largest size of a join file. The CAs of a company take some kilobytes."""
CA_CHARS_MAX = 128 << 10
"""The most characters of the CAs in a join file. In base64 they take a third more."""

LINE_LENGTH = 76
_CRC_BYTES = 4
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"[A-Za-z0-9._:%\[\]-]+")
_ANY_TEXT = re.compile(r".+", re.DOTALL)

SENTENCE = "This file lets one host in, once. Keep it secret. On that host type: millrace join FILE"


class JoinFileFault(Exception):
    """A join file cannot be used. The text says why and what to do, and has no secret."""


@dataclass(frozen=True, slots=True)
class JoinFile:
    """The content of a join file of a collector."""

    cluster_id: str
    name: str
    group: str
    addresses: tuple[str, ...]
    """`host:port` of the listeners with logins, under all names of the mill."""
    ca: str | None
    """The CA of the brokers' certificates in PEM format; None: the CAs of the machine."""
    user: str
    mechanism: Mechanism
    secret: str = field(repr=False)
    ends_ms: int
    """The wall time in milliseconds at which the secret expires, by the clock of the brokers."""
    topic: str
    """A topic that the collector may write, for the example in its configuration file."""
    commit_interval_ms: int
    """The shortest time in milliseconds between two commits of the collector."""


def encode(join: JoinFile) -> str:
    """Return the text of a join file."""
    fields = {
        "cluster_id": join.cluster_id,
        "name": join.name,
        "group": join.group,
        "addresses": list(join.addresses),
        "ca": join.ca,
        "user": join.user,
        "mechanism": join.mechanism.sasl_name,
        "secret": join.secret,
        "ends_ms": join.ends_ms,
        "topic": join.topic,
        "commit_interval_ms": join.commit_interval_ms,
    }
    data = json.dumps(fields, separators=(",", ":")).encode()
    text = base64.b64encode(zlib.crc32(data).to_bytes(_CRC_BYTES, "big") + data).decode()
    lines = [text[at : at + LINE_LENGTH] for at in range(0, len(text), LINE_LENGTH)]
    return "\n".join([f"{MAGIC}{VERSION} {KIND}", SENTENCE, *lines, ""])


def parse(text: str) -> JoinFile:
    """Return the content of a join file. Raises JoinFileFault.

    Blank lines and spaces at the ends of lines are ignored, because a terminal or a mail can add
    them.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    _check_head(lines[0] if lines else "")
    try:
        data = base64.b64decode("".join(lines[2:]), validate=True)
    except (binascii.Error, ValueError):
        # Do not chain the error, because it could show a part of the content.
        raise _damaged() from None
    stated, data = data[:_CRC_BYTES], data[_CRC_BYTES:]
    if len(stated) < _CRC_BYTES or zlib.crc32(data).to_bytes(_CRC_BYTES, "big") != stated:
        raise _damaged()
    try:
        return _of_fields(json.loads(data))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise JoinFileFault(
            "the join file was written by another version of millrace: install the version of the"
            " mill on this host"
        ) from None


def check_time(join: JoinFile, now_ms: int, now_text: str) -> None:
    """Raise JoinFileFault if the join file has expired by this host's clock."""
    if now_ms >= join.ends_ms:
        raise JoinFileFault(
            f"the join file of {join.name} has expired (this host's clock says {now_text}): "
            f"make another one with `millrace enrol collector {join.name} --again`"
        )


def _check_head(line: str) -> None:
    """Raise JoinFileFault unless the first line is that of a join file that this version reads."""
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
    if kind != KIND:
        raise JoinFileFault(f"found a join file for {kind or 'nothing'}, expected {KIND}")


def _damaged() -> JoinFileFault:
    return JoinFileFault("the join file is cut or damaged: copy the whole file again")


def _of_fields(fields: dict[str, Any]) -> JoinFile:
    """Return the join file with these fields. Unknown fields are ignored."""
    addresses = tuple(_text(one, _ADDRESS) for one in fields["addresses"])
    if not addresses:
        raise ValueError("no addresses")
    return JoinFile(
        cluster_id=_text(fields["cluster_id"]),
        name=_text(fields["name"]),
        group=_text(fields["group"]),
        addresses=addresses,
        ca=None if fields["ca"] is None else _text(fields["ca"], _ANY_TEXT),
        user=_text(fields["user"]),
        mechanism=MECHANISMS[fields["mechanism"]],
        secret=_text(fields["secret"], _ANY_TEXT),
        ends_ms=_number(fields["ends_ms"]),
        topic=_text(fields["topic"]),
        commit_interval_ms=_number(fields["commit_interval_ms"]),
    )


def _text(value: object, expected: re.Pattern[str] = _NAME) -> str:
    if not isinstance(value, str) or not expected.fullmatch(value):
        raise TypeError("not such a text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or value <= 0:
        raise TypeError("not a positive number")
    return value
