"""Finds stuck parts: a part of the mill that has work but finishes none of it is not healthy.

This module is pure: the snapshot's time is an argument. A part is stuck if it has work and finishes
none of it within a time limit. The part's own status is not used, because a slow regular
expression, a driver that restarts again and again, and a full disk have the same effect.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

STUCK_AFTER_MS = 60_000
"""A part with work that finishes nothing for so long is stuck."""

STUCK_STARTING_MS = 180_000
"""The limit for a part that has finished nothing yet, because a JVM takes time to start."""

UNENDED_BYTES_MAX = 1 << 20
"""The most unread bytes that can be the beginning of a line without an end."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a part: how much waits, and `done`, a value that changes whenever the part
    finishes some work.
    """

    part: str
    waiting: int
    unit: str
    over: str
    done: object


@dataclass(frozen=True, slots=True)
class Stuck:
    """A part that finishes nothing. `since_ms` is when it last finished work, or when work began to
    wait.
    """

    part: str
    since_ms: int
    over: str

    def text(self, now_ms: int) -> str:
        """Return one sentence for people."""
        return f"has made no progress for {(now_ms - self.since_ms) // 1000} s; {self.over}"


@dataclass(slots=True)
class _Track:
    done: object
    since_ms: int
    finished_once: bool = False


@dataclass(slots=True)
class ProgressMemory:
    """For each part the last seen value of `done`, and the time since which it has not changed."""

    tracks: dict[str, _Track] = field(default_factory=dict)

    def judge(self, works: Iterable[Work], now_ms: int) -> tuple[Stuck, ...]:
        """Return the parts that are stuck. A part that is missing from `works` keeps the time of
        its last progress.
        """
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
    """Return the stream's work: the unread offsets, and its group's commits as the work that it has
    finished.
    """
    topics = ", ".join(sorted(set(where)))
    over = f"{lag:,} lines wait in {topics}" if topics else f"{lag:,} lines wait"
    return Work(part, lag, "lines", over, tuple(sorted(commits.items())))


def collector_work(part: str, details: Mapping[str, object], *, has_problems: bool) -> Work | None:
    """Return the collector's work: the bytes that the brokers have not acknowledged. None if the
    collector does not report them.

    Bytes after the last line end can be an incomplete line. They do not count as work, because the
    collector waits for the rest of the line, unless the collector reports a problem.
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
