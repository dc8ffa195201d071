"""`doctor` reports the number and the growth of MySQL's rows."""

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from appliance.checks import growth
from appliance.checks.growth import checks_of
from appliance.checks.startup import CheckLevel
from sinks.mysql.growth import DAY_S, SizeRows, TableSize

NOW_S = 1_785_600_000
STORED = TableSize(
    [
        SizeRows("paths", 60, 900_000, 700_000, NOW_S - 7 * DAY_S),
        SizeRows("gone", 60, 100_000, 0, None),
    ],
    table_bytes=200_000_000,
)


def test_rows_bytes_and_days_are_said() -> None:
    paths, gone, table = checks_of(STORED, {"paths": {}}, NOW_S, 20_000_000_000)
    assert paths.found == "900,000 rows, about 171.7 MiB, 100,000 more a day, kept forever"
    assert "millrace stream forget gone" in gone.remedy
    assert table.level is CheckLevel.OK
    assert table.found.endswith(
        "200 bytes a row; at the pace of the last days the disk is full in 1,000 days"
    )


def test_a_disk_that_is_full_soon_is_a_warning_with_a_remedy() -> None:
    *_, table = checks_of(STORED, {"paths": {}}, NOW_S, 100_000_000)
    assert table.level is CheckLevel.WARNING
    assert "full in 5.0 days" in table.found
    assert "keep" in table.remedy


def test_sizes_that_are_kept_for_another_time_are_told_apart() -> None:
    sizes = [SizeRows("paths", size_s, 10, 0, None) for size_s in (0, 3_600, 60)]
    kept_s = {"paths": {60: 90 * DAY_S, 3_600: None, 0: None}}
    paths, _ = checks_of(TableSize(sizes, 2_000), kept_s, NOW_S, 10**9)
    assert paths.found.endswith("kept 1m for 90 days, 1h, all forever")


def test_of_a_server_elsewhere_nothing_is_said_of_its_disk() -> None:
    assert len(list(checks_of(STORED, {"paths": {}}, NOW_S, None))) == 2


@pytest.mark.parametrize(
    ("refusal", "level", "found"),
    [
        (
            pymysql.err.ProgrammingError(1146, "no table"),
            CheckLevel.OK,
            "the stream has no tables yet",
        ),
        (pymysql.err.OperationalError(2003, "refused"), CheckLevel.WARNING, "gives no answer"),
    ],
)
def test_a_database_without_tables_is_no_database_that_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, level: CheckLevel, found: str
) -> None:
    """MySQL runs before the stream's first start, but the stream has not created its tables yet."""

    def ask(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(growth, "_ask", ask)
    mill: Any = SimpleNamespace(config=SimpleNamespace(sinks=SimpleNamespace(mysql=object())))
    (check,) = growth.rows(mill)
    assert check.level is level
    assert found in check.found
