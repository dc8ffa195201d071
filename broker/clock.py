"""The only place of the broker that reads a clock.

Ground floor. Cores take `now_ms` as an argument; the driver asks its clock once per turn and passes
the answer down.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings, both in whole milliseconds."""

    def now_ms(self) -> int:
        """Wall time since 1970, for timestamps and retention; it may jump either way."""

    def monotonic_ms(self) -> int:
        """Time since some fixed moment, for deadlines; it never goes back."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
