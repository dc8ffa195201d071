"""Drivers and servers are killed while a database of version 2 is brought up: nothing differs."""

import dataclasses
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sinks.config import MySqlSettings
from sinks.keys import Key
from sinks.mysql.migrate import COPIED
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.values import Aggregate
from tests.harness import worked
from tests.harness.cell_blocks import encode
from tests.harness.mysql import MySqlServer
from tests.harness.seed import seeded
from tests.harness.wait import wait_until
from tests.interop.test_sinks_migration import VERSION_2, everything, run

pytestmark = [pytest.mark.live, pytest.mark.slow]

KILLS = 10
KEYS_A_WINDOW = 100
TEN = worked.at("10:00:00")
PATHS = dataclasses.replace(
    worked.DEFINITIONS[0], name="paths", key_columns=("path",), definition_hash=b"1".ljust(16)
)
PAIRS = dataclasses.replace(
    PATHS, name="pairs", key_columns=("a", "b"), measure="max", definition_hash=b"2".ljust(16)
)
METRICS = [PATHS, PAIRS]

DRIVER = """
import sys
from sinks.mysql import migrate
from sinks.config import MySqlSettings
from sinks.mysql.sink import MySqlSink
from tests.crash.test_migration_killed import METRICS, worked
migrate.CELLS_PER_STEP = 200
port, user, password, database = sys.argv[1:]
settings = MySqlSettings(
    host="127.0.0.1", port=int(port), user=user, password=password, database=database
)
MySqlSink(settings, patience_s=0).open(worked.QUERY, METRICS, 0)
"""


def windows(metric: MetricDefinition, keys: list[Key]) -> list[Any]:
    cells = [(key, Aggregate(n + 1)) for n, key in enumerate(keys)]
    return [encode(metric, 60, TEN + 60 * minute, cells) for minute in range(60)]


COLUMNS = (
    "metric, size_s, start_at, k_hash, k1, k2, k3, `count`, `sum`, `min`, `max`, value, quantiles, "
    "hll, kll, seq"
)
"""The columns of `windows` in version 2, in their order."""


def counted(settings: MySqlSettings) -> None:
    sink = MySqlSink(settings, patience_s=5)
    sink.open(worked.QUERY, METRICS, 0)
    odd: list[Key] = [("x" * 254,), ("y" * 255,), ("(other)",), ("é ",), ("it's",), (None,)]
    paths = [*odd, *((f"/item/{n}",) for n in range(KEYS_A_WINDOW))]
    pairs: list[Key] = [(f"{n}", None if n % 3 else "z") for n in range(KEYS_A_WINDOW)]
    blocks = [*windows(PATHS, paths), *windows(PAIRS, pairs)]
    covered = [OffsetRange("logs.access", 0, 0, 1)]
    rows = [FoldRow("paths", TEN, (f"late {n}",), 7) for n in range(5)]
    batch = Batch(worked.QUERY, 0, rows, (), covered, 1, worked.NOW_MS, blocks=blocks)
    assert not sink.apply(batch).replayed
    sink.close()


def set_back(server: MySqlServer, of: MySqlSettings, to: MySqlSettings) -> None:
    """A database of version 2 with the same cells, copied by the server."""
    run(
        server,
        to,
        *VERSION_2,
        f"INSERT INTO windows SELECT {COLUMNS} FROM {of.database}.windows",
        "INSERT INTO window_keys SELECT metric, size_s, start_at, n_keys, seq "
        f"FROM {of.database}.window_keys",
        f"INSERT INTO metrics SELECT name, definition_hash, since FROM {of.database}.metrics",
        *(f"INSERT INTO {t} SELECT * FROM {of.database}.{t}" for t in ("sink_guard", "ledger")),
    )


def driver(settings: MySqlSettings) -> "subprocess.Popen[bytes]":
    told = (str(settings.port), settings.user, settings.password, settings.database)
    return subprocess.Popen([sys.executable, "-c", DRIVER, *told])


def copied(server: MySqlServer, settings: MySqlSettings) -> int:
    """How many cells are copied for good."""
    try:
        with server.connect(settings) as connection, connection.cursor() as cursor:
            if not cursor.execute(f"SHOW TABLES LIKE '{COPIED}'"):
                return 0
            cursor.execute("SELECT COUNT(*) AS n FROM window_cells")
            return int((cursor.fetchone() or {"n": 0})["n"])
    except pymysql.err.Error:
        return 0


def has_copied(server: MySqlServer, settings: MySqlSettings, enough: int) -> bool:
    return copied(server, settings) >= enough


def test_kills_half_way_leave_every_cell_as_it_was(tmp_path: Path) -> None:
    rng = seeded("migration killed")
    with MySqlServer(tmp_path / "m") as server:
        today = server.new_database()
        counted(today)
        expected = everything(server, today)
        cells = len(expected["windows"])
        assert cells > 2 * 60 * KEYS_A_WINDOW
        halves = 0
        for kill in range(KILLS):
            old = server.new_database()
            set_back(server, today, old)
            enough = rng.randrange(cells // 8, cells // 2)
            killed = driver(old)
            wait_until(partial(has_copied, server, old, enough), 60, "some cells are copied")
            killed.kill()
            if kill % 2:
                server.kill9()
                server.start()
            killed.wait()
            halves += copied(server, old) < cells
            finished = driver(old)
            assert finished.wait(60) == 0
            assert everything(server, old) == expected, f"kill {kill} after {enough} cells"
        # A driver that was done before its kill tells nothing.
        assert halves > KILLS // 2
