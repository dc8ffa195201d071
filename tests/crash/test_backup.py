"""A whole mill under load is backed up, killed and restored into another folder, several times.

At each kill the mill has counted lines that the backup does not have. At the end every line is in
its topic once and in its file's order, and MySQL and Redis contain exactly what was written.
"""

import json
import shutil
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.crash.test_mill_under_load import Load, check, config, has_come
from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.e2e.test_backup import kill_everything, move_watched
from tests.harness.load import LoadWriter
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

RATE = 2_000
COUNTED_S = 180.0
PAUSE_S_MAX = 4.0
"""The longest time from counted lines to the backup; after the backup every process is killed."""


def counted(reading: Reading) -> int:
    """Return the number of offsets that the ledger has counted, summed over all partitions."""
    return sum(reading.ledger().values())


def wait_for_more(reading: Reading, than: int) -> None:
    wait_until(lambda: counted(reading) > than, COUNTED_S, "more lines are counted")


def run_generations(folder: Path, brokers: int, times: int) -> None:
    """Restore each mill from the backup of the one before, while the load never stops."""
    chance = seeded(f"backup of {brokers} brokers, {times} times")
    text = config().replace("brokers: 1 ", f"brokers: {brokers} ")
    assert f"brokers: {brokers} " in text
    base_s = int(time.time()) // 10 * 10
    paused_ms = []

    def wait_a_moment() -> None:
        due = time.monotonic() + chance.uniform(0, PAUSE_S_MAX)
        wait_until(partial(has_come, due), 60, "the moment has come")

    with ExitStack() as mills:

        def mill_of(number: int) -> TempMill:
            made = temp_mill(folder / f"mill-{number}", {"JDK_JAVA_OPTIONS": ""})
            mill = mills.enter_context(made)
            mill.write_config(text)
            return mill

        mill = mill_of(0)
        mill.up()
        watched = mill.home.folder / "watched" / "access"
        with LoadWriter(watched, RATE, base_s, seed=chance.randrange(1 << 30)) as writer:
            for number in range(1, times + 1):
                reading = Reading(mill)
                began_at = counted(reading) if number > 1 else 0
                wait_for_more(reading, began_at)
                wait_a_moment()
                backup = folder / f"backup-{number}"
                made = mill.run("backup", str(backup), "--json")
                assert made.code == 0, made.err
                paused_ms.append(json.loads(made.out)["data"]["paused_ms"])
                wait_for_more(reading, counted(reading))
                wait_a_moment()
                kill_everything(mill.home)
                successor = mill_of(number)
                move_watched(mill, successor)
                restored = successor.run("restore", str(backup))
                assert restored.code == 0, restored.err
                shutil.rmtree(mill.home.data)
                shutil.rmtree(backup)
                successor.up()
                mill = successor
            count = writer.finish()
        load = Load(Reading(mill), base_s, RATE)
        load.count = count
        load.settle()
        check(load)
    what = f"{times} restored backups of {brokers} brokers"
    tell(f"{what}: {count:,} lines, stood still {paused_ms} ms")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_counts_go_on_exactly_from_a_backup(tmp_path: Path) -> None:
    run_generations(tmp_path, 1, 1)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_backups_of_one_broker(tmp_path: Path) -> None:
    run_generations(tmp_path, 1, 10)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_backups_of_three_brokers(tmp_path: Path) -> None:
    run_generations(tmp_path, 3, 10)
