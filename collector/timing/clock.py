"""The collector's clock.

Room: ground of the room. Reads the time.
"""

import time


class ForwardClock:
    """Milliseconds since the epoch. It never goes back, whatever happens to the system clock."""

    def __init__(self) -> None:
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        """Return the time in milliseconds."""
        return (self._base_ns + time.monotonic_ns()) // 1_000_000

    @staticmethod
    def worked_ms() -> int:
        """Return the processor time that all threads of this process have used."""
        return time.process_time_ns() // 1_000_000
