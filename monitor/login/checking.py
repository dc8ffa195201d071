"""Checks passwords in one thread, because a hash would block the event loop for too long.

The number of hashes is limited, so that wrong logins do not take the processor from the page.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from monitor.login.passwords import UNKNOWN, PasswordHash
from monitor.login.throttle import RequestAllowance

WAITING_MAX = 20
HASHES_PER_S = 5


class TooManyLogins(Exception):
    """Raised when too many logins are under way."""


class PasswordChecker:
    """Compares passwords with hashes, one after the other."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrypt")
        self._clock_ms = clock_ms
        self._waiting = 0
        self._bucket = RequestAllowance(HASHES_PER_S, WAITING_MAX, WAITING_MAX, clock_ms())

    async def check(self, password: str, expected: PasswordHash | None) -> bool:
        """Return whether the password is right; False for a name that does not exist (None).

        Raise TooManyLogins.
        """
        if self._waiting >= WAITING_MAX or not self._bucket.take(self._clock_ms()):
            raise TooManyLogins
        self._waiting += 1
        try:
            known = UNKNOWN if expected is None else expected
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._thread, known.matches, password)
        finally:
            self._waiting -= 1
        return is_right and expected is not None
