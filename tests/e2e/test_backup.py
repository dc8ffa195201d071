"""A mill is backed up, killed and restored into another folder. Each line and row is there once.

This test runs without the parts that need a JVM. `tests/crash/test_backup` tests the whole mill.
"""

import json
import os
import shutil
import signal
import sqlite3
import stat
import time
from collections import defaultdict
from pathlib import Path

import pytest

from appliance.backup import take
from appliance.config.load import load_text
from appliance.machine.processes import read_record
from appliance.mill.home import Home
from appliance.mill.init import initialise, read_secret
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from sinks.config import MySqlSettings
from tests.e2e.mill import SERVERS_ONLY, TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.e2e.test_up_supervisor import fake_mill
from tests.harness.load import LoadWriter, number_in, written_numbers
from tests.harness.wait import wait_until
from tests.interop.test_backup_tables import ODD_TEXTS, fill
from tests.unit.appliance.test_backup_restore import TEXT, ignored

pytestmark = pytest.mark.live

TOPIC = "logs.access"
RATE = 2_000
LINES = """
cluster: {brokers: 1, settings: {num.partitions: 3}}
collector: {inputs: [{paths: ["watched/access/**"], topic: logs.access}]}
stream: {metrics: []}
sinks: {mysql: null}
monitor: {listen: 127.0.0.1:8090}
"""
TABLES = SERVERS_ONLY + "sinks: {redis: null}\n"
STALLED_S = 120.0


def kill_everything(home: Home) -> None:
    """Kill all processes. Kill the supervisor first, so that it restarts no part."""
    paths = [home.pid_file, *home.run.glob("*.json")]
    records = [record for path in paths if (record := read_record(path))]
    for record in records:
        record.signal(signal.SIGKILL, group=True)
    wait_until(lambda: not any(record.is_alive() for record in records), 30, "all are gone")


def positions(reading: Reading) -> dict[str, int]:
    rows = reading.details("collector", "collector")["files"]
    return {Path(row["path"]).name: row["position"] for row in rows}


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def move_watched(old: TempMill, new: TempMill) -> Path:
    """Move the watched files into the restored mill, while a writer appends to them."""
    shutil.rmtree(new.home.folder / "watched")
    (old.home.folder / "watched").rename(new.home.folder / "watched")
    return new.home.folder / "watched" / "access"


@pytest.mark.parametrize("brokers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_each_line_is_in_its_topic_once_after_a_restore(tmp_path: Path, brokers: int) -> None:
    text = LINES.replace("brokers: 1", f"brokers: {brokers}")
    base_s = int(time.time()) // 10 * 10
    with temp_mill(tmp_path / "old") as old, temp_mill(tmp_path / "new") as new:
        old.write_config(text)
        new.write_config(text)
        old.up()
        old_reading = Reading(old)
        folder = old.home.folder / "watched" / "access"
        with LoadWriter(folder, RATE, base_s) as load:
            wait_until(lambda: len(positions(old_reading)) == 4, 60, "lines are committed")
            made = old.run("backup", str(tmp_path / "backup"), "--json")
            assert made.code == 0, made.err
            before = positions(old_reading)
            wait_until(
                lambda: all(positions(old_reading)[name] > before[name] for name in before),
                60,
                "more lines are committed than the backup has",
            )
            kill_everything(old.home)
            folder = move_watched(old, new)
            restored = new.run("restore", str(tmp_path / "backup"))
            assert restored.code == 0, restored.err
            new.up()
            load.finish()
        reading = Reading(new)
        wait_until(
            lambda: positions(reading) == sizes(folder), STALLED_S, "all lines are committed"
        )
        numbers: dict[str, list[int]] = defaultdict(list)
        reading.records(
            TOPIC,
            lambda key, value: numbers[key.removeprefix("access/")].append(
                number_in(value, base_s)
            ),
        )
        written = {name: list(found) for name, found in written_numbers(folder, base_s).items()}
        assert dict(numbers) == written
        assert sum(map(len, written.values())) == load.end
        secret = new.home.secrets / "redis" / "password"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        row = json.loads(made.out)["data"]
        print(f"stood still for {row['paused_ms']} ms, {row['files']} files; {load.end} lines")


@pytest.mark.slow
def test_the_database_goes_through_a_running_and_a_stopped_mill(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with temp_mill(tmp_path / "old") as old, temp_mill(tmp_path / "new") as new:
        old.write_config(TABLES)
        new.write_config(TABLES)
        old.up()
        password = read_secret(old.home, "mysql/mill")
        fill(
            MySqlSettings(host="127.0.0.1", port=old.ports["mysql"], user="mill", password=password)
        )
        made = old.run("backup", str(first))
        assert made.code == 0, made.err
        assert "rows of MySQL; the mill was paused for" in made.err
        restored = new.run("restore", str(first))
        assert restored.code == 0, restored.err
        # The restored server must start with the restored passwords, and have all rows of the
        # backup.
        again = new.run("backup", str(second))
        assert again.code == 0, again.err
        assert (second / "mysql.sql").read_bytes() == (first / "mysql.sql").read_bytes()
        assert (first / "mysql.sql").read_text().count("INSERT INTO `window_cells`") == 1
        assert ODD_TEXTS[1] in (first / "mysql.sql").read_text()
        with sqlite3.connect(second / "data" / "monitor" / "history.db") as history:
            assert history.execute("SELECT COUNT(*) FROM events").fetchone()[0] >= 1
        history.close()
        refused = new.run("restore", str(first))
        assert refused.code == 1 and "is not empty" in refused.err


def test_a_backup_that_finds_no_moment_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_mill(tmp_path / "mill", {"name": "a"}) as mill:
        mill.wait_healthy()
        initialise(mill.home, (1,))
        mill.home.config_file.parent.mkdir()
        mill.home.config_file.write_text(TEXT)
        # A file with a modification time in the future is copied again in every try, so no try is
        # fast enough.
        later = time.time() + 3_600
        os.utime(mill.home.secrets / "redis" / "password", (later, later))
        config = load_text(TEXT, "millrace.yaml", tmp_path, {}).config
        asked = Mill(mill.home, config, Placement())
        with monkeypatch.context() as impatient:
            impatient.setattr(take, "COPY_S_MAX", 0.0)
            with pytest.raises(take.BackupFailed, match=f"was paused {take.PAUSES_MAX} times"):
                take.take(asked, tmp_path / "backup", ignored)
        assert not list(tmp_path.glob("backup*"))
        taken = take.take(asked, tmp_path / "backup", ignored)
        assert taken.manifest.paused_ms > 0
        assert mill.wait_healthy()["restarts"] == 0
