"""Limits the log lines for warnings that a client can cause, per kind and minute.

A client that repeats a wrong request in a loop would otherwise fill the disk with equal lines. In
each minute the first warnings of a kind are logged, then one of each further reason, and then the
number of the omitted ones. So a client that fails in a loop does not hide why another one fails.
"""

from __future__ import annotations

from logging import Logger, getLogger

from broker.world import Clock
from protocol.log import fields

logger = getLogger(__name__)

WINDOW_MS = 60_000
IN_WINDOW_MAX = 10
"""The largest number of lines of one kind that are logged in one window, if no further reason
appears."""

REASONS_MAX = 20
"""The largest number of reasons that are known in one window. A client can cause ever new reasons,
for example with the sizes of its frames."""


class _WarningWindow:
    """The warnings of one kind since the first warning of this window."""

    __slots__ = ("_logged_count", "_reasons", "ends_ms", "left_out_count")

    def __init__(self, ends_ms: int) -> None:
        self.ends_ms = ends_ms
        self.left_out_count = 0
        self._logged_count = 0
        self._reasons: set[str] = set()

    def admit(self, reason: str) -> bool:
        """Count a warning. Return True if it is logged."""
        is_new = reason not in self._reasons and len(self._reasons) < REASONS_MAX
        if is_new:
            self._reasons.add(reason)
        if is_new or self._logged_count < IN_WINDOW_MAX:
            self._logged_count += 1
            return True
        self.left_out_count += 1
        return False


class Warnings:
    """The warnings of all kinds. A kind is the text of the log line, of which there are only a
    few."""

    def __init__(self, clock: Clock) -> None:
        self.left_out_count = 0
        """The number of warnings of all kinds that were not logged, since the start."""
        self._clock = clock
        self._windows: dict[str, _WarningWindow] = {}

    def warn(self, teller: Logger, kind: str, **values: object) -> None:
        """Log one line with the caller's logger, or only count it above the limit of the minute.

        `values` are the fields of the line. The field `reason` says what went wrong.
        """
        now_ms = self._clock.monotonic_ms()
        window = self._windows.get(kind)
        if window is None or window.ends_ms <= now_ms:
            self._close(kind)
            window = self._windows[kind] = _WarningWindow(now_ms + WINDOW_MS)
        if window.admit(str(values.get("reason", ""))):
            teller.warning(kind, extra=fields(**values))
        else:
            self.left_out_count += 1

    def close_due(self, now_ms: int) -> None:
        """Log the number of omitted warnings of each window that has ended. Call this about every
        second."""
        for kind in [kind for kind, one in self._windows.items() if one.ends_ms <= now_ms]:
            self._close(kind)

    def close_all(self) -> None:
        """Log the number of omitted warnings now, because the broker stops."""
        for kind in list(self._windows):
            self._close(kind)

    def _close(self, kind: str) -> None:
        window = self._windows.pop(kind, None)
        if window is not None and window.left_out_count:
            logger.warning(
                "more warnings of this kind were not logged",
                extra=fields(kind=kind, count=window.left_out_count),
            )
