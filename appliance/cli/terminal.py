"""A terminal that is looked at for a while: keys without the return key, put back at the end."""

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[None]:
    """Keys come as they are pressed and are not shown, where standard input is a terminal."""
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
    """The key that was pressed within some time; None when there was none, or can be none."""
    if not sys.stdin.isatty():
        time.sleep(within_s)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], within_s)
    return sys.stdin.read(1) if ready else None
