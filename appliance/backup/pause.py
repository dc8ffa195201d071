"""Asks the supervisor to have the mill stand still, and knows for how long that was so."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.errors import Failure
from appliance.mill.home import Home
from appliance.supervisor import control

LEASE_MS = 4_000
"""After so long the supervisor has everything go on by itself."""


class PauseFailed(Failure):
    """The mill did not stand still, or not long enough; the text says why."""


@dataclass(slots=True)
class Pause:
    """`length_ms` is how long parts stood still; 0 until the pause is over."""

    length_ms: int = 0


@contextmanager
def paused(home: Home, parts: Sequence[str]) -> Iterator[Pause]:
    """The parts stand still inside the block. Raises PauseFailed, also at its end, when they did
    not do so all the while; NoSupervisor when there is none to ask."""
    pause = Pause()
    begin = time.monotonic()
    answer = control.ask(
        home.socket, {"command": "pause", "parts": list(parts), "for_ms": LEASE_MS}
    )
    if not answer["ok"]:
        raise PauseFailed(f"the mill does not stand still: {answer['error']}")
    held = False
    try:
        yield pause
    finally:
        try:
            held = control.ask(home.socket, {"command": "resume"})["held"]
        except control.NoSupervisor as error:
            # Its parts do not stay behind: the kernel wakes a group that stands still without a
            # parent, and ends it by SIGHUP.
            raise PauseFailed(f"the supervisor is gone: {error}") from error
        finally:
            pause.length_ms = round((time.monotonic() - begin) * 1000)
    if not held:
        raise PauseFailed("a part ended or started while the mill was to stand still")
