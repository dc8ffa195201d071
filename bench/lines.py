"""Made-up access logs with few different keys, for measurements that do not check the counts.

The lines are those of the demo. To write fast, each line is taken from a pool and only its time is
filled in. The same seed and start give the same bytes. Measurements that check the counts use
`bench.traffic`.
"""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from appliance.traffic.demo import access_line

POOL_LINES = 20_000
LINES_PER_SECOND = 100
"""The number of lines that have the same second in their time stamps."""


class LineSource:
    """A source of access-log lines for any second."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        stamp = _stamp(moment)
        texts = (access_line(self._chance, moment).encode() for _ in range(POOL_LINES))
        self._pool = [(head, tail) for head, _, tail in (text.partition(stamp) for text in texts)]

    def at(self, moment: datetime, count: int) -> bytes:
        """Return complete lines whose time stamp is `moment`."""
        stamp = _stamp(moment)
        chosen = self._chance.choices(self._pool, k=count)
        return b"".join([part for head, tail in chosen for part in (head, stamp, tail)])


def _stamp(moment: datetime) -> bytes:
    return f"[{moment:%d/%b/%Y:%H:%M:%S} +0000]".encode()


def write_lines(path: Path, source: LineSource, count: int, start: datetime) -> int:
    """Write a log of `count` lines and return its size in bytes. `count` must be a multiple of
    LINES_PER_SECOND."""
    written = 0
    with path.open("wb") as out:
        for second in range(count // LINES_PER_SECOND):
            moment = start + timedelta(seconds=second)
            written += out.write(source.at(moment, LINES_PER_SECOND))
    return written
