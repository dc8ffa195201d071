"""Generates made-up web traffic quickly, with as many different keys as real traffic has.

Addresses, paths, statuses and sizes are drawn with numpy, and lines are joined from pools of text
pieces. So a gigabyte takes seconds. The same seed gives the same bytes. The drawn values are
returned beside the text, so that `bench.straight` can count them without parsing a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ADDRESSES = 250_000
PATHS = 2_000
STATUSES = ("200", "304", "404", "301", "500")
STATUS_PERCENT = (86, 6, 4, 3, 1)
SIZES = 50_000
AGENTS = 40
# The percentage of lines without a size, and of lines with a query behind the path.
NO_SIZE_PERCENT = 3
QUERY_PERCENT = 10
LINES_PER_SECOND = 37
"""The number of lines that have the same second in their time stamps. With this number, a gigabyte
spans a day and a half."""
SECONDS_AT_ONCE = 600

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines as columns: epoch seconds, and indexes into the pools. A size of -1 stands for `-`."""

    second: Array
    address: Array
    path: Array
    status: Array
    size: Array

    def __len__(self) -> int:
        return len(self.second)

    @staticmethod
    def joined(some: Sequence["Drawn"]) -> "Drawn":
        """Return the lines of several draws as one object."""
        columns = (np.concatenate([getattr(one, f.name) for one in some]) for f in fields(Drawn))
        return Drawn(*columns)


def address_of(place: int) -> str:
    """Return the address at an index of the pool."""
    return f"10.{place >> 16}.{place >> 8 & 255}.{place & 255}"


def path_of(place: int) -> str:
    """Return the path at an index of the pool."""
    return f"/catalogue/{place % 23}/item-{place:04}.html"


def stamp(second: int) -> bytes:
    """Format epoch seconds as in the combined format."""
    return datetime.fromtimestamp(second, UTC).strftime("[%d/%b/%Y:%H:%M:%S +0000]").encode()


class Traffic:
    """An endless access log. Each call draws the next lines."""

    def __init__(self, seed: int, lines_per_second: int = LINES_PER_SECOND) -> None:
        self._chance = np.random.Generator(np.random.PCG64(seed))
        self._lines_per_second = lines_per_second
        self._statuses = np.repeat(np.arange(len(STATUSES), dtype=np.uint8), STATUS_PERCENT)
        self._heads = [f"{address_of(place)} - - ".encode() for place in range(ADDRESSES)]
        bare = [path_of(place) for place in range(PATHS)]
        queried = [f"{path}?page={place % 9}" for place, path in enumerate(bare)]
        self._requests = [f' "GET {path} HTTP/1.1" '.encode() for path in (*bare, *queried)]
        self._answers = [f"{status} ".encode() for status in STATUSES]
        # The last entry stands for "no size", which is drawn as -1.
        self._sizes = [b"%d" % size for size in range(SIZES)] + [b"-"]
        self._tails = [
            f' "-" "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/{100 + n}.0"\n'.encode()
            for n in range(AGENTS)
        ]

    def draw(self, start_s: int, seconds: int) -> tuple[Drawn, bytes]:
        """Draw the lines of some seconds from `start_s` on. Return them, and their text in the
        combined format."""
        stamps = [stamp(start_s + n) for n in range(seconds)]
        each = self._lines_per_second
        told = chain.from_iterable([one] * each for one in stamps)
        second = np.repeat(np.arange(start_s, start_s + seconds, dtype=np.int64), each)
        return self._lines(second, told)

    def at(self, moment: datetime, count: int) -> bytes:
        """Return complete lines whose time stamp is `moment`."""
        second = int(moment.timestamp())
        return self._lines(np.full(count, second), [stamp(second)] * count)[1]

    def _lines(self, second: Array, stamps: Iterator[bytes] | list[bytes]) -> tuple[Drawn, bytes]:
        count, chance = len(second), self._chance
        address = chance.integers(ADDRESSES, size=count, dtype=np.uint32)
        path = chance.integers(PATHS, size=count, dtype=np.uint16)
        status = self._statuses[chance.integers(100, size=count)]
        size = chance.integers(SIZES, size=count, dtype=np.int32)
        size[chance.integers(100, size=count) < NO_SIZE_PERCENT] = -1
        request = path + (chance.integers(100, size=count) < QUERY_PERCENT) * PATHS
        agent = chance.integers(AGENTS, size=count)
        columns = (
            map(self._heads.__getitem__, address.tolist()),
            stamps,
            map(self._requests.__getitem__, request.tolist()),
            map(self._answers.__getitem__, status.tolist()),
            map(self._sizes.__getitem__, size.tolist()),
            map(self._tails.__getitem__, agent.tolist()),
        )
        text = b"".join(chain.from_iterable(zip(*columns, strict=True)))
        return Drawn(second, address, path, status, size), text


def write_traffic(
    path: Path, traffic: Traffic, size_bytes: int, start: datetime
) -> tuple[int, int]:
    """Write a log of at least `size_bytes`. Return its number of lines and bytes."""
    lines = written = 0
    start_s = int(start.timestamp())
    with path.open("wb") as out:
        while written < size_bytes:
            drawn, text = traffic.draw(start_s, SECONDS_AT_ONCE)
            start_s += SECONDS_AT_ONCE
            lines += len(drawn)
            written += out.write(text)
    return lines, written
