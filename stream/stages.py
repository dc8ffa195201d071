"""Measures the time of batches by stage, and the age of lines when the sinks have them.

This module is pure. A batch has six stages: `source` (asking for offsets, reading records), `parse`
(judging lines), `fold` (lines to cells), `mysql`, `redis`, and `commit` (Spark's two logs). Spark
reports the times of `source` and `commit`; the tasks and the sinks measure the others. Time that
none of them measures (planning, starting jobs, waiting for a sink) is part of the batch's time, but
of no stage. A large batch is folded and written at the same time, so the sum of its stages can
exceed the time of the batch.

A line is *live* if `Admission` took all lines of its partition in this batch and in the one before.
Such a line did not wait for older lines, but only for delays of the stream (decision 0099). Its age
begins at the time stamp of its record. The collector sets that stamp when it sends a batch of lines
to the brokers; other producers set it as they like. The age does not include the time before the
stamp. It is wrong by the difference between the clocks of the two machines.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

STAGES = ("source", "parse", "fold", "mysql", "redis", "commit")

# Spark's own measurements that belong to a stage.
SPARK_TIMES = {"source": ("latestOffset", "getBatch"), "commit": ("walCommit", "commitOffsets")}

SLOT_S = 10
WINDOWS = {"1m": 6, "10m": 60}
"""The number of slots in each window.

The last slot is still being filled, so a window can be up to one slot shorter.
"""

BATCHES_KEPT = 200
"""The most batches per slot that are kept for medians. Only very short batches exceed it."""

UNFINISHED_MAX = 4
"""The most batches that wait for Spark's report after the sinks have stored them.

Older batches are forgotten.
"""

AGE_MS_MAX = 3_600_000
"""Live lines older than this are ignored, because their time stamp cannot be the time of
sending.
"""

_AGES_PER_DOUBLING = 8
"""The number of histogram steps in which an age doubles. The error is below five percent."""

QUANTILES = {"p50": 0.5, "p99": 0.99}

Ages = Counter[int]
Seconds = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The work of a batch or piece: seconds by stage, lines and cells.

    `ages` are pairs of an age in milliseconds and the number of live lines with that age.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    lines: int = 0
    cells: int = 0
    ages: Iterable[tuple[float, int]] = ()


NO_WORK = BatchWork()


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that Spark has reported: milliseconds in total and by stage."""

    batch_id: int
    at_ms: int
    whole_ms: int
    stages_ms: Mapping[str, float]

    def told(self) -> dict[str, object]:
        """Return the batch as `/status` shows it."""
        rounded = {name: round(ms, 1) for name, ms in self.stages_ms.items()}
        return {
            "batch_id": self.batch_id,
            "at_ms": self.at_ms,
            "ms": self.whole_ms,
            "stage_ms": rounded,
        }


def _no_seconds() -> Seconds:
    return defaultdict(float)


def _add(sums: Seconds, more: Mapping[str, float]) -> None:
    for name, seconds in more.items():
        sums[name] += seconds


@dataclass(slots=True)
class _Sums:
    """The sums of times, lines and cells over some batches."""

    batches: int = 0
    replays: int = 0
    lines: int = 0
    cells: int = 0
    whole_s: float = 0.0
    stages_s: Seconds = field(default_factory=_no_seconds)
    finished_s: Seconds = field(default_factory=_no_seconds)
    """Seconds by stage of finished batches; `stages_s` can also include the present batch."""
    ages: Ages = field(default_factory=Counter)
    finished: list[FinishedBatch] = field(default_factory=list)
    slowest: FinishedBatch | None = None

    def add(self, other: "_Sums") -> None:
        self.batches += other.batches
        self.replays += other.replays
        self.lines += other.lines
        self.cells += other.cells
        self.whole_s += other.whole_s
        _add(self.stages_s, other.stages_s)
        _add(self.finished_s, other.finished_s)
        self.ages.update(other.ages)
        self.finished += other.finished
        if other.slowest is not None:
            self.saw(other.slowest)

    def saw(self, batch: FinishedBatch) -> None:
        if self.slowest is None or batch.whole_ms > self.slowest.whole_ms:
            self.slowest = batch


