"""The lines of a fleet of collectors: each has its collector, its number and its time.

This module is pure. Each process of a fleet imports it, so it needs no client of Kafka.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

TAIL = b'"GET /shop/cart?item=42 HTTP/1.1" 200 5120 "-" "Mozilla/5.0 (X11; Linux x86_64)"\n'
FAULTS_MAX = 10


def line_of(name: str, number: int, written_ms: int) -> bytes:
    """Return a line, with its line end."""
    return b"%s %d %d %s" % (name.encode(), number, written_ms, TAIL)


class FleetJudge:
    """Judges the lines as they arrive.

    All lines of a file go to one partition, so the lines of each collector must arrive in their
    order, without a gap and without a repetition.
    """

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        """The number of lines by collector."""
        self.faults: list[str] = []
        """The first lines that were lost, doubled or out of order."""
        self.total = 0
        self.written_ms = array("q")
        self.latency_ms = array("q")

    def note(self, value: bytes, now_ms: int) -> None:
        """Judge one line that has arrived at `now_ms`."""
        name_bytes, number_bytes, written_bytes, _ = value.split(b" ", 3)
        name, number, written_ms = name_bytes.decode(), int(number_bytes), int(written_bytes)
        expected = self.arrived.get(name, 0)
        if number != expected and len(self.faults) < FAULTS_MAX:
            self.faults.append(f"{name}: found line {number}, expected {expected}")
        self.arrived[name] = number + 1
        self.total += 1
        self.written_ms.append(written_ms)
        self.latency_ms.append(now_ms - written_ms)

    def has_all(self, written: Mapping[str, int]) -> bool:
        """Return whether every written line has arrived."""
        return self.arrived == {name: count for name, count in written.items() if count}

    def latencies_s(self, begin_ms: int, end_ms: int) -> list[float]:
        """Return the latencies of the lines that were written in this time, in ascending order."""
        pairs = zip(self.written_ms, self.latency_ms, strict=False)
        return sorted(late / 1000 for at, late in pairs if begin_ms <= at < end_ms)
