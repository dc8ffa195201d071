"""The status of a reader of a partition, by the rules of Burrow (LinkedIn's lag monitor).

This module is pure. A reader is one group in one partition. Its window holds at most 60 samples,
ten seconds apart, each with the committed offset and the lag of one moment. As in Burrow, there is
no threshold on the lag, and the rules have the same order.

These rules differ from Burrow:
- A status needs five samples over two minutes.
- A reader whose lag was 0 is good only for the next two minutes.
- A lag that stays within 5 % is steady.
- An unknown lag has a status of its own.
- A group without members is empty, never stopped.
- A bad status begins after two samples in a row and ends after three.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from monitor.lag.rules import CellState, Lag

SAMPLE_EVERY_MS = 10_000
SAMPLES_MAX = 60
WINDOW_MS = SAMPLES_MAX * SAMPLE_EVERY_MS
SAMPLES_TO_JUDGE = 5
SPAN_TO_JUDGE_MS = 120_000
STILL_MS_MIN = 120_000
STEADY_SHARE = 0.05
LOOKS_TO_OPEN = 2
LOOKS_TO_CLOSE = 3


class ReaderStatus(StrEnum):
    """The statuses from best to worst. `unknown` and `no_commit` are never good."""

    OK = "ok"
    EMPTY = "empty"
    MEASURING = "measuring"
    NO_COMMIT = "no_commit"
    UNKNOWN = "unknown"
    GROWING = "growing"
    EMPTY_LAGGING = "empty_lagging"
    REWOUND = "rewound"
    STALLED = "stalled"
    LOST = "lost"


SEVERITY = {status: rank for rank, status in enumerate(ReaderStatus)}
BAD = frozenset({ReaderStatus.REWOUND, ReaderStatus.STALLED, ReaderStatus.LOST})
WARN = frozenset({ReaderStatus.GROWING, ReaderStatus.EMPTY_LAGGING})
LATCHED = frozenset({ReaderStatus.GROWING, ReaderStatus.REWOUND, ReaderStatus.STALLED})


class Look(NamedTuple):
    """One sample of a reader: its time in Unix milliseconds, the committed offset and the lag."""

    at_ms: int
    committed_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A status, the sentence that gives its reason, and the time since which it holds."""

    status: ReaderStatus
    reason: str = ""
    since_ms: int | None = None


MEASURING = Judged(ReaderStatus.MEASURING)


@dataclass(slots=True)
class Window:
    """The samples of one reader over the last ten minutes, and its current status."""

    looks: list[Look] = field(default_factory=list)
    moved_at_ms: int | None = None
    held: Judged = MEASURING
    proposed: ReaderStatus = ReaderStatus.MEASURING
    proposals: int = 0

    def add(self, look: Look) -> bool:
        """Add a sample if one is due, and return whether it was added.

        If the commit has moved, the time of that move is recorded in any case.
        """
        last = self.looks[-1] if self.looks else None
        if last is None or look.committed_offset != last.committed_offset:
            self.moved_at_ms = look.at_ms
        if last is not None and look.at_ms - last.at_ms < SAMPLE_EVERY_MS:
            return False
        self.looks.append(look)
        # Readers of large groups are polled less often, so drop samples by their age and not only
        # by their number.
        oldest_ms = look.at_ms - WINDOW_MS
        while len(self.looks) > SAMPLES_TO_JUDGE and self.looks[0].at_ms <= oldest_ms:
            del self.looks[0]
        return True

    def conclude(self, found: Judged) -> Judged:
        """Return the status to show: a bad status begins after two samples in a row and ends after
        three.
        """
        if found.status == self.held.status:
            self.proposals = 0
            self.held = Judged(found.status, found.reason, self.held.since_ms or found.since_ms)
            return self.held
        if found.status != self.proposed:
            self.proposed, self.proposals = found.status, 0
        self.proposals += 1
        needed = 1
        if self.held.status in LATCHED:
            needed = LOOKS_TO_CLOSE
        elif found.status in LATCHED:
            needed = LOOKS_TO_OPEN
        if self.proposals >= needed:
            self.held, self.proposals = found, 0
        return self.held


