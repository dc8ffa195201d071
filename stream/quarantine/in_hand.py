"""What the JVM is counting for a thread, shown to the thread that watches over the JVM.

Floor: pure but for the monotonic clock. A thread that counts takes a part in hand and lets go of it
when it is counted, or when Java answered that it cannot be. What is in hand while the JVM ends is
what it may have ended over; what is in hand for too long is what it stands still over.
"""

import threading
import time
from dataclasses import dataclass

from stream.quarantine.search import Part, size_of

# A batch may take so long to be counted, and a second more for each HANG_OFFSETS_PER_S of its
# offsets, before Java is taken to stand still. Nothing that counts is as slow by far; the usual
# reason is an expression whose time grows with the square of a long line or worse, and which Java
# cannot be told to give up. A machine that was busy with other things for minutes must not cost a
# batch.
HANG_S = 300.0
# Parts of a batch that is searched already take moments.
SEARCH_HANG_S = 60.0
HANG_OFFSETS_PER_S = 1_000

# A Java that ends of an Error of a task tells of the task first, and ends while other parts are
# counted: for so long its end is the fault of the part that met the Error.
ERROR_S = 30.0


@dataclass(frozen=True, slots=True)
class InHand:
    """What is being counted, and the monotonic time at which Java is taken to stand still."""

    part: Part
    until_s: float

    @property
    def is_overdue(self) -> bool:
        """Whether Java stands still over it."""
        return time.monotonic() >= self.until_s


class Hand:
    """The hand of one thread. `holds` is None while nothing is being counted for it."""

    def __init__(self) -> None:
        self.holds: InHand | None = None
        self._met_error: tuple[Part, float] | None = None
        # The thread that watches may hurry what the counting thread lets go of.
        self._lock = threading.Lock()

    def take(self, part: Part, patience_s: float) -> None:
        """The JVM begins to count this."""
        with self._lock:
            self.holds = InHand(part, time.monotonic() + patience_s)

    def hurry(self) -> None:
        """Somebody waits for the JVM: it gets no more time than a part of a search has."""
        with self._lock:
            if self.holds is not None:
                part = self.holds.part
                until_s = time.monotonic() + SEARCH_HANG_S + size_of(part) / HANG_OFFSETS_PER_S
                self.holds = InHand(part, min(self.holds.until_s, until_s))

    def let_go(self) -> None:
        """It is counted, or cannot be."""
        with self._lock:
            self.holds = None

    def met_error(self, part: Part) -> None:
        """Counting this met an Error of Java's, by which the JVM may end."""
        self._met_error = (part, time.monotonic() + ERROR_S)

    @property
    def blamed_by_error(self) -> Part | None:
        """What met an Error just before, if the JVM has ended by now."""
        if self._met_error is None or time.monotonic() >= self._met_error[1]:
            return None
        return self._met_error[0]

    @property
    def to_blame(self) -> Part | None:
        """What the JVM ended over, if it has ended by now; None where nothing is to blame."""
        found = self.blamed_by_error
        return found if found is not None or self.holds is None else self.holds.part