class StageSums:
    """The sums of the last ten minutes, and those since the start. Times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._slots: deque[tuple[int, _Sums]] = deque(maxlen=max(WINDOWS.values()))
        self._unfinished: dict[int, Seconds] = {}
        self._in_hand_since_s: float | None = None
        self._stages_seen: set[str] = set()
        self._last: FinishedBatch | None = None
        self.total = _Sums()
        self.live_lines = 0
        self.age_sum_s = 0.0

    def begins(self, now_s: float) -> None:
        """Record that a batch begins."""
        self._in_hand_since_s = now_s

    def ends(self) -> None:
        """Record that no batch is being counted."""
        self._in_hand_since_s = None

    def applied(self, batch_id: int, work: BatchWork, now_s: float, *, replayed: bool) -> None:
        """Record that the sinks have stored a batch or a piece of it."""
        sums = self._slot(now_s)
        self._stages_seen.update(work.seconds)
        while len(self._unfinished) >= UNFINISHED_MAX and batch_id not in self._unfinished:
            del self._unfinished[next(iter(self._unfinished))]
        _add(self._unfinished.setdefault(batch_id, _no_seconds()), work.seconds)
        for one in (sums, self.total):
            _add(one.stages_s, work.seconds)
            if replayed:
                one.replays += 1
            else:
                one.lines += work.lines
                one.cells += work.cells
        if not replayed:
            for age_ms, lines in work.ages:
                if age_ms <= AGE_MS_MAX:
                    sums.ages[_slot_of_age(age_ms)] += lines
                    self.live_lines += lines
                    self.age_sum_s += max(0.0, age_ms) * lines / 1000

    def finished(
        self, batch_id: int, durations_ms: Mapping[str, int], now_s: float, at_ms: int
    ) -> None:
        """Add Spark's report of a batch."""
        seconds = self._unfinished.pop(batch_id, None)
        if seconds is None:
            # This batch had no lines, so the sinks did not get it.
            return
        sums = self._slot(now_s)
        spark = {
            stage: sum(durations_ms.get(name, 0) for name in names) / 1000
            for stage, names in SPARK_TIMES.items()
        }
        whole_ms = durations_ms.get("triggerExecution", 0)
        _add(seconds, spark)
        self._stages_seen.update(spark)
        stages_ms = {name: seconds[name] * 1000 for name in self._known()}
        self._last = FinishedBatch(batch_id, at_ms, whole_ms, stages_ms)
        for one in (sums, self.total):
            one.batches += 1
            one.whole_s += whole_ms / 1000
            _add(one.stages_s, spark)
        _add(sums.finished_s, seconds)
        sums.saw(self._last)
        if len(sums.finished) < BATCHES_KEPT:
            sums.finished.append(self._last)

    def told(self, now_s: float) -> dict[str, object]:
        """Return the figures for `/status`."""
        windows = {name: self._window(count, now_s) for name, count in WINDOWS.items()}
        for one in windows.values():
            one.finished.sort(key=lambda batch: batch.whole_ms)
        longest = windows[max(WINDOWS, key=WINDOWS.__getitem__)]
        by_length = longest.finished
        median = by_length[len(by_length) // 2] if by_length else None
        return {
            "windows": {
                name: self._told_window(sums, self._first_slot(WINDOWS[name], now_s), now_s)
                for name, sums in windows.items()
            },
            "last": None if self._last is None else self._last.told(),
            "median": None if median is None else median.told(),
            "slowest": None if longest.slowest is None else longest.slowest.told(),
            "total": {
                "seconds": {name: round(self.total.stages_s[name], 3) for name in self._known()},
                "busy_seconds": round(self.total.whole_s, 3),
                "cells": self.total.cells,
                "live_lines": self.live_lines,
                "line_seconds": round(self.age_sum_s, 3),
            },
        }

    def _known(self) -> list[str]:
        """Return the stages that were seen, because a mill can have only one of the sinks."""
        return [name for name in STAGES if name in self._stages_seen]

    def _told_window(self, sums: _Sums, first: int, now_s: float) -> dict[str, object]:
        """Return the figures of one window; its batches are sorted by duration."""
        seconds = max(0.001, now_s - max(self._began_s, first * SLOT_S))
        waited_s = 0.0 if self._in_hand_since_s is None else now_s - self._in_hand_since_s
        count = len(sums.finished)
        ages = quantiles(sums.ages)
        return {
            "seconds": round(seconds, 1),
            "batches": sums.batches,
            "replays": sums.replays,
            "lines": sums.lines,
            "cells": sums.cells,
            "busy": round(min(1.0, (sums.whole_s + waited_s) / seconds), 4),
            "batch_ms": {
                name: sums.finished[_rank(share, count) - 1].whole_ms
                for name, share in QUANTILES.items()
            }
            if count
            else None,
            "stages": {
                name: {
                    "ms": round(sums.finished_s[name] * 1000 / sums.batches, 2)
                    if sums.batches
                    else None,
                    "busy": round(min(1.0, sums.stages_s[name] / seconds), 4),
                }
                for name in self._known()
            },
            "live_lines": sums.ages.total(),
            "line_ms": {name: round(ms, 1) for name, ms in ages.items()} or None,
        }

    def _window(self, count: int, now_s: float) -> _Sums:
        first, found = self._first_slot(count, now_s), _Sums()
        for number, sums in self._slots:
            if number >= first:
                found.add(sums)
        return found

    @staticmethod
    def _first_slot(count: int, now_s: float) -> int:
        return int(now_s // SLOT_S) - count + 1

    def _slot(self, now_s: float) -> _Sums:
        number = int(now_s // SLOT_S)
        if not self._slots or self._slots[-1][0] != number:
            self._slots.append((number, _Sums()))
        return self._slots[-1][1]


def quantiles(ages: Ages) -> dict[str, float]:
    """Return the quantiles of ages, in milliseconds."""
    ordered, lines = sorted(ages), ages.total()
    found: dict[str, float] = {}
    for name, share in QUANTILES.items() if lines else ():
        left = _rank(share, lines)
        for slot in ordered:
            left -= ages[slot]
            if left <= 0:
                found[name] = _age_of_slot(slot)
                break
    return found


def _rank(share: float, count: int) -> int:
    return max(1, math.ceil(share * count))


def _slot_of_age(age_ms: float) -> int:
    return round(_AGES_PER_DOUBLING * math.log2(1 + max(0.0, age_ms)))


def _age_of_slot(slot: int) -> float:
    return float(2 ** (slot / _AGES_PER_DOUBLING) - 1)
