"""A whole mill under a load of 5,000 lines per second, while its parts get SIGKILL.

Every line is in its topic once and in its file's order, and MySQL and Redis contain exactly the
counts of the topic. A printed seed determines the moments of the kills.
"""

import random
import signal
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import psutil
import pytest

from appliance.machine.processes import read_record, record_of
from tests.e2e.mill import SHIPPED, TempMill, temp_mill
from tests.e2e.reading import Reading, redis_view
from tests.harness.load import (
    METRICS,
    Expected,
    LoadWriter,
    number_in,
    written_numbers,
)
from tests.harness.seed import seeded
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

RATE = 5_000
TOPIC = "logs.access"
SIZES_S = (10, 60, 3_600, 0)
HEALTHY_S = 300.0
STALLED_S = 240.0
"""The longest time without progress while there are lines to read or count.

The ledger moves once a batch, and a batch takes as many lines as the heap allows.
"""
PAUSE_S_MAX = 3.0
UPON_ANOTHER = 0.25
"""The share of kills that come before the part killed last is back."""

PARTS = ("collector", "stream", "redis", "mysql", "monitor", "broker-1", "broker-2", "broker-3")


def config() -> str:
    """Return the shipped file with the metrics of the load. Redis keeps the windows of this run,
    and MySQL keeps all windows, even those of year-old lines."""
    head, _, rest = SHIPPED.read_text().partition("  metrics:")
    tail = rest[rest.index("\nsinks:") :]
    head = head.replace(
        "windows: [1m, 1h, all]\n    keep: {redis: {1m: 1d, 1h: 30d}, mysql: {1m: 90d}}",
        "windows: [10s, 1m, 1h, all]\n"
        "    keep: {redis: {10s: 1d, 1m: 1d, 1h: 30d}, mysql: forever}",
    )
    assert "10s: 1d" in head and "forever" in head
    return f"{head}  metrics:{METRICS}{tail}"


def has_come(moment_s: float) -> bool:
    """Return True once the monotonic clock has reached the moment."""
    return time.monotonic() >= moment_s


class Killer:
    """Kills the parts of a mill. It kills a part only while the part is healthy, up to three
    seconds after seeing that."""

    def __init__(self, reading: Reading, chance: random.Random) -> None:
        self._reading = reading
        self._chance = chance
        self._killed: dict[str, int] = {}
        self.story: list[str] = []

    def run(self, parts: tuple[str, ...], times: int) -> None:
        """Kill each of the parts this number of times, in random order."""
        for _ in range(times):
            for part in self._chance.sample(parts, len(parts)):
                needed = [part] if self._chance.random() < UPON_ANOTHER else None
                self._wait_healthy(needed)
                due = time.monotonic() + self._chance.uniform(0, PAUSE_S_MAX)
                wait_until(partial(has_come, due), 60, "the moment of the kill")
                self._kill(part)
        self._wait_healthy(None)

    def _wait_healthy(self, parts: list[str] | None) -> None:
        """Wait until these parts, or all parts, are healthy in processes that were not killed
        yet."""

        def healthy() -> bool:
            rows = self._reading.parts()
            return all(
                row["state"] == "healthy" and row["pid"] != self._killed.get(name)
                for name, row in rows.items()
                if parts is None or name in parts
            )

        wait_until(healthy, HEALTHY_S, f"{parts or 'all parts'} healthy; {self.story}")

    def _kill(self, part: str) -> None:
        record = self._reading.process(part)
        self._killed[part] = record.pid
        victim, name = record, part
        if part == "stream" and self._chance.random() < 0.5:
            # The stream is a Python driver and a JVM. Kill either one, because the other must then
            # end.
            [child] = [c for c in psutil.Process(record.pid).children() if c.name() == "java"]
            java = record_of(child.pid)
            assert java is not None
            victim, name = java, "stream's JVM"
        assert victim.signal(signal.SIGKILL), f"{name} was gone already; {self.story}"
        self.story.append(f"{time.strftime('%H:%M:%S')} {name}")


