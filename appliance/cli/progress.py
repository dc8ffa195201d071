"""How far something is, on standard error, once it takes over two seconds.

On a terminal a line that is rewritten in place and taken away at the end; elsewhere a new line
every few seconds. The time it has taken stands in it.
"""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from appliance.output import say

FIRST_AFTER_S = 2.0
IN_PLACE_EVERY_S = 0.25
LINE_EVERY_S = 5.0
LOOK_EVERY_S = 0.1


class ProgressLine:
    """A line that tells how far it is; `show` may be called as often as there is something new."""

    def __init__(
        self, stream: TextIO | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._due_s = self._began_s + FIRST_AFTER_S
        self._is_shown = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._clock_s() - self._began_s

    def show(self, text: str | Callable[[], str]) -> None:
        """Tell it, if it is time to; a function is asked only then."""
        now_s = self._clock_s()
        if now_s < self._due_s:
            return
        told = f"{text if isinstance(text, str) else text()} ({now_s - self._began_s:.0f} s)"
        if not self._is_terminal:
            self._due_s = now_s + LINE_EVERY_S
            say(told)
            return
        self._due_s = now_s + IN_PLACE_EVERY_S
        self._is_shown = True
        # A line that is longer than the terminal is wide could not be taken back.
        told = told[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r\x1b[K{told}")
        self._stream.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._is_shown = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def progress_line() -> Iterator[ProgressLine]:
    """A line for what tells itself how far it is; it is gone when the block ends."""
    line = ProgressLine()
    try:
        yield line
    finally:
        line.end()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Tell what is waited for while the block does something that says nothing of itself."""
    line = ProgressLine()
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            line.show(what)

    teller = threading.Thread(target=tell, name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()
        line.end()
