"""Many simulation runs, divided into tests of a hundred runs each.

One test cannot have all runs. pytest keeps what a test logs until the test ends, and an exception
in a log record keeps a whole simulated world in memory.
"""

import os
from collections.abc import Callable

from tests.harness.seed import seeded

IN_ONE = 100


def parts_of(lives: int) -> list[tuple[int, int]]:
    """Return for each test the number of its first run, and the number of its runs.
    `MILLRACE_LIVES` overrides the total number of runs."""
    count = int(os.environ.get("MILLRACE_LIVES", lives))
    return [(first, min(IN_ONE, count - first)) for first in range(0, count, IN_ONE)]


def live(name: str, part: tuple[int, int], run: Callable[[str], None]) -> None:
    """Perform this part of the runs, each with a different seed."""
    first, count = part
    chance = seeded(f"{name} {first}")
    for _ in range(count):
        seed = str(chance.random())
        print(seed)
        run(seed)
