"""How much of each partition a batch takes, when it cannot take all that waits.

Partitions share a batch fairly: none takes more than an equal part while another one wants it.
Partitions that are *live*, which the stream keeps up with, have all of their lines in each batch,
whatever waits elsewhere; and while there are any, those that are behind get so little that a batch
takes PACE_S, for the next live line waits that long. With nothing but old lines, batches are as
large as memory allows, which counts the most lines per second. On a cluster batches of both kinds
grow with its executors' cores.
"""

from collections.abc import Mapping

from stream.source.checkpoint import Offsets

# Counting a batch takes about as long while some partition is live and others are behind.
PACE_S = 0.2

# The same on a cluster, where the job of a batch takes half of that, whatever is in it.
CLUSTER_PACE_S = 0.4

# The stream stays ready for live lines for so long after the last of them.
LIVE_S = 5.0

# A partition of which nothing waited is live while no more comes to it; an old file comes faster.
LIVE_LINES_PER_S = 20_000

# What partitions that are behind get of a paced batch at least, what a paced batch is at first and
# at most. A few thousand lines take hardly longer than a few hundred, for Spark's tasks fold them.
PACED_LINES_MIN = 1_500
PACED_LINES_FIRST = 2_000
PACED_LINES_MAX = 20_000

# On a cluster, by each core: what a paced batch takes at most, where that is more, and any batch.
# One core folds the latter in some three seconds.
PACED_LINES_PER_CORE = 10_000
LINES_PER_CORE = 250_000

# By so much the size of a paced batch moves at once.
_STEP_MAX = 1.5


class Admission:
    """Divides batches of one stream.

    `lines_max` is the most that a batch takes. `kept_up` are the partitions of which the batch
    divided last takes all, as the one before it did: none of their lines waits for older ones.
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
        """Where a batch ends that begins at `starts`, where the partitions end at `latest`.

        `cores` are those of a cluster's executors. None for a batch in which a partition appears:
        where that begins is not known here.
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
        """The most that a batch takes, which paced ones are sized by as well."""
        if cores is None:
            return self._lines_max
        lines_max = min(self._lines_max, cores * LINES_PER_CORE)
        self._pace_s = CLUSTER_PACE_S
        self._paced_lines_max = min(max(PACED_LINES_MAX, cores * PACED_LINES_PER_CORE), lines_max)
        self._paced_lines = min(self._paced_lines, self._paced_lines_max)
        return lines_max

    def counted(self, lines: int, seconds: float) -> None:
        """So many lines of the batch divided last were counted in this time."""
        if self._is_paced and lines:
            step = min(_STEP_MAX, max(1 / _STEP_MAX, self._pace_s / max(seconds, 0.001)))
            wanted = int(self._paced_lines * step)
            self._paced_lines = max(self._paced_lines_min, min(wanted, self._paced_lines_max))


def fair_part(waiting: Mapping[tuple[str, int], int], lines_max: int) -> int | None:
    """The most that each partition may take, at least 1, so that all take `lines_max` together.

    None where all that waits is no more.
    """
    left, places = lines_max, len(waiting)
    for lines in sorted(waiting.values()):
        if lines * places > left:
            return max(1, left // places)
        left -= lines
        places -= 1
    return None