class Load:
    """Writes the lines of the load, waits until the mill has counted them, and reads the topic."""

    def __init__(self, reading: Reading, base_s: int, rate: int = RATE) -> None:
        """`rate` is the number of lines per second."""
        self.reading = reading
        self.base_s = base_s
        self.rate = rate
        self.folder = reading.mill.home.folder / "watched" / "access"
        self.count = 0

    def run(self, meanwhile: Callable[[], None]) -> None:
        """Write lines while the function runs, and then wait until all are counted."""
        with LoadWriter(self.folder, self.rate, self.base_s) as load:
            meanwhile()
            self.count = load.finish()
        self.settle()

    def settle(self) -> None:
        """Wait until every written line is counted."""
        what = "the collector has read everything"
        wait_until(self._is_read, STALLED_S, what, progress=self._positions)
        wait_until(
            lambda: self.reading.is_counted(TOPIC),
            STALLED_S,
            "the ledger is at the ends",
            progress=self.reading.ledger,
        )

    def _is_read(self) -> bool:
        sizes = {path.name: path.stat().st_size for path in self.folder.iterdir()}
        return self._positions() == sizes

    def _positions(self) -> dict[str, int]:
        rows = self.reading.details("collector", "collector")["files"]
        return {Path(row["path"]).name: row["position"] for row in rows}

    def topic(self) -> tuple[dict[str, "array[int]"], Expected]:
        """Return the line numbers in the topic, by file and in order, and the counts that these
        lines must give."""
        numbers: dict[str, array[int]] = defaultdict(lambda: array("q"))
        expected = Expected(self.base_s, SIZES_S)

        def visit(key: str, value: bytes) -> None:
            number = number_in(value, self.base_s)
            numbers[key.removeprefix("access/")].append(number)
            expected.add(number, key)

        self.reading.records(TOPIC, visit)
        return dict(numbers), expected


def compare(reading: Reading, expected: Expected) -> None:
    """Check that MySQL has exactly the expected cells, and that Redis has the same as MySQL."""
    rows = reading.mysql(
        "SELECT metric, size_s, TIMESTAMPDIFF(SECOND, '1970-01-01', start_at), k1, value, count"
        " FROM windows"
    )
    stored = {tuple(row[:4]): Decimal(row[4]) for row in rows}
    cells = expected.finish()
    assert {cell: value for cell, value in stored.items() if cell[0] != "visitors"} == cells
    for cell, value in stored.items():
        if cell[0] == "visitors":
            true = len(expected.addresses[cell[1], cell[2]])
            assert abs(value - true) <= max(1, 0.05 * true), cell
    young_s = expected.base_s - 86_400
    shown = [row[:5] for row in rows if row[1] == 0 or row[2] >= young_s]
    assert len(shown) < len(rows), "old windows are in MySQL only"
    view = reading.redis_hashes()
    windows = {key: fields for key, fields in view.items() if key.count(":") > 2 or ":all" in key}
    assert windows == redis_view(shown)
    latest = {key: fields for key, fields in view.items() if key not in windows}
    for key, fields in latest.items():
        assert fields in [f for name, f in windows.items() if name.startswith(f"{key}:")], key


def check(load: Load) -> None:
    """Check that each written line is in the topic once and in order, and counted in both sinks."""
    files = written_numbers(load.folder, load.base_s)
    assert sum(map(len, files.values())) == load.count
    numbers, expected = load.topic()
    assert numbers == files, "each line once, and in its file's order"
    compare(load.reading, expected)


def run_kills(mill: TempMill, times: int) -> None:
    """Kill each part this number of times under load, and check all counts."""
    chance = seeded(f"mill under load, kills of each: {times}")
    reading = Reading(mill)
    killer = Killer(reading, chance)
    begin = time.monotonic()
    load = Load(reading, int(time.time()) // 10 * 10)
    load.run(partial(killer.run, PARTS, times))
    check(load)
    print(f"{load.count} lines, {time.monotonic() - begin:.0f} s; {killer.story}")


def run_supervisor_kills(mill: TempMill, times: int) -> None:
    """Kill only the supervisor. Its parts keep running, and the next `up` stops them."""
    chance = seeded(f"mill under load, kills of its supervisor: {times}")
    load = Load(Reading(mill), int(time.time()) // 10 * 10)

    def kill() -> None:
        for _ in range(times):
            due = time.monotonic() + chance.uniform(0, PAUSE_S_MAX)
            wait_until(partial(has_come, due), 60, "the moment of the kill")
            record = read_record(mill.home.pid_file)
            assert record is not None and record.signal(signal.SIGKILL)
            mill.up()

    load.run(kill)
    check(load)
    print(f"{load.count} lines over {times} kills of the supervisor")


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[TempMill]:
    # The mill counts millions of lines here, so let the JVM use its optimising compiler, which
    # tests/conftest.py disables.
    with temp_mill(tmp_path / "mill", {"JDK_JAVA_OPTIONS": ""}) as made:
        made.write_config(config())
        made.up()
        yield made
        print(made.log_ends(6))


@pytest.mark.timeout(1_200)
def test_a_kill_of_each_part_changes_no_count(mill: TempMill) -> None:
    run_kills(mill, 1)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3_600)
def test_twenty_kills_of_each_part_change_no_count(mill: TempMill) -> None:
    run_kills(mill, 20)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_three_kills_of_the_supervisor_change_no_count(mill: TempMill) -> None:
    run_supervisor_kills(mill, 3)
