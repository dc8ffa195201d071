"""Limit how many old lines wait in a partition that also receives live lines.

This module is pure. The stream processes the lines of one partition in order, so a live line waits
for all lines before it. As long as a file writes live lines to a partition, files that are far
behind may send only a *window* of lines there. The window is about as many lines as the stream
processes in DELAY_MS, estimated from its recent progress. Without live lines there is no limit.

In two cases files stop waiting: no stream has ever read the partition, or the stream has made no
progress for longer than a restart takes. In both cases live lines would not be processed either.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.types import TopicPartition

DELAY_MS = 600  # how long the stream takes for a full window
LIVE_MS = 60_000  # how long the windows of a partition apply after its last live line
# after this time without progress of the stream, files no longer wait for it
STANDSTILL_MS = 60_000
# after this time, files no longer wait for a stream that has never committed in the partition
NOBODY_MS = 5_000
WISH_MS = 1_000  # a waiting file calls `may_go_on` at least this often
LINES_FIRST = 10_000
LINES_MIN = 4_000  # smallest window; the stream takes about as long for fewer lines
LINES_MAX = 200_000
STEP_MAX = 1.5  # the largest factor by which a window grows or shrinks at once


class ReadProgress(NamedTuple):
    """The committed offset of a group in a partition (None if there is none), and the end of the
    log.
    """

    committed: int | None
    end: int


@dataclass(slots=True)
class _LagWindow:
    """The window of one partition.

    `handed_out` and `settled` count its sent and committed lines.
    """

    newest: tuple[str, int] | None = None
    """The file that last wrote live lines, and the time."""
    other: tuple[str, int] | None = None
    """The file that wrote live lines before that file, and the time."""
    handed_out: int = 0
    settled: int = 0
    size: float = LINES_FIRST
    was_full: bool = False
    """True if the window was full at some time since the committed offset last moved."""
    wished_ms: int | None = None
    """The time when a file last asked whether it may send lines."""
    asked_ms: int = 0
    settled_when_asked: int = 0
    progress: ReadProgress | None = None
    """The last answer about the stream's progress; outdated if no file was waiting then."""
    settled_then: int = 0
    """The value of `settled` when `progress` was requested.

    At least these lines are below the end offset of `progress`.
    """
    moved_ms: int = 0
    """The time when the committed offset last moved, or had nothing left to read."""
    ends: deque[tuple[int, int]] = field(default_factory=deque)
    """End offsets that the stream has not reached, each with the time when it was first seen."""

    def wrote_live(self, name: str, now_ms: int) -> None:
        if self.newest is not None and self.newest[0] != name:
            self.other = self.newest
        self.newest = (name, now_ms)

    def is_shared(self, name: str, now_ms: int) -> bool:
        """Tell whether another file writes live lines to the partition."""
        last = self.newest if self.newest is None or self.newest[0] != name else self.other
        return last is not None and now_ms - last[1] < LIVE_MS

    def is_wished(self, now_ms: int) -> bool:
        """Tell whether a file waits to send lines."""
        return self.wished_ms is not None and now_ms - self.wished_ms < WISH_MS

    def has_room(self, now_ms: int) -> bool:
        """Tell whether a file that is far behind may send lines now."""
        if not self.is_wished(now_ms):
            # No file has asked recently, so the last answer about the progress is outdated. Forget
            # it.
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

    def told(self, progress: ReadProgress, now_ms: int) -> None:
        """Store the answer about the stream's progress, and adapt the window to it."""
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
        """Resize the window.

        `waited_ms` is how long the oldest line that was just read had waited.
        """
        step = min(STEP_MAX, max(1 / STEP_MAX, DELAY_MS / max(waited_ms, 1)))
        if step < 1 or self.was_full:
            self.size = min(LINES_MAX, max(LINES_MIN, self.size * step))
        self.was_full = False


class LagWindows:
    """The windows of all partitions."""

    def __init__(self) -> None:
        self._windows: dict[TopicPartition, _LagWindow] = {}

    def handed_out(self, place: TopicPartition, lines: int) -> None:
        """Count lines of any file that were sent to a partition."""
        self._of(place).handed_out += lines

    def settled(self, place: TopicPartition, lines: int) -> None:
        """Count lines whose transaction was committed; the end offset of their partition includes
        them from now on.
        """
        self._of(place).settled += lines

    def wrote_live(self, place: TopicPartition, name: str, now_ms: int) -> None:
        """Store that a file that is not far behind wrote new lines."""
        self._of(place).wrote_live(name, now_ms)

    def is_shared(self, place: TopicPartition, name: str, now_ms: int) -> bool:
        """Tell whether a file other than `name` has just written live lines to this partition."""
        window = self._windows.get(place)
        return window is not None and window.is_shared(name, now_ms)

    def may_go_on(self, place: TopicPartition, name: str, now_ms: int) -> bool:
        """Tell whether a file that is far behind may send lines.

        If not, the caller asks again later.
        """
        window = self._windows.get(place)
        return window is None or not window.is_shared(name, now_ms) or window.has_room(now_ms)

    def to_ask(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions for which the stream's progress is needed."""
        return [place for place, one in self._windows.items() if one.is_wished(now_ms)]

    def asked(self, places: Iterable[TopicPartition], now_ms: int) -> None:
        """Remember that the progress in these partitions is being requested.

        There is one request at a time.
        """
        for place in places:
            window = self._of(place)
            window.asked_ms, window.settled_when_asked = now_ms, window.settled

    def told(self, found: Mapping[TopicPartition, ReadProgress], now_ms: int) -> None:
        """Store the answer to the last request for progress."""
        for place, progress in found.items():
            self._of(place).told(progress, now_ms)

    def _of(self, place: TopicPartition) -> _LagWindow:
        found = self._windows.get(place)
        if found is None:
            found = self._windows[place] = _LagWindow()
        return found
