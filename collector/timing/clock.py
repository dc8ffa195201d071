"""The collector's clock, which reads the system's time."""

import time


class ForwardClock:
    """Returns the milliseconds since 1970.

    It never goes back, even if the system clock is set back.
    """

    def __init__(self) -> None:
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        """Return the time in milliseconds."""
        return (self._base_ns + time.monotonic_ns()) // 1_000_000

    @staticmethod
    def worked_ms() -> int:
        """Return the processor time that all threads of this process have used, in milliseconds."""
        return time.process_time_ns() // 1_000_000
