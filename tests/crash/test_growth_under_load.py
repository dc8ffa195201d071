"""A whole mill grows from one broker to three and four and shrinks to three, while lines are
counted and brokers and commands get SIGKILL at random moments."""

import json
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.crash.test_mill_under_load import TOPIC, Load, check, config
from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

RATE = 2_000
"""Lines per second."""
ROUNDS = 20
TRIES_MAX = 20
PAUSE_S = (0.5, 6.0)
"""The time between two kills, at least and at most."""
HEALTHY_S = 240.0


def config_of(brokers: str) -> str:
    return re.sub(r"(?m)^(\s*)brokers: 3\b.*$", rf"\g<1>brokers: {brokers}", config())


class Operator:
    """Types commands until they succeed. The test kills some of them."""

    def __init__(self, mill: TempMill, chance: random.Random) -> None:
        self._mill = mill
        self._chance = chance
        self.kills = 0

    def list_brokers(self, brokers: str) -> None:
        """Write the brokers into the file, and apply it."""
        self._mill.write_config(config_of(brokers))
        self.type("up", "--apply")

    def type(self, *words: str, kills: int = 0) -> None:
        """Run a command until it succeeds. Kill the first ones at random moments."""
        told = ""
        for number in range(TRIES_MAX):
            with self._mill.begin(*words) as process:
                try:
                    patience_s = self._chance.uniform(0.3, 5.0) if number < kills else 300.0
                    _, told = process.communicate(timeout=patience_s)
                except TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()
                    self.kills += 1
                    continue
            if process.returncode == 0:
                return
        raise AssertionError(f"{' '.join(words)} did not succeed: {told}\n{self._mill.log_ends()}")


@contextmanager
def brokers_die(reading: Reading, chance: random.Random) -> Iterator[list[str]]:
    """Kill random brokers while the block runs, each when all are healthy. Yield the killed."""
    ended = threading.Event()
    killed: list[str] = []
    pids: dict[str, int] = {}

    def healthy_brokers() -> list[str]:
        rows = {name: row for name, row in reading.parts().items() if name.startswith("broker-")}
        is_well = all(
            row["state"] == "healthy" and row["pid"] != pids.get(name) for name, row in rows.items()
        )
        return sorted(rows) if is_well else []

    def kill() -> None:
        while not ended.wait(chance.uniform(*PAUSE_S)):
            names = healthy_brokers()
            if names:
                name = chance.choice(names)
                record = reading.process(name)
                pids[name] = record.pid
                if record.signal(signal.SIGKILL):
                    killed.append(name)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[TempMill]:
    with temp_mill(tmp_path / "mill") as made:
        made.write_config(config_of("1"))
        made.up()
        yield made
        print(made.log_ends(6))


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_mill_grows_and_shrinks_and_every_line_counts_once(mill: TempMill, number: int) -> None:
    chance = seeded(f"growth under load {number}")
    reading = Reading(mill)
    operator = Operator(mill, chance)
    load = Load(reading, int(time.time()) // 10 * 10, RATE)
    leaving = chance.choice((2, 3, 4))
    killed: list[str] = []

    def change() -> None:
        operator.list_brokers("3")
        with brokers_die(reading, chance) as first:
            operator.type("cluster", "grow", "--yes", kills=2)
        operator.list_brokers("[1, 2, 3, 4]")
        operator.type("broker", "add", "4", "--yes")
        with brokers_die(reading, chance) as second:
            operator.type("broker", "remove", str(leaving), "--yes", kills=2)
        left = [one for one in (1, 2, 3, 4) if one != leaving]
        operator.list_brokers(str(left))
        killed.extend([*first, *second])

    load.run(change)
    check(load)
    wait_until(lambda: is_whole(mill, leaving), HEALTHY_S, "three voters, three replicas each")
    tell(
        f"growth under load: {load.count} lines, lost 0, doubled 0; killed {len(killed)} brokers"
        f" and {operator.kills} commands; broker {leaving} left"
    )


def is_whole(mill: TempMill, leaving: int) -> bool:
    """Return True if the other three brokers vote and have all replicas in sync."""
    told = mill.run("broker", "describe", "--json")
    if told.code != 0:
        return False
    found = json.loads(told.out)["data"]
    others = [one for one in (1, 2, 3, 4) if one != leaving]
    assert any(row["topic"] == TOPIC for row in found["partitions"])
    return [row["broker"] for row in found["brokers"] if row["voter"]] == others and all(
        sorted(row["in_sync"]) == others for row in found["partitions"]
    )
