"""Warnings that a client can cause: so many of a kind in a minute, and then how many were left out.

Floor: metrics. A client that asks for something wrong in a circle would fill the disk with lines
that say the same. What is told of are the first of a minute; the rest is counted.
"""

from __future__ import annotations

from logging import Logger, getLogger

from broker.world import Clock
from protocol.log import fields

logger = getLogger(__name__)

WINDOW_MS = 60_000
IN_WINDOW_MAX = 10
"""Lines of one kind that are written in one window."""


class _Window:
    """One kind's warnings since its first one."""

    __slots__ = ("count", "ends_ms")

    def __init__(self, ends_ms: int) -> None:
        self.ends_ms = ends_ms
        self.count = 0


class Warnings:
    """All kinds of warnings; a kind is the text of the line, of which there are a handful."""

    def __init__(self, clock: Clock) -> None:
        self.left_out_count = 0
        """Since the start, of all kinds."""
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def warn(self, teller: Logger, kind: str, **values: object) -> None:
        """Write one line under the caller's logger, or count it where the minute has its share."""
        now_ms = self._clock.monotonic_ms()
        window = self._windows.get(kind)
        if window is None or window.ends_ms <= now_ms:
            self._close(kind)
            window = self._windows[kind] = _Window(now_ms + WINDOW_MS)
        window.count += 1
        if window.count <= IN_WINDOW_MAX:
            teller.warning(kind, extra=fields(**values))
        else:
            self.left_out_count += 1

    def close_due(self, now_ms: int) -> None:
        """Tell what was left out of the windows that have ended; wanted every second or so."""
        for kind in [kind for kind, one in self._windows.items() if one.ends_ms <= now_ms]:
            self._close(kind)

    def close_all(self) -> None:
        """The broker stops: tell what was left out so far."""
        for kind in list(self._windows):
            self._close(kind)

    def _close(self, kind: str) -> None:
        window = self._windows.pop(kind, None)
        if window is not None and window.count > IN_WINDOW_MAX:
            logger.warning(
                "warnings left out", extra=fields(kind=kind, count=window.count - IN_WINDOW_MAX)
            )
