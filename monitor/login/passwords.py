"""Hashes of passwords with scrypt (RFC 7914).

This module is pure: the salt is an argument. One hash takes about half a second and 32 MiB, so that
a stolen file of hashes does not give away passwords that are hard to guess. `checking` hashes in a
thread.
"""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Self

SALT_BYTES = 16
KEY_BYTES = 32
COST = (15, 8, 3)
"""log2 of n, then r and p: the costs of new hashes."""

MEMORY_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The hash of a password, with the costs and the salt that it was made with."""

    log_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes, cost: tuple[int, int, int] = COST) -> Self:
        """Hash a password."""
        return cls(*cost, salt, _derive(password, salt, *cost))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a hash. Raise ValueError."""
        kind, log_n, r, p, salt, key = text.split("$")
        found = cls(int(log_n), int(r), int(p), bytes.fromhex(salt), bytes.fromhex(key))
        memory = (1 << max(0, min(found.log_n, 64))) * found.r * 128
        if kind != "scrypt" or found.log_n < 1 or not 0 < memory <= MEMORY_BYTES_MAX:
            raise ValueError("expected scrypt$log2(n)$r$p$salt$key")
        return found

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"scrypt${self.log_n}${self.r}${self.p}${self.salt.hex()}${self.key.hex()}"

    def __repr__(self) -> str:
        """Return a text without the key, for logs."""
        return f"PasswordHash(log_n={self.log_n}, r={self.r}, p={self.p})"

    def matches(self, password: str) -> bool:
        """Return whether this is the hash of the password. The check takes the same time for a
        wrong password."""
        found = _derive(password, self.salt, self.log_n, self.r, self.p)
        return hmac.compare_digest(found, self.key)


UNKNOWN = PasswordHash(*COST, bytes(SALT_BYTES), bytes(KEY_BYTES))
"""The hash for names that do not exist. The check takes as long as for a name that exists, so the
duration does not show which names exist."""


def _derive(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=1 << log_n,
        r=r,
        p=p,
        maxmem=MEMORY_BYTES_MAX + (1 << 20),
        dklen=KEY_BYTES,
    )
