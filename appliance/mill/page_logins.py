"""The files of the people and tokens that may use the page: `users` and `tokens` of the monitor.

A running monitor notices a changed file at the next request. Two commands at the same time change a
file one after the other.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from appliance.errors import Failure
from appliance.machine.files import PRIVATE, write_atomically
from appliance.mill.home import Home
from appliance.mill.parts import MONITOR
from monitor.login.passwords import SALT_BYTES, PasswordHash
from monitor.login.people import (
    TOKEN_BYTES,
    TOKENS_FILE,
    USERS_FILE,
    PageRole,
    Person,
    ScriptToken,
    fingerprint_of,
    people_data,
    people_of,
    token_text,
    tokens_data,
    tokens_of,
)

LOCK_FILE = "logins.lock"

Row = TypeVar("Row", Person, ScriptToken)


class LoginFileFault(Failure):
    """Raised when a file of people or tokens cannot be read or written. The text says why."""


def people(home: Home) -> dict[str, Person]:
    """Return the people who may use the page, by name. Raises LoginFileFault."""
    return _read(home.part_secrets(MONITOR) / USERS_FILE, people_of)


def tokens(home: Home) -> dict[str, ScriptToken]:
    """Return the tokens of scripts, by name. Raises LoginFileFault."""
    return _read(home.part_secrets(MONITOR) / TOKENS_FILE, tokens_of)


@contextmanager
def changed_people(home: Home) -> Iterator[dict[str, Person]]:
    """Let the block change the people, and write the file after it. Raises LoginFileFault."""
    with _locked(home) as folder:
        found = people(home)
        yield found
        _write(folder / USERS_FILE, people_data(_sorted(found)))


@contextmanager
def changed_tokens(home: Home) -> Iterator[dict[str, ScriptToken]]:
    """Let the block change the tokens, and write the file after it. Raises LoginFileFault."""
    with _locked(home) as folder:
        found = tokens(home)
        yield found
        _write(folder / TOKENS_FILE, tokens_data(_sorted(found)))


def new_person(name: str, role: PageRole, password: str) -> Person:
    """Return a person with a new hash of the password."""
    return Person(name, role, PasswordHash.of(password, secrets.token_bytes(SALT_BYTES)))


def new_token(name: str, role: PageRole, ends_at_ms: int | None) -> tuple[str, ScriptToken]:
    """Return the text of a new token, and the token as its file has it."""
    text = token_text(secrets.token_bytes(TOKEN_BYTES))
    fingerprint = fingerprint_of(text)
    assert fingerprint is not None, "token_text makes tokens"
    return text, ScriptToken(name, role, fingerprint, ends_at_ms)


@contextmanager
def _locked(home: Home) -> Iterator[Path]:
    """Yield the folder of the files, which no other command changes during the block."""
    folder = home.part_secrets(MONITOR)
    if not folder.is_dir():
        raise LoginFileFault(f"{folder} is missing: `./millrace init` makes it")
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, PRIVATE)
    except OSError as error:
        raise LoginFileFault(f"{folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def _read(path: Path, parse: Callable[[bytes], dict[str, Row]]) -> dict[str, Row]:
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LoginFileFault(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        # Do not chain the error, because it can contain a hash.
        raise LoginFileFault(
            f"{path} is damaged; move it away, and make the people or tokens again"
        ) from None


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data, mode=PRIVATE)
        owner = path.parent.stat()
        if path.stat().st_uid != owner.st_uid:
            os.chown(path, owner.st_uid, owner.st_gid)
    except OSError as error:
        raise LoginFileFault(f"{path} cannot be written: {error.strerror}") from error


def _sorted(rows: Mapping[str, Row]) -> Iterable[Row]:
    return [rows[name] for name in sorted(rows)]
