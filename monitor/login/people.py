"""The people and the tokens that may use the page, as their files have them.

This module is pure. `millrace user --page` and `millrace token` write the files, and the monitor
reads them. A file has hashes only: of passwords with scrypt, of tokens with SHA-256. A token has
256 random bits, so guessing does not find it, and it needs no slow hash.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from monitor.login.passwords import PasswordHash

USERS_FILE, TOKENS_FILE = "users", "tokens"
VERSION = 1

TOKEN_PREFIX = "mill_"
TOKEN_BYTES = 32
_TOKEN = re.compile(rf"{TOKEN_PREFIX}([0-9a-f]{{{2 * TOKEN_BYTES}}})([0-9a-f]{{8}})")


class PageRole(StrEnum):
    """The roles: a viewer sees the pages, and an operator may also give orders."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Person:
    """A person who may use the page."""

    name: str
    role: PageRole
    password: PasswordHash


@dataclass(frozen=True, slots=True)
class ScriptToken:
    """A token of a script. `ends_at_ms` is None if it never ends."""

    name: str
    role: PageRole
    fingerprint: str = field(repr=False)
    ends_at_ms: int | None = None

    def has_ended(self, now_ms: int) -> bool:
        """Return True if the token is no longer valid."""
        return self.ends_at_ms is not None and now_ms >= self.ends_at_ms


def people_of(data: bytes) -> dict[str, Person]:
    """Parse the file of people. Raise ValueError."""
    return {
        row["name"]: Person(row["name"], PageRole(row["role"]), PasswordHash.parse(row["password"]))
        for row in _rows(data, ("name", "role", "password"))
    }


def people_data(people: Iterable[Person]) -> bytes:
    """Return the content of the file of people."""
    return _data(
        {"name": one.name, "role": one.role, "password": str(one.password)} for one in people
    )


def tokens_of(data: bytes) -> dict[str, ScriptToken]:
    """Parse the file of tokens. Raise ValueError."""
    return {
        row["name"]: ScriptToken(
            row["name"], PageRole(row["role"]), row["sha256"], row.get("ends_at_ms")
        )
        for row in _rows(data, ("name", "role", "sha256"))
    }


def tokens_data(tokens: Iterable[ScriptToken]) -> bytes:
    """Return the content of the file of tokens."""
    return _data(
        {
            "name": one.name,
            "role": one.role,
            "sha256": one.fingerprint,
            "ends_at_ms": one.ends_at_ms,
        }
        for one in tokens
    )


def token_text(drawn: bytes) -> str:
    """Return the text of a token from random bytes. The checksum lets scanners recognise tokens
    that were published by mistake."""
    body = drawn.hex()
    return f"{TOKEN_PREFIX}{body}{_checksum(body)}"


def fingerprint_of(text: str) -> str | None:
    """Return the fingerprint of a token; None if the text is not a token."""
    found = _TOKEN.fullmatch(text)
    if found is None or found[2] != _checksum(found[1]):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(f'{TOKEN_PREFIX}{body}'.encode()):08x}"


def _rows(data: bytes, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the rows of a file, each with these texts. Raise ValueError."""
    try:
        found = json.loads(data)
        if found["version"] != VERSION:
            raise ValueError(f"found version {found['version']!r}, expected {VERSION}")
        rows: list[dict[str, Any]] = found["rows"]
        for row in rows:
            end = row.get("ends_at_ms")
            if not all(isinstance(row[key], str) for key in texts) or not (
                end is None or isinstance(end, int)
            ):
                raise ValueError("found a row with another type of value")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("the file is incomplete or damaged") from error
    return rows


def _data(rows: Iterable[Mapping[str, object]]) -> bytes:
    return json.dumps({"version": VERSION, "rows": list(rows)}, indent=1).encode() + b"\n"
