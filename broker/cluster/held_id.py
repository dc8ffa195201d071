"""How long a broker bears that another process has its id, before it gives up.

Floor: cluster. Pure. A process that is gone holds its id for a session at most, and with a new
controller for another. A session is counted in what its controller has lived: so what passes
without an answer of it does not count here either.
"""

from __future__ import annotations

from broker.controller.liveness import SESSION_TIMEOUT_MS

RETRY_MS_MAX = 640
"""The longest wait before a registration that was refused is made again."""

DUPLICATE_PATIENCE_MS = SESSION_TIMEOUT_MS + 3_000
"""How long an id may be held by a process of before."""

DUPLICATE_GAP_MS_MAX = 2 * RETRY_MS_MAX
"""What counts at most between two answers that an id is held."""


class HeldId:
    """What one controller has said of an id that is held."""

    def __init__(self) -> None:
        self._at_ms: int | None = None
        """When it last said so; None before it has."""
        self._held_ms = 0
        """How long it has said so."""

    def said(self, now_ms: int) -> bool:
        """It says so now. Whether that has been so for too long."""
        if self._at_ms is None:
            self._held_ms = 0
        else:
            self._held_ms += min(now_ms - self._at_ms, DUPLICATE_GAP_MS_MAX)
        self._at_ms = now_ms
        return self._held_ms >= DUPLICATE_PATIENCE_MS

    def forget(self) -> None:
        """The id is ours, or another controller is asked."""
        self._at_ms = None
