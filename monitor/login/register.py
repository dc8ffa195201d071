"""Reads the files of people and tokens, and reads them again when they change.

Every call looks at the file on the disk, so a change applies to the next request. If a file is
missing or damaged, there are no people or no tokens: the page stays shut.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from monitor.login.people import (
    TOKENS_FILE,
    USERS_FILE,
    Person,
    ScriptToken,
    people_of,
    tokens_of,
)
from protocol.log import fields
from protocol.settling import Signature, signature_of

T = TypeVar("T")

logger = logging.getLogger(__name__)


class WatchedFile(Generic[T]):
    """The rows of one file, by name. The file is only ever replaced as a whole."""

    def __init__(self, path: Path, parse: Callable[[bytes], dict[str, T]]) -> None:
        self._path = path
        self._parse = parse
        self._known: Signature | None = None
        self._rows: dict[str, T] = {}

    def rows(self) -> dict[str, T]:
        """Return the rows as they are on the disk now."""
        signature = signature_of(self._path)
        if signature != self._known:
            self._known = signature
            self._rows = {} if signature is None else self._read()
        return self._rows

    def _read(self) -> dict[str, T]:
        try:
            return self._parse(self._path.read_bytes())
        except (OSError, ValueError) as error:
            logger.error(
                "the file cannot be read, so its logins are refused",
                extra=fields(file=self._path, why=error),
            )
            if isinstance(error, OSError):
                # Read the file again at the next request, because the reason can pass.
                self._known = None
            return {}


class Register:
    """The people and the tokens in the monitor's folder of secrets."""

    def __init__(self, folder: Path) -> None:
        self._people = WatchedFile(folder / USERS_FILE, people_of)
        self._tokens = WatchedFile(folder / TOKENS_FILE, tokens_of)

    @property
    def people(self) -> dict[str, Person]:
        """The people by name."""
        return self._people.rows()

    def token(self, fingerprint: str) -> ScriptToken | None:
        """Return the token with this fingerprint; None if there is none."""
        found = self._tokens.rows().values()
        return next((one for one in found if one.fingerprint == fingerprint), None)
