"""How far the copies of reassignments are, how fast they are, and when they can be done.

This module is pure. The rates are measured: the bytes that the copies have grown by, and those that
were written to their partitions in the meantime. Retention can remove records that were still to be
copied, so what is to go can also shrink without a copy.
"""

from collections import deque
from dataclasses import dataclass

SAMPLES_MIN = 5
"""The number of samples before there is an estimate of the time."""

SHORT_S = 30.0
"""The time in seconds over which rates are measured."""

NEVER_AFTER_S = 60.0
"""The time in seconds for which more must be written than copied, before the copies count as
endless."""


@dataclass(frozen=True, slots=True)
class CopySample:
    """The sizes at one moment, in bytes."""

    at_s: float
    to_go: int
    """The bytes that all copies still lack."""
    written: int
    """The size of the partitions on their leaders, for each copy once."""


@dataclass(frozen=True, slots=True)
class CopyEstimate:
    """What the samples say. Rates are in bytes a second, and None until they are measured."""

    to_go: int
    rate: float | None
    """How fast the copies grow."""
    writes: float | None
    """How fast the partitions that are copied grow on their leaders."""
    eta_s: float | None
    """The seconds until nothing is to go; None if unknown, or if the copies never end."""
    is_endless: bool
    """True if records have been written faster than they are copied, for a minute."""


class CopyProgress:
    """The samples of one observer."""

    def __init__(self) -> None:
        self._samples: deque[CopySample] = deque()
        self._behind_since_s: float | None = None

    def add(self, sample: CopySample) -> CopyEstimate:
        """Note a sample, and return what all of them say.

        When the set of copies changes, because some are done, their bytes leave both sums. So the
        caller must start with a new `CopyProgress` then.
        """
        self._samples.append(sample)
        while sample.at_s - self._samples[0].at_s > SHORT_S and len(self._samples) > 2:
            self._samples.popleft()
        first = self._samples[0]
        passed_s = sample.at_s - first.at_s
        if passed_s <= 0:
            return CopyEstimate(sample.to_go, None, None, None, False)
        # Retention makes a leader's log smaller, which is no negative write.
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
