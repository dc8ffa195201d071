"""Many lives of a simulation, a hundred of them in one test.

pytest keeps what a test logs until it ends, and an exception in a record holds a whole world.
"""

import os
from collections.abc import Callable

from tests.harness.seed import seeded

IN_ONE = 100


def parts_of(lives: int) -> list[tuple[int, int]]:
    """Number of each test's first life, and how many it lives; `MILLRACE_LIVES` in all instead."""
    count = int(os.environ.get("MILLRACE_LIVES", lives))
    return [(first, min(IN_ONE, count - first)) for first in range(0, count, IN_ONE)]


def live(name: str, part: tuple[int, int], run: Callable[[str], None]) -> None:
    """Live a part of them, each by a seed of its own."""
    first, count = part
    chance = seeded(f"{name} {first}")
    for _ in range(count):
        seed = str(chance.random())
        print(seed)
        run(seed)