def judge_reader(
    lag: Lag, window: Window, now_ms: int, *, is_read: bool, only_markers: bool = False
) -> Judged:
    """Return the status by the current samples. `Window.conclude` decides when it is shown.

    `is_read` is true if a member of the group, or a part of the mill, reads the partition.
    `only_markers` is true if the unread offsets are only transaction markers. Some readers never
    commit past such markers, so they must not look stopped.
    """
    if lag.state is CellState.NO_COMMIT:
        return Judged(ReaderStatus.NO_COMMIT, "nothing was ever committed here")
    if lag.state is CellState.PAST_END:
        return Judged(
            ReaderStatus.UNKNOWN, f"the commit is {lag.past_end:,} offsets past the end of the log"
        )
    if lag.lag is None:
        return Judged(ReaderStatus.UNKNOWN, "the end of the log is not known")
    if lag.lost:
        reason = f"retention deleted {lag.lost:,} offsets before they were read"
        return Judged(ReaderStatus.LOST, reason, now_ms)
    if lag.lag == 0:
        return Judged(ReaderStatus.OK, "caught up")
    if only_markers:
        return Judged(ReaderStatus.OK, "caught up: only markers of transactions are left")
    still_ms = now_ms - (window.moved_at_ms or now_ms)
    looks = list(window.looks)
    if len(looks) < SAMPLES_TO_JUDGE or looks[-1].at_ms - looks[0].at_ms < SPAN_TO_JUDGE_MS:
        return Judged(ReaderStatus.MEASURING, "judged after two minutes")
    if not is_read and still_ms >= STILL_MS_MIN:
        if looks[-1].lag > looks[0].lag:
            return Judged(ReaderStatus.EMPTY_LAGGING, f"no member reads it, and {lag.lag:,} wait")
        return Judged(ReaderStatus.EMPTY, "no member reads it")
    return _judge_window(looks, lag.lag, window.moved_at_ms or looks[0].at_ms, now_ms)


def _judge_window(looks: Sequence[Look], lag: int, moved_at_ms: int, now_ms: int) -> Judged:
    fallen = _last_fall(looks)
    if fallen is not None and max(one.committed_offset for one in looks[fallen:]) < (
        looks[fallen - 1].committed_offset
    ):
        reason = "it committed a lower offset than before and has not come back"
        return Judged(ReaderStatus.REWOUND, reason, looks[fallen].at_ms)
    recent = looks[-SAMPLES_TO_JUDGE:]
    if any(one.lag == 0 for one in recent):
        return Judged(ReaderStatus.OK, "caught up a moment ago")
    if now_ms - moved_at_ms >= STILL_MS_MIN:
        written = looks[-1].lag > looks[0].lag
        more = " while lines are written" if written else ""
        reason = f"its commit does not move{more}; {lag:,} wait"
        return Judged(ReaderStatus.STALLED, reason, moved_at_ms)
    zero = max((index for index, one in enumerate(looks) if one.lag == 0), default=-1)
    looks = looks[zero + 1 :]
    if len(looks) < SAMPLES_TO_JUDGE or looks[-1].at_ms - looks[0].at_ms < SPAN_TO_JUDGE_MS:
        return Judged(ReaderStatus.OK, "it was caught up within the last minutes")
    rises = all(later.lag >= earlier.lag for earlier, later in itertools.pairwise(looks))
    if rises and looks[-1].lag > looks[0].lag * (1 + STEADY_SHARE):
        reason = (
            f"its lag has only grown for {(now_ms - looks[0].at_ms) // 60_000} min; {lag:,} wait"
        )
        return Judged(ReaderStatus.GROWING, reason, looks[0].at_ms)
    return Judged(ReaderStatus.OK, "it reads")


def _last_fall(looks: Sequence[Look]) -> int | None:
    """Return the index of the last sample whose commit is lower than in the sample before it; None
    if there is none.
    """
    for index in range(len(looks) - 1, 0, -1):
        if looks[index].committed_offset < looks[index - 1].committed_offset:
            return index
    return None


def worst(judged: Sequence[Judged]) -> Judged:
    """Return the worst status among a group's partitions."""
    if not judged:
        return Judged(ReaderStatus.UNKNOWN, "nothing is committed")
    return max(judged, key=lambda one: SEVERITY[one.status])
