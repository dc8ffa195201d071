"""How many lines may wait in a partition that old and live lines share.

Floor: ground of the room. Pure. Lines of one partition are counted in their order, so a live line
waits for all that stands before it. While a file writes live lines to a partition, others that are
far behind keep their lines in their files, but for a window: so many as the partition's reader
counts in DELAY_MS, as far as the last ones tell. Without live lines there is no window.

Nothing is held back for long where nobody has ever read, or for a reader that stands still for
longer than a restart takes: live lines are not counted then either.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.types import TopicPartition

DELAY_MS = 600  # so long the oldest line of a window waits until it is counted
LIVE_MS = 60_000  # so long after its last live line a partition is kept free for the next one
STANDSTILL_MS = 60_000  # a reader that stood still for so long is not waited for
NOBODY_MS = 5_000  # and for one that has never said anything no longer than a first batch takes
WISH_MS = 1_000  # a file that waits asks at least as often
LINES_FIRST = 10_000
LINES_MIN = 4_000  # fewer lines take a reader hardly less time
LINES_MAX = 200_000
STEP_MAX = 1.5  # by so much a window grows or shrinks at once


class Progress(NamedTuple):
    """How far a partition is read; `committed` is None where nobody has read it."""

    committed: int | None
    end: int


@dataclass(slots=True)
class _Window:
    """One partition's. `handed_out` and `settled` count its lines from the start on."""

    newest: tuple[str, int] | None = None
    """The file that wrote live lines last, and when."""
    other: tuple[str, int] | None = None
    """The same of another file."""
    handed_out: int = 0
    settled: int = 0
    size: float = LINES_FIRST
    was_full: bool = False
    """Since the reader last moved."""
    wished_ms: int | None = None
    """When a file last asked whether it may go on."""
    asked_ms: int = 0
    settled_when_asked: int = 0
    progress: Progress | None = None
    """As the last answer had it; of no worth to who did not wish for one."""
    settled_then: int = 0
    """When that was asked for: these lines are in its end, others may be."""
    moved_ms: int = 0
    """When the reader was last known to move, or to have nothing left to read."""
    ends: deque[tuple[int, int]] = field(default_factory=deque)
    """Ends that the reader has not reached, each with when the partition was seen to have it."""

    def wrote_live(self, name: str, now_ms: int) -> None:
        if self.newest is not None and self.newest[0] != name:
            self.other = self.newest
        self.newest = (name, now_ms)

    def is_shared(self, name: str, now_ms: int) -> bool:
        """Whether another file writes live lines."""
        last = self.newest if self.newest is None or self.newest[0] != name else self.other
        return last is not None and now_ms - last[1] < LIVE_MS

    def is_wished(self, now_ms: int) -> bool:
        """Whether a file waits to go on."""
        return self.wished_ms is not None and now_ms - self.wished_ms < WISH_MS

    def has_room(self, now_ms: int) -> bool:
        """Whether a file that is behind may hand out lines now."""
        if not self.is_wished(now_ms):
            # What is known of the reader is of long ago.
            self.progress, self.moved_ms = None, now_ms
            self.ends.clear()
        self.wished_ms = now_ms
        is_read_by_nobody = self.progress is not None and self.progress.committed is None
        patience_ms = NOBODY_MS if is_read_by_nobody else STANDSTILL_MS
        if now_ms - self.moved_ms >= patience_ms:
            return True
        if self.progress is None or self.progress.committed is None:
            return False
        unread = max(0, self.progress.end - self.progress.committed)
        is_full = unread + self.handed_out - self.settled_then >= self.size
        self.was_full |= is_full
        return not is_full

    def told(self, progress: Progress, now_ms: int) -> None:
        """The reader's progress, as it was asked for last."""
        before, now = self.progress, progress.committed
        self.progress, self.settled_then = progress, self.settled_when_asked
        if now is None:
            return
        has_moved = before is not None and before.committed is not None and now > before.committed
        if has_moved and self.ends:
            self._resize(now_ms - self.ends[0][0])
        if has_moved or progress.end <= now:
            self.moved_ms = now_ms
        while self.ends and self.ends[0][1] <= now:
            self.ends.popleft()
        if progress.end > max(now, self.ends[-1][1] if self.ends else 0):
            self.ends.append((self.asked_ms, progress.end))

    def _resize(self, waited_ms: int) -> None:
        """The oldest line that was read now waited for so long."""
        step = min(STEP_MAX, max(1 / STEP_MAX, DELAY_MS / max(waited_ms, 1)))
        if step < 1 or self.was_full:
            self.size = min(LINES_MAX, max(LINES_MIN, self.size * step))
        self.was_full = False


class LagWindows:
    """The windows of all partitions."""

    def __init__(self) -> None:
        self._windows: dict[TopicPartition, _Window] = {}

    def handed_out(self, place: TopicPartition, lines: int) -> None:
        """Lines of any file are on their way to a partition."""
        self._of(place).handed_out += lines

    def settled(self, place: TopicPartition, lines: int) -> None:
        """They are committed: whoever asks for the partition's end is told of them."""
        self._of(place).settled += lines

    def wrote_live(self, place: TopicPartition, name: str, now_ms: int) -> None:
        """Among them were new lines of a file that is not behind."""
        self._of(place).wrote_live(name, now_ms)

    def is_shared(self, place: TopicPartition, name: str, now_ms: int) -> bool:
        """Whether a file that is behind shares the partition with live lines of another one."""
        window = self._windows.get(place)
        return window is not None and window.is_shared(name, now_ms)

    def may_go_on(self, place: TopicPartition, name: str, now_ms: int) -> bool:
        """Whether a file that is behind may hand out lines; who may not asks again."""
        window = self._windows.get(place)
        return window is None or not window.is_shared(name, now_ms) or window.has_room(now_ms)

    def to_ask(self, now_ms: int) -> list[TopicPartition]:
        """The partitions of which it matters how far they are read."""
        return [place for place, one in self._windows.items() if one.is_wished(now_ms)]

    def asked(self, places: Iterable[TopicPartition], now_ms: int) -> None:
        """That is being asked now, of one question at a time."""
        for place in places:
            window = self._of(place)
            window.asked_ms, window.settled_when_asked = now_ms, window.settled

    def told(self, found: Mapping[TopicPartition, Progress], now_ms: int) -> None:
        """The answer to what was asked last."""
        for place, progress in found.items():
            self._of(place).told(progress, now_ms)

    def _of(self, place: TopicPartition) -> _Window:
        found = self._windows.get(place)
        if found is None:
            found = self._windows[place] = _Window()
        return found
