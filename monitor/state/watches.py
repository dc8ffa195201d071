"""Faults that show over several snapshots: files that do not move, and the share that does not
parse.

Floor: pure; the snapshot's time is the only clock.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from monitor.state.progress import UNENDED_BYTES_MAX

SHARE_SPAN_MS = 600_000
SHARE_STEP_MS = 10_000
SHARE_LINES_MIN = 100
"""With fewer lines in ten minutes the share is unknown."""

STILL_MS_MIN = 60_000


@dataclass(frozen=True, slots=True)
class StillFile:
    """A file that has unread bytes and is not read, or that cannot be read.

    `is_unended` is true if all that is left may be one line without its end.
    """

    path: str
    since_ms: int
    waiting_bytes: int
    is_unended: bool
    error: str | None = None

    def text(self) -> str:
        """Return the fault without a full stop."""
        if self.error is not None:
            return self.error
        if self.is_unended:
            return f"its last {self.waiting_bytes:,} bytes have no line end"
        return f"{self.waiting_bytes:,} bytes wait in it and none is read"


@dataclass(slots=True)
class FileMemory:
    """Each file's position and error when last seen, and since when they have not changed."""

    tracks: dict[str, tuple[object, int]] = field(default_factory=dict)

    def still(self, rows: Sequence[Mapping[str, object]], now_ms: int) -> tuple[StillFile, ...]:
        """Return the files in the collector's list that do not move, the longest first."""
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
                is_unended = text is None and waiting < UNENDED_BYTES_MAX
                found.append(StillFile(path, since_ms, waiting, is_unended, text))
        self.tracks = tracks
        return tuple(sorted(found, key=lambda one: (one.since_ms, one.path)))


@dataclass(slots=True)
class ShareMemory:
    """Counted and unparsed lines, every ten seconds of the last ten minutes."""

    looks: deque[tuple[int, int, int]] = field(default_factory=deque)

    def share(self, lines: object, unparsed: object, now_ms: int) -> float | None:
        """Return the share of the lines of the last ten minutes that did not parse.

        The share is None if a number is missing or too few lines came. A number that falls shows
        that the part started again, so the ten minutes begin again too.
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
