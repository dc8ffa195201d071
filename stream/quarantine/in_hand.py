"""Shows the thread that watches the JVM what the JVM is counting for another thread.

This module is pure except for the monotonic clock. The counting thread calls `take` before it
counts a part. It calls `let_go` after the part is counted or Java has reported an error. Between
these calls the part is *in hand*. If the JVM ends, the part in hand is the likely cause. If a part
is in hand for too long, the JVM hangs.
"""

import threading
import time
from dataclasses import dataclass

from stream.quarantine.search import Part, size_of

# The JVM is assumed to hang if a batch takes longer than this, plus a second for each
# HANG_OFFSETS_PER_S of its offsets. The usual cause is an expression whose time grows with the
# square of the length of a line, or faster, and which Java cannot cancel. Normal counting is much
# faster than the limit, which is long because a machine can be busy with other work for minutes.
HANG_S = 300.0
# The limit for parts of a batch during a search. It is shorter, because such parts take moments.
SEARCH_HANG_S = 60.0
HANG_OFFSETS_PER_S = 1_000

# If an Error in a task ends the JVM, the JVM first reports the task, and ends a little later while
# another part is counted. So for this time the part with the Error is taken for the cause.
ERROR_S = 30.0


@dataclass(frozen=True, slots=True)
class InHand:
    """The part being counted, and the monotonic time after which the JVM is assumed to hang."""

    part: Part
    until_s: float

    @property
    def is_overdue(self) -> bool:
        """True if the part takes so long that the JVM is assumed to hang."""
        return time.monotonic() >= self.until_s


class Hand:
    """The part that the JVM is counting for one thread. `holds` is None while it counts nothing."""

    def __init__(self) -> None:
        self.holds: InHand | None = None
        self._met_error: tuple[Part, float] | None = None
        # A lock, because the watching thread can call `hurry` while the counting thread calls
        # `let_go`.
        self._lock = threading.Lock()

    def take(self, part: Part, patience_s: float) -> None:
        """Store the part that the JVM begins to count."""
        with self._lock:
            self.holds = InHand(part, time.monotonic() + patience_s)

    def hurry(self) -> None:
        """Shorten the time limit of the part in hand, because another query waits for the JVM."""
        with self._lock:
            if self.holds is not None:
                part = self.holds.part
                until_s = time.monotonic() + SEARCH_HANG_S + size_of(part) / HANG_OFFSETS_PER_S
                self.holds = InHand(part, min(self.holds.until_s, until_s))

    def let_go(self) -> None:
        """Store that the JVM no longer counts the part, whether counting succeeded or failed."""
        with self._lock:
            self.holds = None

    def met_error(self, part: Part) -> None:
        """Store that counting this part raised an Error of Java, which can end the JVM."""
        self._met_error = (part, time.monotonic() + ERROR_S)

    @property
    def blamed_by_error(self) -> Part | None:
        """The part that raised a Java Error within the last ERROR_S, or None.

        If the JVM has ended, this part is the likely cause.
        """
        if self._met_error is None or time.monotonic() >= self._met_error[1]:
            return None
        return self._met_error[0]

    @property
    def to_blame(self) -> Part | None:
        """The part that is the likely cause if the JVM has ended; None if there is no such part."""
        found = self.blamed_by_error
        return found if found is not None or self.holds is None else self.holds.part
