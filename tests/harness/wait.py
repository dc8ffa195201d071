"""Waiting for a condition with a deadline: the only way a test waits for anything."""

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
) -> T:
    """Poll `condition` until it is true and return its value. Fail with the name `what` when the
    time is up.

    An exception of the condition counts as "not yet" and is shown when the time is up. With
    `progress` the time starts again whenever its value changes. This is for work whose duration
    depends on the machine.
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
        time.sleep(0.02)
