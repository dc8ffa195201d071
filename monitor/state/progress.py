"""Whether a part that has work finishes any: progress is what health means.

Floor: pure; the snapshot's time is the only clock. A part with work waiting that finishes none
within a bound is stuck, since its last finish, over what waits for it. What the part says of itself
does not matter: a pattern that runs away, a driver that restarts over and over and a full disk look
alike from here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

STUCK_AFTER_MS = 60_000
"""A part at work that finishes nothing for so long is stuck."""

STUCK_STARTING_MS = 180_000
"""A part that has finished nothing since the monitor knows it: a JVM takes its time to start."""

UNENDED_BYTES_MAX = 1 << 20
"""Less than a line can be long may be the beginning of one that its writer has not ended."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a part has before it and behind it: `done` is anything that changes with a finish."""

    part: str
    waiting: int
    unit: str
    over: str
    done: object


@dataclass(frozen=True, slots=True)
class Stuck:
    """A part that finishes nothing. `since_ms` is its last finish, or when work began to wait."""

    part: str
    since_ms: int
    over: str

    def text(self, now_ms: int) -> str:
        """One sentence for people."""
        return f"has finished nothing for {(now_ms - self.since_ms) // 1000} s; {self.over}"


@dataclass(slots=True)
class _Track:
    done: object
    since_ms: int
    finished_once: bool = False


@dataclass(slots=True)
class ProgressMemory:
    """By part: what it had finished when last seen, and since when nothing was added to that."""

    tracks: dict[str, _Track] = field(default_factory=dict)

    def judge(self, works: Iterable[Work], now_ms: int) -> tuple[Stuck, ...]:
        """The parts that are stuck now; one of which nothing is known keeps its time."""
        found = []
        for work in works:
            track = self.tracks.setdefault(work.part, _Track(work.done, now_ms))
            if work.done != track.done:
                track.done, track.since_ms, track.finished_once = work.done, now_ms, True
            if work.waiting <= 0:
                track.since_ms = now_ms
                continue
            bound_ms = STUCK_AFTER_MS if track.finished_once else STUCK_STARTING_MS
            if now_ms - track.since_ms >= bound_ms:
                found.append(Stuck(work.part, track.since_ms, work.over))
        return tuple(found)


def stream_work(
    part: str, commits: Mapping[tuple[str, int], int], lag: int, where: Iterable[str]
) -> Work:
    """The stream's: offsets that wait for it; it has finished what its group has committed."""
    topics = ", ".join(sorted(set(where)))
    over = f"{lag:,} lines wait in {topics}" if topics else f"{lag:,} lines wait"
    return Work(part, lag, "lines", over, tuple(sorted(commits.items())))


def collector_work(part: str, details: Mapping[str, object], *, has_problems: bool) -> Work | None:
    """The collector's: bytes of files that are not acknowledged; None where it does not say.

    Bytes that may be a line without an end do not wait for the collector but for their writer,
    unless the collector itself reports that something keeps it.
    """
    files = details.get("files")
    if not isinstance(files, list):
        return None
    waiting, first = 0, ""
    for row in files:
        lag = row.get("lag_bytes") if isinstance(row, dict) else None
        if not isinstance(lag, int) or (lag < UNENDED_BYTES_MAX and not has_problems):
            continue
        if row.get("state") in ("damaged", "waiting", "unreadable"):
            continue
        waiting += lag
        first = first or str(row.get("path"))
    done = (details.get("bytes_total"), details.get("lines_total"))
    return Work(part, waiting, "bytes", f"{waiting:,} bytes wait, first those of {first}", done)
