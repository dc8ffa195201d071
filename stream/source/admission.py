"""Decides how much of each partition a batch takes when it cannot take everything.

Partitions share a batch fairly: none gets more than an equal part while another wants it. *Live*
partitions, with which the stream keeps up, get all of their lines in each batch, whatever waits
elsewhere. While there are live ones, partitions that are behind get so little that a batch takes
about PACE_S, because the next live line waits that long. If there are only old lines, batches are
as large as memory allows, because that counts the most lines per second. On a cluster both kinds of
batches grow with the cores of its executors.
"""

from collections.abc import Mapping

from stream.source.checkpoint import Offsets

# The target time of a batch while some partitions are live and others are behind.
PACE_S = 0.2

# The same on a cluster, where the job of a batch alone takes half of it, whatever its size.
CLUSTER_PACE_S = 0.4

# The stream stays ready for live lines for this long after the last live line.
LIVE_S = 5.0

# A partition without backlog stays live while lines come no faster; an old file comes faster.
LIVE_LINES_PER_S = 20_000

# For paced batches: the least that partitions behind get, the first size, and the largest size. A
# few thousand lines take hardly longer than a few hundred, because Spark's tasks fold them.
PACED_LINES_MIN = 1_500
PACED_LINES_FIRST = 2_000
PACED_LINES_MAX = 20_000

# On a cluster, per core: the most of a paced batch, if that is more, and of any batch. One core
# folds the latter in about three seconds.
PACED_LINES_PER_CORE = 10_000
LINES_PER_CORE = 250_000

# The largest factor by which the size of paced batches changes at once.
_STEP_MAX = 1.5


class Admission:
    """Divides batches of one stream among partitions.

    `lines_max` is the most that a batch takes. `kept_up` are the partitions without backlog after
    the batch divided last and after the one before it: none of their lines waits for older ones.
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
        """Return the ends of a batch that begins at `starts`; partitions end at `latest`.

        `cores` are those of a cluster's executors. None if a new partition appears in the batch,
        because its beginning is not known here.
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
        """Return the most that a batch takes, and size paced batches by it."""
        if cores is None:
            return self._lines_max
        lines_max = min(self._lines_max, cores * LINES_PER_CORE)
        self._pace_s = CLUSTER_PACE_S
        self._paced_lines_max = min(max(PACED_LINES_MAX, cores * PACED_LINES_PER_CORE), lines_max)
        self._paced_lines = min(self._paced_lines, self._paced_lines_max)
        return lines_max

    def counted(self, lines: int, seconds: float) -> None:
        """Note the time in which these lines of the last batch were counted."""
        if self._is_paced and lines:
            step = min(_STEP_MAX, max(1 / _STEP_MAX, self._pace_s / max(seconds, 0.001)))
            wanted = int(self._paced_lines * step)
            self._paced_lines = max(self._paced_lines_min, min(wanted, self._paced_lines_max))


def fair_part(waiting: Mapping[tuple[str, int], int], lines_max: int) -> int | None:
    """Return the most that each partition may take (at least 1) to take `lines_max` in total.

    None if everything that waits is no more than that.
    """
    left, places = lines_max, len(waiting)
    for lines in sorted(waiting.values()):
        if lines * places > left:
            return max(1, left // places)
        left -= lines
        places -= 1
    return None
