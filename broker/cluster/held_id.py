"""Decides how long a new process of a broker waits for its id while another process has the id.

This module is pure. After the death of a process, the controller keeps its id for at most one
session timeout, and a new controller keeps it for a second one. Controllers measure sessions only
while they run. So this module does not measure time in which the controller gives no answer.
"""

from __future__ import annotations

from broker.controller.liveness import SESSION_TIMEOUT_MS

RETRY_MS_MAX = 640
"""The longest wait in milliseconds before a rejected registration is repeated."""

DUPLICATE_PATIENCE_MS = SESSION_TIMEOUT_MS + 3_000
"""The time in milliseconds after which this process gives up, because another process still has the
id."""

DUPLICATE_GAP_MS_MAX = 2 * RETRY_MS_MAX
"""The most milliseconds that are added to the measured time for two consecutive answers that the id
is taken."""


class HeldId:
    """Measures how long one controller has been answering that the id is taken."""

    def __init__(self) -> None:
        self._at_ms: int | None = None
        """The time of the controller's last answer that the id is taken; None before the first."""
        self._held_ms = 0
        """The milliseconds for which the controller has answered that the id is taken."""

    def said(self, now_ms: int) -> bool:
        """Record an answer that the id is taken. Return True if this process must give up."""
        if self._at_ms is None:
            self._held_ms = 0
        else:
            self._held_ms += min(now_ms - self._at_ms, DUPLICATE_GAP_MS_MAX)
        self._at_ms = now_ms
        return self._held_ms >= DUPLICATE_PATIENCE_MS

    def forget(self) -> None:
        """Restart the measurement.

        Call this when this process has got the id, or asks another controller.
        """
        self._at_ms = None
