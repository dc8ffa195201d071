"""Keeps the driver's background threads running, and reports each thread that ends with an error.

An exception from such a thread is a programming error or an unforeseen case. It is reported in the
log and in the status, and the work of this thread is started again. The other threads continue,
because a restart of the whole stream would delay live lines by seconds.
"""

import logging
import threading
import time
from collections.abc import Callable

from protocol.log import fields
from stream.quarantine.failures import error_words
from stream.state import StreamState

# The first and the longest pause before work is started again. The pause doubles each time, unless
# the work has run for longer than the longest pause.
PAUSE_S = (1.0, 60.0)

logger = logging.getLogger(__name__)


class ThreadKeeper:
    """Starts the threads of one driver and restarts the work of a thread that failed.

    Start every thread here that lives as long as the driver, or let the thread report its own
    failure. Otherwise its exception would be lost, because no code waits for such a thread. When
    `stop` is set, no work is started again.
    """

    def __init__(
        self, state: StreamState, stop: threading.Event, *, pause_s: tuple[float, float] = PAUSE_S
    ) -> None:
        self._state = state
        self._stop = stop
        self._pause_s = pause_s

    def keep(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Run the work on its own thread, which ends when the work returns."""
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
                    "a thread ended with an error and is restarted",
                    extra=fields(thread=name, why=why),
                    exc_info=error,
                )
                self._state.thread_ended(name, why)
            if time.monotonic() - begin_s > longest_s:
                pause_s = first_s
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, longest_s)
