"""Made-up access logs of any size: the demo's lines, in order of time, fast to write.

A line is cut from a pool around its time, so that a gigabyte takes seconds; the same seed and
start give the same bytes.
"""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from appliance.demo import access_line

POOL_LINES = 20_000
LINES_PER_SECOND = 100
"""Of the log's own time: a gigabyte spans about a day."""
WRITE_AT_ONCE_S = 100


class LineSource:
    """Lines at any moment."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        stamp = _stamp(moment)
        texts = (access_line(self._chance, moment).encode() for _ in range(POOL_LINES))
        self._pool = [(head, tail) for head, _, tail in (text.partition(stamp) for text in texts)]

    def at(self, moment: datetime, count: int) -> bytes:
        """So many complete lines of one second."""
        stamp = _stamp(moment)
        chosen = self._chance.choices(self._pool, k=count)
        return b"".join([part for head, tail in chosen for part in (head, stamp, tail)])


def _stamp(moment: datetime) -> bytes:
    return f"[{moment:%d/%b/%Y:%H:%M:%S} +0000]".encode()


def write_log(path: Path, source: LineSource, size_bytes: int, start: datetime) -> tuple[int, int]:
    """Write a log of at least `size_bytes`; returns its lines and bytes."""
    lines = written = 0
    with path.open("wb") as out:
        while written < size_bytes:
            block = b"".join(
                source.at(start + timedelta(seconds=second), LINES_PER_SECOND)
                for second in range(WRITE_AT_ONCE_S)
            )
            start += timedelta(seconds=WRITE_AT_ONCE_S)
            lines += WRITE_AT_ONCE_S * LINES_PER_SECOND
            written += out.write(block)
    return lines, written


def write_lines(path: Path, source: LineSource, count: int, start: datetime) -> int:
    """Write a log of `count` lines, a multiple of the pace; returns its bytes."""
    written = 0
    with path.open("wb") as out:
        for second in range(count // LINES_PER_SECOND):
            moment = start + timedelta(seconds=second)
            written += out.write(source.at(moment, LINES_PER_SECOND))
    return written
