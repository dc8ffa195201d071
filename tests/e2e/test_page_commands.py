"""The commands of README.md and docs/, typed into one mill as they are.

The tutorial comes first, as for a newcomer. Its application writes two files that rotate: one has
JSON, the other has stack traces. The next test lets the files rotate again, and each line must
count exactly once.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.page_rig import Rig, rig
from tests.e2e.reading import Reading
from tests.harness.pages import blocks_of, commands_of, pages
from tests.harness.pages_not_run import reason_not_run
from tests.harness.seed import seeded
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

TUTORIAL = "docs/tutorial.md"
PAGES = sorted(
    (
        page
        for page in pages()
        if page != TUTORIAL
        and any(
            reason_not_run(one) is None for block in blocks_of(page) for one in commands_of(block)
        )
    ),
    key=lambda page: not page.startswith("docs/howto/"),
)
"""How-to pages first, because other pages add lines to the logs that they count."""
COUNTED_S = 120.0
ROTATIONS = 5
ORDERS = 400
"""The number of JSON lines between two rotations."""
EVENTS = 150
LEVELS = ("INFO", "WARN", "ERROR")
PATHS = ("/cart", "/pay", "/list")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("pages")) as one:
        yield one


def test_the_tutorial_does_what_it_says(made: Rig) -> None:
    began_s = time.monotonic()
    typed = made.type_page(TUTORIAL)
    print(f"{typed} commands of {TUTORIAL} took {time.monotonic() - began_s:.0f} s")


def test_the_tutorials_log_goes_on_rotating_and_counts_exactly(made: Rig) -> None:
    """The inputs and metrics of the tutorial must also count the lines that the application writes
    after it."""
    reading = Reading(made.mill)
    shop = made.root / "var" / "tmp" / "shop"
    metrics = {"orders_by_status": "status", "orders_top_path": "path", "shop_by_level": "level"}
    expected = {name: Counter(numbers(reading, name)) for name in metrics}
    dice = seeded("rotations")
    for number in range(ROTATIONS):
        for file in ("orders.json", "shop.log"):
            rotate(shop / file)
        counts = write_orders(shop / "orders.json", dice)
        for name, column in (("orders_by_status", "status"), ("orders_top_path", "path")):
            expected[name] += counts[column]
        expected["shop_by_level"] += write_events(shop / "shop.log", dice, number)
    wait_until(
        lambda: all(numbers(reading, name) == expected[name] for name in metrics),
        COUNTED_S,
        f"Redis shows {expected}",
    )
    for name, column in metrics.items():
        query = f"SELECT {column}, count FROM {name} WHERE size = 'all'"
        assert {str(key): int(count) for key, count in reading.mysql(query)} == expected[name]


def numbers(reading: Reading, metric: str) -> dict[str, int]:
    return {key: int(count) for key, count in reading.redis(f"mill:{metric}:all").items()}


def rotate(file: Path) -> None:
    """Rename a file and its older generations, as logrotate does."""
    for number in range(ROTATIONS + 1, 0, -1):
        older = file.with_name(f"{file.name}.{number}")
        if older.exists():
            older.rename(file.with_name(f"{file.name}.{number + 1}"))
    file.rename(file.with_name(f"{file.name}.1"))


def write_orders(file: Path, dice: random.Random) -> dict[str, Counter[str]]:
    """Write lines of JSON. Return how often each status and each path occurs in them."""
    counts: dict[str, Counter[str]] = {"status": Counter(), "path": Counter()}
    with file.open("w") as out:
        for _ in range(ORDERS):
            order = {
                "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
                "level": "info",
                "path": dice.choice(PATHS),
                "status": dice.choice((200, 201, 402, 500)),
                "ms": round(dice.uniform(1, 2000), 1),
            }
            for column, counted in counts.items():
                counted[str(order[column])] += 1
            out.write(json.dumps(order) + "\n")
            out.flush()
    return counts


def write_events(file: Path, dice: random.Random, number: int) -> Counter[str]:
    """Write events, some of them with a stack trace. Return how often each level occurs."""
    levels: Counter[str] = Counter()
    with file.open("w") as out:
        for place in range(EVENTS):
            level = dice.choice(LEVELS)
            levels[level] += 1
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S,%f}"[:-3]
            out.write(f"{now} {level} [main] shop.App - event {number}.{place}\n")
            if level == "ERROR":
                out.write(
                    "java.io.IOException: ERROR of the disk\n    at shop.App.run(App.java:7)\n"
                )
            out.flush()
    return levels


def an_access_log(made: Rig) -> None:
    folder = made.root / "var" / "log" / "nginx"
    folder.mkdir()
    line = '192.0.2.9 - - [28/Nov/2026:09:00:00 +0000] "GET /z HTTP/1.1" 206 1 "-" "curl/8.5.0"\n'
    (folder / "access.log").write_text(line)


def a_log_with_traces(made: Rig) -> None:
    """Write the log for which docs/detect.md shows the output of `detect`."""
    lines: list[str] = []
    number = 0
    while len(lines) < 10_000:
        number += 1
        stamp = f"2025-03-03 10:{number // 60 % 60:02}:{number % 60:02},001"
        if number % 800 == 40:
            lines.append(f"{stamp} [worker-1] ERROR org.example.Orders - no order {number}")
            lines.append("java.lang.IllegalStateException: no order")
            lines += [f"\tat org.example.Orders.find(Orders.java:{line})" for line in range(11)]
        elif number % 62 == 0:
            lines.append("-- flushed --")
        else:
            text = "started" if number == 1 else f"request {number}"
            lines.append(f"{stamp} [main] INFO org.example.Main - {text}")
    (made.root / "var" / "log" / "shop.log").write_text("\n".join(lines[:10_000]) + "\n")
    (made.home / "watched" / "shop").mkdir(exist_ok=True)


PREPARED: dict[str, Callable[[Rig], None]] = {
    "README.md": an_access_log,
    "docs/detect.md": a_log_with_traces,
}
"""Creates what the reader of each page has before the first command."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(made: Rig, page: str) -> None:
    if page in PREPARED:
        PREPARED[page](made)
    assert made.type_page(page) > 0
