"""Doing something again until it works or time is up.

Floor: client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from protocol.client.backoff import Backoff
from protocol.client.errors import ClientError, is_transient
from protocol.errors import ApiError

T = TypeVar("T")


async def repeat(
    attempt: Callable[[int], Awaitable[T]],
    *,
    backoff: Backoff,
    clock: Callable[[], int],
    timeout_ms: int,
) -> T:
    """Await `attempt(left_ms)` until it raises nothing that passes by itself; return its value.

    For what may be executed twice without harm. `left_ms` is how long that attempt may take. Raises
    the last error when `timeout_ms` is over.
    """
    deadline = clock() + timeout_ms
    while True:
        try:
            return await attempt(max(1, deadline - clock()))
        except (ApiError, ClientError) as error:
            if not is_transient(error):
                raise
            wait_ms = backoff.next_ms()
            if clock() + wait_ms >= deadline:
                raise
        await asyncio.sleep(wait_ms / 1000)
