"""The collector's clock.

Floor: ground of the room. Reads the time.
"""

import time


class Clock:
    """Milliseconds since the epoch at the start, going on monotonously whatever the wall does."""

    def __init__(self) -> None:
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        """The time in milliseconds."""
        return (self._base_ns + time.monotonic_ns()) // 1_000_000

    @staticmethod
    def worked_ms() -> int:
        """Processor time that this process has taken, of all its threads."""
        return time.process_time_ns() // 1_000_000
