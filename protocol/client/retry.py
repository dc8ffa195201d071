"""Repeats an attempt until it succeeds or the time is over."""

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
    """Call and await `attempt(left_ms)` until it raises no transient error. Return its value.

    Use it only for attempts that can be executed twice without harm. `left_ms` is how long the
    attempt can take. After `timeout_ms` the last error is raised.
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
