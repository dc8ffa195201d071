"""The limits for wrong logins and for requests.

This module is pure. A wrong login makes the next attempt wait, for the address and for the user at
that address. It never locks a user everywhere, because a stranger could use that against the user.
"""

import ipaddress
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

WAIT_MS_MIN, WAIT_MS_MAX = 1_000, 60_000
FORGOTTEN_MS = 600_000
KEYS_MAX = 10_000
V6_PREFIX = 64


def network_of(address: str) -> str:
    """Return the address to count attempts by: a /64 for IPv6, because one machine has all of its
    addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, V6_PREFIX), strict=False))


@dataclass(slots=True)
class Attempts:
    """The wrong logins in a row of one address, or of one user at one address."""

    count: int
    last_at_ms: int

    def wait_ms(self, now_ms: int) -> int:
        """Return how long the next attempt must wait."""
        wait_ms = min(WAIT_MS_MAX, WAIT_MS_MIN << min(self.count - 1, 16))
        return max(0, self.last_at_ms + wait_ms - now_ms)


class WrongLogins:
    """Counts wrong logins. An attempt counts as wrong from its start until it succeeds, so that
    parallel attempts gain nothing."""

    def __init__(self) -> None:
        self._attempts: dict[Hashable, Attempts] = {}

    def wait_ms(self, keys: Sequence[Hashable], now_ms: int) -> int:
        """Return how long the next attempt with these keys must wait; 0 if it need not wait."""
        self._forget(now_ms)
        found = [self._attempts[key] for key in keys if key in self._attempts]
        return max((one.wait_ms(now_ms) for one in found), default=0)

    def begin(self, keys: Sequence[Hashable], now_ms: int) -> None:
        """Count an attempt."""
        for key in keys:
            before = self._attempts.pop(key, None)
            self._attempts[key] = Attempts(1 if before is None else before.count + 1, now_ms)
        while len(self._attempts) > KEYS_MAX:
            del self._attempts[next(iter(self._attempts))]

    def succeed(self, keys: Sequence[Hashable]) -> None:
        """Take back the last attempt, and forget all attempts with the last key."""
        self.take_back(keys)
        self.forget(keys[-1:])

    def take_back(self, keys: Sequence[Hashable]) -> None:
        """Do not count the last attempt with these keys, because its password was right or was not
        checked."""
        for key in keys:
            attempts = self._attempts.get(key)
            if attempts is None:
                continue
            attempts.count -= 1
            if attempts.count <= 0:
                del self._attempts[key]

    def forget(self, keys: Sequence[Hashable]) -> None:
        """Forget the wrong logins of these keys."""
        for key in keys:
            self._attempts.pop(key, None)

    def _forget(self, now_ms: int) -> None:
        while self._attempts:
            key, oldest = next(iter(self._attempts.items()))
            if now_ms - oldest.last_at_ms < FORGOTTEN_MS:
                return
            del self._attempts[key]


@dataclass(slots=True)
class RequestAllowance:
    """A limit of `rate` requests per second, with `burst` of them at once."""

    rate: float
    burst: float
    left: float
    at_ms: int

    def take(self, now_ms: int) -> bool:
        """Take one request. Return False if the limit is reached."""
        refilled = self.left + max(0, now_ms - self.at_ms) / 1_000 * self.rate
        self.left, self.at_ms = min(self.burst, refilled), now_ms
        if self.left < 1:
            return False
        self.left -= 1
        return True
