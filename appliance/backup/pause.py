"""Ask the supervisor to pause the mill, and measure how long it was paused."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.errors import Failure
from appliance.mill.home import Home
from appliance.supervisor import control

LEASE_MS = 4_000
"""The time in milliseconds after which the supervisor resumes all parts, even if no request asks
for it."""


class PauseFailed(Failure):
    """Raised when the mill was not paused, or not until the end of the block.

    Its text says why.
    """


@dataclass(slots=True)
class Pause:
    """A pause of the mill.

    `length_ms` is how long the parts were paused; 0 until the pause is over.
    """

    length_ms: int = 0


@contextmanager
def paused(home: Home, parts: Sequence[str]) -> Iterator[Pause]:
    """Pause all parts for the duration of the block.

    Raises PauseFailed if the parts cannot be paused, and at the end of the block if they were not
    paused all the time. Raises NoSupervisor when no supervisor runs.
    """
    pause = Pause()
    begin = time.monotonic()
    answer = control.ask(
        home.socket, {"command": "pause", "parts": list(parts), "for_ms": LEASE_MS}
    )
    if not answer["ok"]:
        raise PauseFailed(f"the mill could not be paused: {answer['error']}")
    held = False
    try:
        yield pause
    finally:
        try:
            held = control.ask(home.socket, {"command": "resume"})["held"]
        except control.NoSupervisor as error:
            # Without a supervisor the parts have ended too: the kernel sends SIGHUP and SIGCONT to
            # a stopped process group whose parent has died. So the copy was not made during a
            # pause.
            raise PauseFailed(
                f"the supervisor ended while the mill was paused: {error}; make the backup again"
            ) from error
        finally:
            pause.length_ms = round((time.monotonic() - begin) * 1000)
    if not held:
        raise PauseFailed(
            "a part ended or started while the mill was paused; make the backup again"
        )
