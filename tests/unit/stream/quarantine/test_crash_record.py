"""The record of what killed JVMs: its entries are added up, expire, and never prevent a start."""

import json
from pathlib import Path

import pytest

from sinks.rows import OffsetRange
from stream.quarantine import crash_record as module
from stream.quarantine.crash_record import CrashRecord
from stream.quarantine.search import Part

BATCH: Part = (OffsetRange("t", 0, 5, 100), OffsetRange("t", 1, -2, 7))
PART: Part = (OffsetRange("t", 0, 5, 8),)


def test_blame_adds_up_over_starts(tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    for blame in (1, 2):
        CrashRecord(path).note("query", 4, BATCH, 1)
        assert CrashRecord(path).blame == {BATCH: blame}
    CrashRecord(path).note("query", 4, PART, 2)
    found = CrashRecord(path)
    assert found.blame == {BATCH: 2, PART: 2}
    assert json.loads(path.read_text())["batch_id"] == 4
    assert [one.name for one in tmp_path.iterdir()] == ["suspects.json"]


def test_a_batch_is_known_by_where_it_begins(tmp_path: Path) -> None:
    found = CrashRecord(tmp_path / "suspects.json")
    found.note("query", 4, BATCH, 1)
    longer = (OffsetRange("t", 0, 5, 300), OffsetRange("t", 1, -2, 9))
    assert found.blame_of_batch(longer) == 1
    assert found.blame_of_batch((OffsetRange("t", 0, 6, 100), BATCH[1])) == 0
    assert found.blame_of_batch(BATCH[:1]) == 0


def test_it_is_gone_when_the_batch_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    CrashRecord(path).note("query", 4, BATCH, 1)
    found = CrashRecord(path)
    found.clear()
    assert not path.exists()
    assert found.blame == {}
    found.clear()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 9}', '{"version": 1, "batch_id": 1, "parts": [{"ranges": [1]}]}'],
)
def test_a_torn_file_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "suspects.json"
    path.write_text(text)
    assert CrashRecord(path).blame == {}
    assert not path.exists()


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTS_MAX", 3)
    found = CrashRecord(tmp_path / "suspects.json")
    for start in range(10):
        found.note("query", 4, (OffsetRange("t", 0, start, 100),), 1)
    assert [part[0].start for part in found.blame] == [7, 8, 9]
