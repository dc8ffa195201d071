"""Shows what the JVM is counting for a thread, to the thread that watches the JVM.

Room: pure except for the monotonic clock. The counting thread takes a part in hand, and lets go of
it when it is counted or when Java reports an error. If the JVM ends, the part in hand may be the
cause. If a part is in hand for too long, the JVM hangs.
"""

import threading
import time
from dataclasses import dataclass

from stream.quarantine.search import Part, size_of

# A batch can take this long, plus a second for each HANG_OFFSETS_PER_S of its offsets, before Java
# is taken to hang. Normal counting is much faster. The usual cause of a hang is an expression whose
# time grows with the square of a long line or worse, and which Java cannot cancel. A machine that
# was busy with other things for minutes must not cost a batch.
HANG_S = 300.0
# The same for parts of a batch during a search, which normally take moments.
SEARCH_HANG_S = 60.0
HANG_OFFSETS_PER_S = 1_000

# A Java that ends because of an Error in a task reports the task first, and ends while other parts
# are counted. So for this time its end is blamed on the part with the Error.
ERROR_S = 30.0


@dataclass(frozen=True, slots=True)
class InHand:
    """The part being counted, and the monotonic time from which Java is taken to hang."""

    part: Part
    until_s: float

    @property
    def is_overdue(self) -> bool:
        """Whether Java is taken to hang while counting it."""
        return time.monotonic() >= self.until_s


class Hand:
    """What is counted for one thread. `holds` is None while nothing is."""

    def __init__(self) -> None:
        self.holds: InHand | None = None
        self._met_error: tuple[Part, float] | None = None
        # The watching thread may call `hurry` while the counting thread calls `let_go`.
        self._lock = threading.Lock()

    def take(self, part: Part, patience_s: float) -> None:
        """Note that the JVM begins to count this part."""
        with self._lock:
            self.holds = InHand(part, time.monotonic() + patience_s)

    def hurry(self) -> None:
        """Shorten the time limit, because another query waits for the JVM."""
        with self._lock:
            if self.holds is not None:
                part = self.holds.part
                until_s = time.monotonic() + SEARCH_HANG_S + size_of(part) / HANG_OFFSETS_PER_S
                self.holds = InHand(part, min(self.holds.until_s, until_s))

    def let_go(self) -> None:
        """Note that the part is counted, or cannot be."""
        with self._lock:
            self.holds = None

    def met_error(self, part: Part) -> None:
        """Note that counting this part raised an Error of Java, which can end the JVM."""
        self._met_error = (part, time.monotonic() + ERROR_S)

    @property
    def blamed_by_error(self) -> Part | None:
        """The part that recently raised an Error, the likely cause if the JVM has ended."""
        if self._met_error is None or time.monotonic() >= self._met_error[1]:
            return None
        return self._met_error[0]

    @property
    def to_blame(self) -> Part | None:
        """The likely cause if the JVM has ended by now; None if nothing was being counted."""
        found = self.blamed_by_error
        return found if found is not None or self.holds is None else self.holds.part
