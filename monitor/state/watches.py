"""Values that need several snapshots: files with no progress, and the share of unparsed lines.

This module is pure: the snapshot's time is an argument.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from monitor.state.progress import UNENDED_BYTES_MAX

SHARE_SPAN_MS = 600_000
SHARE_STEP_MS = 10_000
SHARE_LINES_MIN = 100
"""The least number of lines in ten minutes for which a share is shown."""

STILL_MS_MIN = 60_000


@dataclass(frozen=True, slots=True)
class StillFile:
    """A file that has unread bytes of which none are being read, or that cannot be read.

    `is_unended` is true if the unread bytes are one line whose end is not written yet.
    """

    path: str
    since_ms: int
    waiting_bytes: int
    is_unended: bool
    error: str | None = None

    def text(self) -> str:
        """The problem as text, without a full stop."""
        if self.error is not None:
            return self.error
        if self.is_unended:
            return f"its last {self.waiting_bytes:,} bytes have no line end"
        return f"{self.waiting_bytes:,} bytes wait in it and none is read"


@dataclass(slots=True)
class FileMemory:
    """The last position and error of each file by path, and since when they have not changed."""

    tracks: dict[str, tuple[object, int]] = field(default_factory=dict)

    def still(self, rows: Sequence[Mapping[str, object]], now_ms: int) -> tuple[StillFile, ...]:
        """Return the files of the collector's list whose position has not changed, the longest
        first.
        """
        tracks: dict[str, tuple[object, int]] = {}
        found = []
        for row in rows:
            path, lag, error = str(row.get("path")), row.get("lag_bytes"), row.get("error")
            waiting = lag if isinstance(lag, int) else 0
            if waiting <= 0 and error is None:
                continue
            at = (row.get("position"), error)
            before = self.tracks.get(path)
            since_ms = before[1] if before is not None and before[0] == at else now_ms
            tracks[path] = (at, since_ms)
            if now_ms - since_ms >= STILL_MS_MIN:
                text = None if error is None else str(error)
                is_unended = text is None and waiting < UNENDED_BYTES_MAX and _is_looked_at(row)
                found.append(StillFile(path, since_ms, waiting, is_unended, text))
        self.tracks = tracks
        return tuple(sorted(found, key=lambda one: (one.since_ms, one.path)))


def _is_looked_at(row: Mapping[str, object]) -> bool:
    """Return whether the collector has read all bytes of the file in their current state.

    Bytes can change in place after it read them (decision 0102). A collector of an older version
    does not report unread bytes. For such a collector the answer is true.
    """
    unread_bytes = row.get("unread_bytes")
    return not isinstance(unread_bytes, int) or unread_bytes == 0


@dataclass(slots=True)
class ShareMemory:
    """The numbers of counted and of unparsed lines over the last ten minutes, every ten seconds."""

    looks: deque[tuple[int, int, int]] = field(default_factory=deque)

    def share(self, lines: object, unparsed: object, now_ms: int) -> float | None:
        """Return which share of the lines of the last ten minutes did not parse.

        Return None if a number is missing or too few lines came. If a number is lower than before,
        the part that counts has restarted, so the ten minutes begin again.
        """
        if not isinstance(lines, int) or not isinstance(unparsed, int):
            return None
        if self.looks and (lines < self.looks[-1][1] or unparsed < self.looks[-1][2]):
            self.looks.clear()
        while len(self.looks) > 1 and now_ms - self.looks[1][0] >= SHARE_SPAN_MS:
            self.looks.popleft()
        if not self.looks or now_ms - self.looks[-1][0] >= SHARE_STEP_MS:
            self.looks.append((now_ms, lines, unparsed))
        came = lines - self.looks[0][1]
        if came < SHARE_LINES_MIN:
            return None
        return min(1.0, (unparsed - self.looks[0][2]) / came)
