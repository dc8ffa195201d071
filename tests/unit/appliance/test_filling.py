"""`doctor` forecasts when a disk will be full, from the monitor's history of its free space."""

from typing import Any

from appliance.checks.filling import disks
from appliance.checks.startup import Check, CheckLevel

GIB = 1 << 30


def said(**changes: Any) -> list[Check]:
    row = {
        "disk": "data", "free_bytes": 40 * GIB, "size_bytes": 100 * GIB,
        "bytes_a_day": 2 * GIB, "seen_ms": 172_800_000, "days_left": 20.0,
    }  # fmt: skip
    return list(disks([{**row, **changes}]))


def test_a_disk_that_is_full_within_a_month_is_a_warning_with_a_remedy() -> None:
    (check,) = said()
    assert check.level is CheckLevel.WARNING
    assert check.found == (
        "shrank by 2.00 GiB a day over the last 2.0 days;"
        " at this pace the disk is full in 20.0 days"
    )
    assert "retention.ms" in check.remedy
    assert "keep" in check.remedy


def test_one_that_lasts_longer_or_for_ever_is_well() -> None:
    (later,) = said(days_left=30.0)
    (never,) = said(days_left=None, bytes_a_day=-GIB)
    assert later.level is never.level is CheckLevel.OK
    assert "is full in 30 days" in later.found
    assert "did not shrink" in never.found


def test_of_too_short_a_history_nothing_is_said() -> None:
    assert said(bytes_a_day=None, seen_ms=None, days_left=None) == []
