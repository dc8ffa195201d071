"""Decides how much of each partition a batch takes when it cannot take everything.

Partitions share a batch fairly: none gets more than an equal part while another one needs it. A
*live* partition is one with which the stream keeps up. A batch takes all lines of the live
partitions, even if many lines wait in others. While there are live partitions, batches are *paced*:
the partitions that are behind get so few lines that a batch takes about PACE_S, because the next
live line waits for its end. If there are only old lines, batches are as large as memory allows,
because that counts the most lines per second. On a cluster both kinds of batches grow with the
number of cores.
"""

from collections.abc import Mapping

from stream.source.checkpoint import Offsets

# The target time of a batch while some partitions are live and others are behind.
PACE_S = 0.2

# The target time on a cluster. It is longer, because there a batch of any size needs a Spark job,
# which takes half of this time.
CLUSTER_PACE_S = 0.4

# Batches stay paced for this long after the last live line, in case another one comes.
LIVE_S = 5.0

# A partition without backlog stays live while its lines come no faster than this. Lines of an old
# file come faster, so they are not taken for live lines.
LIVE_LINES_PER_S = 20_000

# For paced batches: the least lines for partitions that are behind, and the first and the largest
# size of a batch. The least is not lower, because a few thousand lines take hardly longer than a
# few hundred.
PACED_LINES_MIN = 1_500
PACED_LINES_FIRST = 2_000
PACED_LINES_MAX = 20_000

# On a cluster, per core: the most lines of a paced batch (if more than PACED_LINES_MAX), and of any
# batch. One core folds LINES_PER_CORE in about three seconds.
PACED_LINES_PER_CORE = 10_000
LINES_PER_CORE = 250_000

# The largest factor by which the size of paced batches changes from one batch to the next.
_STEP_MAX = 1.5


class Admission:
    """Divides the batches of one stream among its partitions.

    `lines_max` is the most lines of a batch. `kept_up` are the partitions that had no backlog after
    each of the last two batches, so none of their lines in the last batch waited for older ones.
    """

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._pace_s = PACE_S
        self._paced_lines_max = min(PACED_LINES_MAX, lines_max)
        self._paced_lines_min = min(PACED_LINES_MIN, self._paced_lines_max)
        self._paced_lines = min(PACED_LINES_FIRST, self._paced_lines_max)
        self._live_until_s = 0.0
        self._is_paced = False
        self._drained: frozenset[tuple[str, int]] = frozenset()
        self.kept_up: frozenset[tuple[str, int]] = frozenset()
        self._divided_s = 0.0

    def ends(
        self, starts: Offsets, latest: Offsets, now_s: float, cores: int | None = None
    ) -> Offsets | None:
        """Return the offsets at which the next batch ends, by partition.

        The batch begins at `starts`, and `latest` are the present ends of the partitions.

        `cores` is the number of cores of a cluster's executors, None for a local driver. The result
        is None if the batch has a new partition, because the offset at which it begins is not known
        here.
        """
        if latest.keys() - starts.keys():
            self.kept_up = self._drained = frozenset()
            return None
        waiting = {place: max(0, end - starts[place]) for place, end in latest.items()}
        lines_max = self._sized(cores)
        part = fair_part(waiting, lines_max)
        came_max = max(PACED_LINES_MIN, int(LIVE_LINES_PER_S * (now_s - self._divided_s)))
        live = {
            place: lines
            for place, lines in waiting.items()
            if 0 < lines <= (came_max if place in self._drained else self._paced_lines_max)
            and (part is None or lines <= part)
        }
        if live:
            self._live_until_s = now_s + LIVE_S
        behind = {p: lines for p, lines in waiting.items() if lines and p not in live}
        self._is_paced = bool(behind) and now_s < self._live_until_s
        if self._is_paced:
            taken = sum(live.values())
            wanted = max(self._paced_lines_min, self._paced_lines - taken)
            part = fair_part(behind, min(wanted, lines_max - taken))
        ends = latest
        if part is not None:
            ends = {
                place: end if place in live else min(end, starts[place] + part)
                for place, end in latest.items()
            }
        drained = frozenset(place for place, end in ends.items() if end == latest[place])
        self.kept_up = self._drained & drained
        self._drained = drained
        self._divided_s = now_s
        return ends

    def _sized(self, cores: int | None) -> int:
        """Return the most lines of a batch, and adapt the size of paced batches to the cores."""
        if cores is None:
            return self._lines_max
        lines_max = min(self._lines_max, cores * LINES_PER_CORE)
        self._pace_s = CLUSTER_PACE_S
        self._paced_lines_max = min(max(PACED_LINES_MAX, cores * PACED_LINES_PER_CORE), lines_max)
        self._paced_lines = min(self._paced_lines, self._paced_lines_max)
        return lines_max

    def counted(self, lines: int, seconds: float) -> None:
        """Adapt the size of paced batches to the time that counting the last batch took."""
        if self._is_paced and lines:
            step = min(_STEP_MAX, max(1 / _STEP_MAX, self._pace_s / max(seconds, 0.001)))
            wanted = int(self._paced_lines * step)
            self._paced_lines = max(self._paced_lines_min, min(wanted, self._paced_lines_max))


def fair_part(waiting: Mapping[tuple[str, int], int], lines_max: int) -> int | None:
    """Return the most lines for each partition, at least 1, so that all take about `lines_max`.

    None if no more than `lines_max` lines wait, so that each partition can take all of its lines.
    """
    left, places = lines_max, len(waiting)
    for lines in sorted(waiting.values()):
        if lines * places > left:
            return max(1, left // places)
        left -= lines
        places -= 1
    return None
