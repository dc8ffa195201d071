"""Read single keys from a terminal without the return key; the terminal is restored at the end."""

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[None]:
    """Read keys unbuffered and without echo in the block, if standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def pressed(within_s: float) -> str | None:
    """Return the key pressed within some time; None if there was none, or no terminal."""
    if not sys.stdin.isatty():
        time.sleep(within_s)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], within_s)
    return sys.stdin.read(1) if ready else None
