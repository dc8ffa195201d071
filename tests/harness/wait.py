"""Polling for a condition with a deadline. Tests wait for everything in this way."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    deadline_s: float,
    what: str,
    *,
    progress: Callable[[], object] | None = None,
    every_s: float = 0.02,
) -> T:
    """Poll `condition` until it is true, and return its value. At the deadline fail with the name
    `what`. Between two polls wait `every_s`; choose a longer time if a poll costs much.

    An exception of the condition counts as "not yet"; the failure shows the last one. With
    `progress` the deadline is extended whenever the value of `progress` changes. Use it for work
    whose duration depends on the machine.
    """
    end = time.monotonic() + deadline_s
    last: object = None
    seen: object = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
            if progress is not None and (now := progress()) != seen:
                seen, end = now, time.monotonic() + deadline_s
        except Exception as error:
            last = error
        if time.monotonic() >= end:
            raise AssertionError(f"not within {deadline_s} s: {what}; last seen: {last!r}")
        time.sleep(every_s)
