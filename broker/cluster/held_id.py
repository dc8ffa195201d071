"""Decides how long a new process of a broker waits for its id while an older process holds it.

Room: cluster. Pure. A dead process holds its id for at most one session, and for one more session
if the controller changes. The controller counts a session only while it runs, so time in which the
controller does not answer does not count here either.
"""

from __future__ import annotations

from broker.controller.liveness import SESSION_TIMEOUT_MS

RETRY_MS_MAX = 640
"""The longest wait before a rejected registration is repeated."""

DUPLICATE_PATIENCE_MS = SESSION_TIMEOUT_MS + 3_000
"""How long another process can hold the id before this process gives up."""

DUPLICATE_GAP_MS_MAX = 2 * RETRY_MS_MAX
"""At most this much time counts between two answers that the id is held."""


class HeldId:
    """Measures for how long one controller has reported that the id is held."""

    def __init__(self) -> None:
        self._at_ms: int | None = None
        """When the controller last reported it; None before its first report."""
        self._held_ms = 0
        """For how long the controller has reported it."""

    def said(self, now_ms: int) -> bool:
        """Note that the controller reports the id as held. Return whether that has
        lasted too long.
        """
        if self._at_ms is None:
            self._held_ms = 0
        else:
            self._held_ms += min(now_ms - self._at_ms, DUPLICATE_GAP_MS_MAX)
        self._at_ms = now_ms
        return self._held_ms >= DUPLICATE_PATIENCE_MS

    def forget(self) -> None:
        """Reset the time for which another process has held this broker's id.

        Call this when this process got the id, or asks another controller.
        """
        self._at_ms = None
