"""Show the progress of work on standard error once it takes more than two seconds.

On a terminal, one line is rewritten in place and removed at the end. Elsewhere, a new line is
printed every few seconds. The line shows the elapsed time.
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
    """A progress line. Call `show` as often as there is progress."""

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
        """Seconds since the work began."""
        return self._clock_s() - self._began_s

    def show(self, text: str | Callable[[], str]) -> None:
        """Show the text if the next update is due. If `text` is a function, it is called only in
        this case."""
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
        # A line that is wider than the terminal could not be erased.
        told = told[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r\x1b[K{told}")
        self._stream.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._is_shown = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def progress_line() -> Iterator[ProgressLine]:
    """Yield a progress line that is removed when the block ends."""
    line = ProgressLine()
    try:
        yield line
    finally:
        line.end()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show what the command waits for until the block itself reports progress."""
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
