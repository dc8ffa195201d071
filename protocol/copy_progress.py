"""Estimates the speed and the end of the copies that reassignments make.

This module is pure. The rate of copying is measured: the bytes by which the missing data shrank,
plus the bytes that were written to the partitions in the same time. Retention can delete records
before they are copied. So the missing bytes can also shrink without a copy.
"""

from collections import deque
from dataclasses import dataclass, replace

SAMPLES_MIN = 5
"""The number of samples before there is an estimate of the time."""

SHORT_S = 30.0
"""The time in seconds over which rates are measured."""

NEVER_AFTER_S = 60.0
"""The copies count as endless after writes were faster than copying for this many seconds."""


@dataclass(frozen=True, slots=True)
class CopySample:
    """The sizes at one time, in bytes."""

    at_s: float
    to_go: int
    """The bytes that all copies still lack."""
    written: int
    """The summed sizes of the leaders' logs. Each copy adds the size of its partition's log."""


@dataclass(frozen=True, slots=True)
class CopyEstimate:
    """The estimate from all samples.

    Rates are in bytes a second, and None until they are measured.
    """

    to_go: int
    rate: float | None
    """The rate at which the copies grow."""
    writes: float | None
    """The rate at which the leaders' logs of these partitions grow."""
    eta_s: float | None
    """The seconds until all bytes are copied; None if unknown, or if the copies never end."""
    is_endless: bool
    """True if, for a minute, records were written faster than they were copied."""


class CopyProgress:
    """The recent samples of one set of copies."""

    def __init__(self) -> None:
        self._samples: deque[CopySample] = deque()
        self._behind_since_s: float | None = None

    def add(self, sample: CopySample) -> CopyEstimate:
        """Add a sample, and return the estimate from all recent samples.

        The caller must call `complete` for copies that are complete since the last sample. After
        any other change of the set of copies, the caller must start with a new `CopyProgress`.
        """
        self._samples.append(sample)
        while sample.at_s - self._samples[0].at_s > SHORT_S and len(self._samples) > 2:
            self._samples.popleft()
        first = self._samples[0]
        passed_s = sample.at_s - first.at_s
        if passed_s <= 0:
            return CopyEstimate(sample.to_go, None, None, None, False)
        # Retention can shrink a leader's log, so the difference can be negative.
        writes = max(sample.written - first.written, 0) / passed_s
        net = (first.to_go - sample.to_go) / passed_s
        rate = max(net + writes, 0.0)
        if net > 0 or not sample.to_go:
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = sample.at_s
        since_s = self._behind_since_s
        is_endless = since_s is not None and writes > 0 and sample.at_s - since_s >= NEVER_AFTER_S
        is_known = len(self._samples) >= SAMPLES_MIN and net > 0
        return CopyEstimate(
            sample.to_go, rate, writes, sample.to_go / net if is_known else None, is_endless
        )

    def complete(self, written: int) -> None:
        """Let copies leave the sums because they are complete. What they lacked in earlier samples
        counts as copied.

        `written` is the sum of their leaders' logs in the last sample.
        """
        self._samples = deque(replace(one, written=one.written - written) for one in self._samples)
