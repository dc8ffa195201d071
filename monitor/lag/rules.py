"""The rules of lag, used by the page, the API, Prometheus and the command line.

This module is pure: no clock, no I/O. A cell is one group in one partition. The poller reads the
commit first, then the log's start, then its end. So records that arrive between these reads can
overstate a lag, but never make it negative. An unknown lag is `None`, and the state gives the
reason. It is never 0 and never part of a sum.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from monitor.lag.offset_series import Series

PLAUSIBLE_SINCE_MS = 315_532_800_000
"""The year 1980. An earlier timestamp shows that the producer had no clock."""

CLOCK_SKEW_MS = 5_000
"""The largest expected difference between the clocks of a producer and of the monitor."""


class CellState(StrEnum):
    """The state of one reader in one partition."""

    OK = "ok"
    LOST = "lost"
    PAST_END = "past_end"
    NO_COMMIT = "no_commit"
    END_UNKNOWN = "end_unknown"
    DELETED = "deleted"


class Bound(StrEnum):
    """The meaning of a time lag: exact, a lower bound, or unknown.

    An `about` age is interpolated between two polls of the log's end. Its error is at most the time
    between them.
    """

    EXACT = "exact"
    ABOUT = "about"
    AT_LEAST = "at_least"
    MEASURING = "measuring"
    UNKNOWN = "unknown"


class Measured(NamedTuple):
    """The offsets of one partition in one cycle, in the order in which they were read."""

    committed_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    topic_exists: bool = True


class Lag(NamedTuple):
    """The lag that was computed from one `Measured`, in offsets.

    Transaction markers take offsets too, so a lag can be above the number of records. `lag` is None
    unless the state is `ok` or `lost`. `lost` is the number of offsets that retention deleted
    before the group read them. `past_end` is how far a commit is beyond the log's end. `backlog` is
    the number of offsets in the partition for a group that has not committed yet.
    """

    state: CellState
    lag: int | None = None
    lost: int = 0
    past_end: int = 0
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class LagSum:
    """A sum of the known lags, with the number of cells with a known lag and the number of all
    cells.
    """

    lag: int
    known: int
    total: int

    @property
    def complete(self) -> bool:
        """True if every cell's lag is known; otherwise the sum is a lower bound."""
        return self.known == self.total


class TimeLag(NamedTuple):
    """The age of the oldest unread record in milliseconds, and how exact it is."""

    age_ms: int | None
    bound: Bound


def judge(measured: Measured) -> Lag:
    """Return the lag of one group in one partition."""
    commit = measured.committed_offset
    start, end = measured.log_start_offset, measured.log_end_offset
    if not measured.topic_exists:
        return Lag(CellState.DELETED)
    if end is None or start is None:
        return Lag(CellState.END_UNKNOWN)
    if commit is None:
        return Lag(CellState.NO_COMMIT, backlog=max(0, end - start))
    if commit > end:
        return Lag(CellState.PAST_END, past_end=commit - end)
    if commit < start:
        return Lag(CellState.LOST, lag=end - start, lost=start - commit)
    return Lag(CellState.OK, lag=end - commit)


def add_up(lags: Iterable[Lag]) -> LagSum:
    """Sum the known lags and count the unknown ones."""
    known = total = sum_of_lags = 0
    for lag in lags:
        total += 1
        if lag.lag is not None:
            known += 1
            sum_of_lags += lag.lag
    return LagSum(sum_of_lags, known, total)


def time_lag(
    lag: Lag,
    committed_offset: int | None,
    *,
    record_timestamp_ms: int | None,
    samples: Series,
    now_ms: int,
    only_markers: bool = False,
) -> TimeLag:
    """Return the age of the oldest unread record.

    `record_timestamp_ms` is the timestamp of the first record at or after the commit, if it was
    read. A timestamp in the future or before 1980 gives an unknown age, because the record's true
    age does not follow from it. Without a timestamp, the moment at which the log's end passed the
    commit is interpolated between two `samples` (oldest first). If the commit is below the oldest
    sample, the age is a lower bound, because nothing is extrapolated. `only_markers` is true if the
    unread offsets are transaction markers, so there is no unread record and no age.
    """
    if lag.lag is None or committed_offset is None:
        return TimeLag(None, Bound.UNKNOWN)
    if lag.lag == 0 or only_markers:
        return TimeLag(0, Bound.EXACT)
    if record_timestamp_ms is not None:
        return _age_of_record(record_timestamp_ms, now_ms)
    if len(samples) < 2:
        return TimeLag(None, Bound.MEASURING)
    if committed_offset < samples.offsets[0]:
        return TimeLag(max(0, now_ms - samples.times[0]), Bound.AT_LEAST)
    passed_at_ms = samples.passed_at_ms(committed_offset)
    if passed_at_ms is None:
        return TimeLag(None, Bound.MEASURING)
    return TimeLag(max(0, round(now_ms - passed_at_ms)), Bound.ABOUT)


def _age_of_record(written_ms: int, now_ms: int) -> TimeLag:
    if written_ms < PLAUSIBLE_SINCE_MS or written_ms > now_ms + CLOCK_SKEW_MS:
        return TimeLag(None, Bound.UNKNOWN)
    if written_ms > now_ms:
        return TimeLag(0, Bound.ABOUT)
    return TimeLag(now_ms - written_ms, Bound.EXACT)


def worst_time_lag(parts: Iterable[TimeLag]) -> TimeLag:
    """Return the time lag of a group: the greatest one of its partitions, or a lower bound if one
    is not exact.
    """
    ages = list(parts)
    known = [part.age_ms for part in ages if part.age_ms is not None]
    if not known:
        bound = Bound.MEASURING if any(p.bound is Bound.MEASURING for p in ages) else Bound.UNKNOWN
        return TimeLag(None, bound)
    if any(part.bound not in (Bound.EXACT, Bound.ABOUT) for part in ages):
        return TimeLag(max(known), Bound.AT_LEAST)
    return max((part for part in ages if part.age_ms is not None), key=_age)


def _age(part: TimeLag) -> int:
    return part.age_ms or 0
