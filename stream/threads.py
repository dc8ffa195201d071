"""The driver's threads that work for as long as it does: none of them ends unseen.

What such a thread raises is a fault of ours, or of something nobody thought of. It is said, in the
log and in the status, and the work is begun again: the other threads go on, and a restart of the
whole part would cost live lines seconds.
"""

import logging
import threading
import time
from collections.abc import Callable

from protocol.log import fields
from stream.quarantine.failures import error_words
from stream.state import StreamState

# The pause before work is begun again; it doubles while the work ends again within the longest one.
PAUSE_S = (1.0, 60.0)

logger = logging.getLogger(__name__)


class Keeper:
    """Starts the threads of one driver and restarts the work of a thread that failed.

    Start every thread here that lives as long as the driver, or let the thread report its own
    failure: nothing joins such a thread, so its exception would go unseen. When `stop` is set, no
    work is started again.
    """

    def __init__(
        self, state: StreamState, stop: threading.Event, *, pause_s: tuple[float, float] = PAUSE_S
    ) -> None:
        self._state = state
        self._stop = stop
        self._pause_s = pause_s

    def keep(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Do the work on a thread of its own, which ends when the work returns."""
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
        thread.start()
        return thread

    def _run(self, name: str, work: Callable[[], None]) -> None:
        first_s, longest_s = self._pause_s
        pause_s = first_s
        while True:
            begin_s = time.monotonic()
            try:
                work()
                return
            except Exception as error:
                why = error_words(error)
                logger.error(
                    "a thread has ended; it is begun again",
                    extra=fields(thread=name, why=why),
                    exc_info=error,
                )
                self._state.thread_ended(name, why)
            if time.monotonic() - begin_s > longest_s:
                pause_s = first_s
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, longest_s)
