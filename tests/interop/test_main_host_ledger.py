"""The restore of a main host completes the ledger in MySQL, and finds lines that are lost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.backup import main_host_restore, tables
from appliance.backup.main_host import RemainingCluster
from appliance.backup.main_host_restore import MainHostRestore
from appliance.backup.manifest import Manifest
from appliance.backup.restore import RestoreFailed
from sinks.config import MySqlSettings
from sinks.mysql.link import connect
from sinks.mysql.tables import prepare
from tests.harness.mysql import MySqlServer
from tests.unit.appliance.hosted import mill
from tests.unit.appliance.test_main_host_backup import COUNTING

FOUND = Manifest("1.0.0", 1, 0, "ours", 3, 2, (), (), main_broker=1)
TOLD = RemainingCluster(
    "ours",
    frozenset({2, 3}),
    frozenset({2, 3}),
    {("logs", 0): 40, ("logs", 1): 0},
    {("logs", 0): 90, ("logs", 1): 70},
)


@pytest.fixture
def settings(mysql_server: MySqlServer) -> MySqlSettings:
    return mysql_server.new_database()


@pytest.fixture
def restored(settings: MySqlSettings) -> Iterator[Any]:
    """Yield the connection of a restore, as `tables.run` leaves it."""
    made = connect(settings)
    with made.cursor() as cursor:
        prepare(cursor)
    made.close()
    connection = tables.open_view(settings)
    tables.run(connection, [f"{one};\n" for one in tables.HEAD])
    yield connection
    connection.close()


def steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: RemainingCluster, *, skip_lost: bool
) -> MainHostRestore:
    """Return a restore that has asked the brokers on the other hosts."""
    monkeypatch.setattr(main_host_restore, "ask", lambda *_: told)
    found = MainHostRestore(mill(tmp_path, COUNTING), None, skip_lost=skip_lost)
    found.check(FOUND, tmp_path)
    return found


def ledger(settings: MySqlSettings) -> dict[tuple[str, int], int]:
    connection = connect(settings)
    with connection.cursor() as cursor:
        cursor.execute("SELECT topic, part, end_offset FROM ledger")
        rows = cursor.fetchall()
    connection.close()
    return {(topic, part): end for topic, part, end in rows}


def write(settings: MySqlSettings, *rows: tuple[str, int, int]) -> None:
    connection = connect(settings)
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO ledger VALUES (%s, %s, %s)", rows)
    connection.close()


def test_a_partition_that_is_newer_than_the_backup_is_counted_from_0(
    settings: MySqlSettings, restored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(settings, ("logs", 0, 41), ("other", 0, 7))
    steps(tmp_path, monkeypatch, TOLD, skip_lost=False).complete_counts(restored)
    assert ledger(settings) == {("logs", 0): 41, ("logs", 1): 0, ("other", 0): 7}


def test_lost_lines_are_refused_or_left_out(
    settings: MySqlSettings, restored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(settings, ("logs", 0, 39), ("logs", 1, 5))
    before = ledger(settings)
    with pytest.raises(RestoreFailed, match="logs-0 is counted up to offset 39"):
        steps(tmp_path, monkeypatch, TOLD, skip_lost=False).complete_counts(restored)
    assert ledger(settings) == before
    found = steps(tmp_path, monkeypatch, TOLD, skip_lost=True)
    found.complete_counts(restored)
    assert ledger(settings) == {("logs", 0): 40, ("logs", 1): 5}
    assert "the brokers have it only from 40 on" in found.lost_text


def test_a_mill_that_has_never_counted_has_no_ledger(
    settings: MySqlSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = tables.open_view(settings)
    whole = replace(TOLD, starts={("logs", 0): 0, ("logs", 1): 0})
    steps(tmp_path, monkeypatch, whole, skip_lost=False).complete_counts(connection)
    with pytest.raises(RestoreFailed, match="logs-0 is counted up to offset 0"):
        steps(tmp_path, monkeypatch, TOLD, skip_lost=False).complete_counts(connection)
    connection.close()
